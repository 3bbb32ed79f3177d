//! HTTP for the clients and servers of this workspace.
//!
//! | module | contents | feature |
//! |---|---|---|
//! | [`byte_range`] | `Range` and `Content-Range` (RFC 9110, 14) | |
//! | `client` | a small client: one request at a time, and its whole reply | `client` |
//! | `guard` | requests for the operator's pages that a page of another site may have sent | `guard` |
//! | [`location`] | references such as `Location` (RFC 3986, 5.2) | |
//! | `port` | ports on which several threads listen | `port` |
//! | `server` | a small server, for pages and figures | `server` |
//! | `tls` | the certificates that a client accepts | `tls` |
//!
//! Those without a feature have no dependencies.

#![allow(missing_docs, reason = "used by this workspace alone; a comment states what a name cannot")]

pub mod byte_range;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "guard")]
pub mod guard;
pub mod location;
#[cfg(feature = "port")]
pub mod port;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "tls")]
pub mod tls;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Examples;
