async function echo(request) {
  const body = new Uint8Array(await request.arrayBuffer());
  const sum = body.reduce((sum, byte) => (sum + byte) >>> 0, 0);
  const text = `method=${request.method} length=${body.length} sum=${sum}\n`;
  return new Response(text, { headers: { "Cache-Control": "no-store" } });
}

export const dynamic = "force-dynamic";
export { echo as GET, echo as POST, echo as PUT };
