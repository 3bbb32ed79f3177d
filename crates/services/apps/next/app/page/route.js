import { page } from "../../lib/html";

export const dynamic = "force-dynamic";
export const GET = () => page();
