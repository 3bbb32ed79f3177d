import { cookies } from "next/headers";

export const TEXT = "<p>All happy families are alike; each unhappy family is unhappy in its own way.</p>\n".repeat(60);
export const MINUTE = "public, max-age=60";

export function html(heading, cacheControl, more = {}, status = 200) {
  const headers = { "Content-Type": "text/html; charset=utf-8", ...more };
  if (cacheControl) headers["Cache-Control"] = cacheControl;
  return new Response(`${heading}\n${TEXT}`, { status, headers });
}

export const page = () => html("<h1>page</h1>", MINUTE);

export async function account(cacheControl) {
  const user = (await cookies()).get("session")?.value ?? "nobody";
  return html(`<h1>user=${user}</h1>`, cacheControl);
}

export const later = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
export const seconds = (request) => Number(request.nextUrl.searchParams.get("seconds"));
