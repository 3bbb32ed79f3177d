import { account, later } from "../../../lib/html";

export async function GET() {
  await later(0.7);
  return account("max-age=0");
}
