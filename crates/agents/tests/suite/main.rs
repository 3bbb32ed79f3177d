//! Agents and a coordinator at a real NATS server. The name of the server is in the path of each test: without the server they are
//! skipped.

mod nats;
