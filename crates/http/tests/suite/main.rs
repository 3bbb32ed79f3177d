//! Servers and clients in real bytes.

mod client;
mod frontend;
mod server;
mod upstream;
