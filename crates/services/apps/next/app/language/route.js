import { html, MINUTE } from "../../lib/html";

export function GET(request) {
  const language = request.headers.get("accept-language")?.startsWith("de") ? "de" : "en";
  return html(`<h1>language=${language}</h1>`, MINUTE, { Vary: "Accept-Language", "Content-Language": language });
}
