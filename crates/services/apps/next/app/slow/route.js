import { later, page, seconds } from "../../lib/html";

export async function GET(request) {
  await later(seconds(request));
  return page();
}
