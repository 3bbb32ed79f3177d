//! HTTP sources on real servers: nginx, CouchDB's protocol, and servers with invalid responses.

mod couchdb;
mod nginx;
mod raw;
mod support;
mod wrong;
