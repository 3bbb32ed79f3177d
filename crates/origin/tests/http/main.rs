//! An origin on a port of the loopback, asked in bytes.
#![expect(clippy::disallowed_methods, reason = "a client's patience and a server's latency are real")]

mod admin;
mod answers;
mod bounds;
mod clock;
mod content;
mod encrypted;
mod faults;
mod load;
mod recipes;
mod support;
