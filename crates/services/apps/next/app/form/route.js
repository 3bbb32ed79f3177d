import { randomBytes } from "node:crypto";
import { cookies } from "next/headers";
import { html, MINUTE } from "../../lib/html";

export async function GET() {
  const jar = await cookies();
  let token = jar.get("visitor")?.value;
  if (!token) {
    token = randomBytes(8).toString("hex");
    jar.set("visitor", token);
  }
  return html(`<input value='token=${token}'>`, MINUTE);
}
