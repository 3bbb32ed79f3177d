import { account } from "../../lib/html";

export const GET = () => account();
