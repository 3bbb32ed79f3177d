#!/usr/bin/env node
// Runs the program, which is in the package for this platform.
"use strict";
const { spawn } = require("node:child_process");
const { signals } = require("node:os").constants;
const { isatty } = require("node:tty");

const { name } = require("./package.json");
const platform = `${name}-${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${platform}/bin/stockade`);
} catch {
  console.error(`${platform} is not installed: there is no such package, or npm left optional dependencies out`);
  process.exit(1);
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
child.on("error", (error) => {
  console.error(`cannot run ${program}: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(code ?? 128 + signals[signal]));
process.on("SIGTERM", () => child.kill("SIGTERM"));
process.on("SIGHUP", () => child.kill("SIGHUP"));
// A terminal sends SIGINT to both, and a second one ends a run without its record.
const hasTerminal = [0, 1, 2].some((descriptor) => isatty(descriptor));
process.on("SIGINT", () => hasTerminal || child.kill("SIGINT"));
