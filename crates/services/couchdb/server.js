// PouchDB's CouchDB server, in memory: node server.js PORT [USER PASSWORD]
//
// With a user everybody has to be that one, as where CouchDB requires a valid user; without, all may do everything.
'use strict';

const http = require('http');
const PouchDB = require('pouchdb-core')
  .plugin(require('pouchdb-adapter-memory'))
  .plugin(require('pouchdb-replication')) // the server wraps its methods
  .defaults({ adapter: 'memory' });
const app = require('express-pouchdb')(PouchDB, {
  inMemoryConfig: true,
  logPath: '/dev/null',
  overrideMode: { exclude: ['routes/fauxton', 'routes/replicate', 'replicator'] },
});

const [port, user, password] = process.argv.slice(2);

const server = http.createServer((request, response) => {
  if (user && !request.headers.authorization) {
    response.writeHead(401, { 'Content-Type': 'application/json' });
    response.end('{"error":"unauthorized","reason":"Authentication required."}\n');
    return;
  }
  app(request, response);
});

function listen(error) {
  if (error) throw error;
  server.listen(Number(port), '127.0.0.1');
}

if (user) app.couchConfig.set('admins', user, password, listen);
else listen();
