//! The frontend, in real bytes on the loopback.

mod corpus;
mod descriptors;
mod drain;
mod http1;
mod http2;
mod limits;
mod support;
mod timeouts;
mod tls;
