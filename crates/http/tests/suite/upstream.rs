//! Connections to origins, with real bytes.

mod connections;
mod descriptors;
mod endpoints;
mod faults;
mod http2;
mod nginx;
mod requests;
mod reuse;
mod support;
