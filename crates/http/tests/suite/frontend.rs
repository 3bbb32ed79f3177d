//! The frontend, over loopback connections.

mod corpus;
mod descriptors;
mod drain;
mod http1;
mod http2;
mod limits;
mod slow_clients;
mod support;
mod timeouts;
mod tls;
