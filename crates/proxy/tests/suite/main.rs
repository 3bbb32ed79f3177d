//! The proxy in real bytes: connections of clients, connections to origins, and both together.

mod published;
mod serve;
