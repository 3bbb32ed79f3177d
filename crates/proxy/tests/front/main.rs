//! The front, in real bytes on the loopback.

mod http1;
mod support;
