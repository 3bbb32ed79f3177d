//! The proxy in real bytes: connections of clients, connections to origins, and both together.

mod frontend;
mod published;
mod serve;
mod upstream;
