// The cost of the early-refresh decision in the published Node test, the cause in its author's view: node bench/decision.mjs
import { hrtime } from "node:process";

const DECISIONS = 20_000_000;
const ROUNDS = 7;

const refreshes = (delta, beta, expiry) => Date.now() - delta * beta * Math.log(Math.random()) >= expiry;

const took = [];
let refreshed = 0;
for (let round = 0; round < ROUNDS; round++) {
  const expiry = Date.now() + 3_600_000;
  const began = hrtime.bigint();
  for (let n = 0; n < DECISIONS; n++) {
    // Counted, so that the decision is not optimised away.
    if (refreshes(20, 1, expiry)) refreshed++;
  }
  took.push(Number(hrtime.bigint() - began) / DECISIONS);
}
took.sort((one, other) => one - other);
console.log(`${took[(ROUNDS - 1) / 2].toFixed(1)} ns a decision (${took[0].toFixed(1)} to ${took[ROUNDS - 1].toFixed(1)}), ${refreshed} refreshed`);
