//! Sources that speak HTTP, on real servers: nginx, CouchDB's protocol, and such as answer wrongly.
#![cfg(feature = "http")]

mod couchdb;
mod nginx;
mod raw;
mod support;
mod wrong;
