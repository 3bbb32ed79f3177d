//! Connections of clients and connections to origins, in real bytes.

mod frontend;
mod upstream;
