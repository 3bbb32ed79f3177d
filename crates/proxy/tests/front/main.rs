//! The front, in real bytes on the loopback.

mod corpus;
mod drain;
mod http1;
mod http2;
mod limits;
mod support;
mod timeouts;
mod tls;
