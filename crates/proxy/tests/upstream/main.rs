//! Connections to origins, with real bytes.

mod faults;
mod http2;
mod keeping;
mod places;
mod requests;
mod support;
