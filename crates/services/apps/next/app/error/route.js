export const dynamic = "force-dynamic";

export function GET() {
  throw new Error("an error of the application");
}
