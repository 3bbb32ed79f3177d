//! One load from many machines: agents, a coordinator, one clock, one record.
//!
//! ```text
//! coordinator -- load, share, start --> NATS --> agent: a generator
//!             <-- seconds of its record ------<
//! ```
//!
//! An [agent](serve) waits for loads at a NATS server. A [`Coordinator`] shares a load out: agent `i` of `k` sends the requests whose
//! numbers are `i` modulo `k`, so that all of them together send the requests of one generator, at the same times. It maps the start to
//! the clock of each agent, and merges their seconds. If an agent, the coordinator or the server fails, every agent stops within
//! seconds: each may send only while it hears from the coordinator.
//!
//! NATS carries all messages, since agents then need no open port: they dial out. JetStream, its store of streams, keeps the records, and
//! drops repeated messages. Loads are in its object store.

mod agent;
mod clock;
mod connection;
mod coordinator;
mod rebalance;
mod roster;
#[cfg(test)]
mod tests;
mod wait;
mod wire;

pub use agent::{AgentError, AgentOptions, ServerOptions, serve};
pub use clock::AgentClock;
pub use connection::{
    ConnectionError, ConnectionOptions, Credentials, CredentialsError, NatsUrl, NatsUrlError,
};
pub use coordinator::{Coordinator, CoordinatorError, CoordinatorOptions, Waiting};
pub use stockade_load::generator::CancellationToken;
pub use wire::{AgentInfo, SubjectPrefix, SubjectPrefixError};
