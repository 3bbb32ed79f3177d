//! HTTP for the clients and servers of this workspace.
//!
//! | module | contents | feature |
//! |---|---|---|
//! | `body_file` | the memory of large bodies: extents of a file in memory | `frontend` |
//! | [`byte_range`] | `Range` and `Content-Range` (RFC 9110, 14) | |
//! | `client` | a small client: one request at a time, and its whole reply | `client` |
//! | `field`, `host`, `trusted_proxies` | lists in fields, hosts, proxies that may name the client | `frontend` |
//! | `frontend` | connections of clients, with bounds and timeouts | `frontend` |
//! | `guard` | requests for the operator's pages that a page of another site may have sent | `guard` |
//! | [`location`] | references such as `Location` (RFC 3986, 5.2) | |
//! | `port` | ports on which several threads listen | `port` |
//! | `server` | a small server, for pages and figures | `server` |
//! | `tls` | the certificates that a client accepts | `tls` |
//! | `upstream` | connections to origins: a pool, HTTP/1.1 and HTTP/2 | `upstream` |
//!
//! Those without a feature have no dependencies.

#![allow(missing_docs, reason = "used by this workspace alone; a comment states what a name cannot")]

#[cfg(feature = "frontend")]
pub mod body_file;
pub mod byte_range;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "frontend")]
pub mod field;
#[cfg(feature = "frontend")]
pub mod frontend;
#[cfg(all(feature = "frontend", any(test, fuzzing)))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "guard")]
pub mod guard;
#[cfg(feature = "frontend")]
pub mod host;
pub mod location;
#[cfg(any(feature = "frontend", feature = "upstream"))]
pub mod locks;
#[cfg(feature = "port")]
pub mod port;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(feature = "frontend")]
pub mod trusted_proxies;
#[cfg(feature = "upstream")]
pub mod upstream;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Examples;
