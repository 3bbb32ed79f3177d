// The custom server of Next.js's documentation, with an access log: `node server.js PORT FOLDER`.
"use strict";

const fs = require("node:fs");
const { createServer } = require("node:http");
const next = require("next");

const [port, folder] = process.argv.slice(2);
const app = next({ dev: false, dir: __dirname, hostname: "127.0.0.1", port: Number(port) });
const log = fs.createWriteStream(`${folder}/access.log`, { flags: "a" });

app.prepare().then(() => {
  const handle = app.getRequestHandler();
  const server = createServer((request, response) => {
    const { method, url, httpVersion } = request;
    response.on("finish", () => log.write(`${method} ${url} ${response.statusCode} HTTP/${httpVersion}\n`));
    handle(request, response);
  });
  server.keepAliveTimeout = 1000;
  server.maxRequestsPerSocket = 10;
  server.listen(Number(port), "127.0.0.1");
});
