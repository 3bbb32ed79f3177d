//! Connections to origins, with real bytes.

mod faults;
mod keeping;
mod requests;
mod support;
