//! Loads against raw TCP servers on free local ports.

#![expect(clippy::disallowed_methods, reason = "test servers and bounds against hanging need real time")]

mod addresses;
mod agreement;
mod faults;
mod http2;
mod moves;
mod pacing;
mod requests;
mod seconds;
mod stub;
