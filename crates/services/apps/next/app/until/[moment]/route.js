import { html } from "../../../lib/html";

export async function GET(request, { params }) {
  const { moment } = await params;
  if (Date.now() / 1000 >= Number(moment)) return new Response("not here", { status: 404 });
  return html("<h1>still here</h1>", "public, max-age=1");
}
