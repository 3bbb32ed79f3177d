export async function POST(request) {
  const user = (await request.formData()).get("user");
  const headers = { Location: "/account", "Set-Cookie": `session=${user}; Path=/; HttpOnly` };
  return new Response(null, { status: 303, headers });
}
