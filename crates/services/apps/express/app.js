// The Express stack: `node app.js PORT FOLDER`.
"use strict";

const crypto = require("node:crypto");
const fs = require("node:fs");
const compression = require("compression");
const express = require("express");
const session = require("express-session");
const morgan = require("morgan");

const [port, folder] = process.argv.slice(2);
const TEXT = "<p>All happy families are alike; each unhappy family is unhappy in its own way.</p>\n".repeat(60);
const MINUTE = "public, max-age=60";

const app = express();
const log = fs.createWriteStream(`${folder}/access.log`, { flags: "a" });
app.use(morgan(":method :url :status HTTP/:http-version", { stream: log }));
app.use(compression());
app.use("/static/style.css", express.static(`${folder}/static/style.css`, { maxAge: "1s" }));
app.use("/static", express.static(`${folder}/static`, { maxAge: "1m" }));
app.use(session({ secret: "a secret of tests", resave: false, saveUninitialized: false }));

const page = (request, response) => response.set("Cache-Control", MINUTE).send(`<h1>page</h1>\n${TEXT}`);
const account = (request, response) => response.send(`<h1>user=${request.session.user ?? "nobody"}</h1>\n${TEXT}`);
const later = (milliseconds, handle) => (request, response) =>
  setTimeout(handle, milliseconds(request), request, response);
const seconds = (request) => request.query.seconds * 1000;

app.get("/page", page);
app.get("/article", (request, response) => {
  response.set("Cache-Control", "public, max-age=1").send(`<h1>article</h1>\n${TEXT}`);
});
app.get("/language", (request, response) => {
  const language = request.acceptsLanguages("en", "de") || "en";
  response.set("Cache-Control", MINUTE).vary("Accept-Language").set("Content-Language", language);
  response.send(`<h1>language=${language}</h1>\n${TEXT}`);
});
app.post("/login", express.urlencoded(), (request, response) => {
  request.session.user = request.body.user;
  response.redirect(303, "/account");
});
app.get("/account", account);
app.get("/account/expired", later(() => 700, (request, response) => {
  response.set("Cache-Control", "max-age=0");
  account(request, response);
}));
app.get("/form", (request, response) => {
  let token = request.headers.cookie?.match(/(?:^|;\s*)visitor=([^;]*)/)?.[1];
  if (!token) {
    token = crypto.randomBytes(8).toString("hex");
    response.cookie("visitor", token);
  }
  response.set("Cache-Control", MINUTE).send(`<input value='token=${token}'>\n${TEXT}`);
});
app.get("/until/:moment", (request, response, next) => {
  if (Date.now() / 1000 >= request.params.moment) return next();
  response.set("Cache-Control", "public, max-age=1").send(`<h1>still here</h1>\n${TEXT}`);
});
app.get("/gone", (request, response) => response.sendStatus(410));
app.get("/forbidden", (request, response) => response.sendStatus(403));
app.get("/error", () => {
  throw new Error("an error of the application");
});
app.get("/old", (request, response) => response.redirect("/page"));
app.get("/slow", later(seconds, page));
app.get("/report", later(seconds, (request, response) => {
  response.set("Cache-Control", "no-store");
  account(request, response);
}));
app.all("/echo", express.raw({ type: () => true, limit: "8mb" }), (request, response) => {
  const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
  const sum = body.reduce((sum, byte) => (sum + byte) >>> 0, 0);
  response.set("Cache-Control", "no-store").send(`method=${request.method} length=${body.length} sum=${sum}\n`);
});

const server = app.listen(port, "127.0.0.1");
server.keepAliveTimeout = 1000;
server.maxRequestsPerSocket = 10;
