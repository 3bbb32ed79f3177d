import { account, later, seconds } from "../../lib/html";

export async function GET(request) {
  await later(seconds(request));
  return account("no-store");
}
