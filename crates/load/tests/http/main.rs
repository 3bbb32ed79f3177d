//! Loads against servers of bytes, on free ports of this machine: what they do and what is told of them.

#![expect(clippy::disallowed_methods, reason = "servers of the tests, and how long things really take")]

mod faults;
mod http2;
mod pacing;
mod requests;
mod stub;
