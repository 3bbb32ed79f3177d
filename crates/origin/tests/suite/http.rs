//! An origin on a port of the loopback, with clients that send and read bytes.
#![expect(clippy::disallowed_methods, reason = "clients and the origin's latencies need real time")]

mod admin;
mod answers;
mod bounds;
mod clock;
mod content;
mod encrypted;
mod faults;
mod load;
mod recipes;
mod script;
mod support;
