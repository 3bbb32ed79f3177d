//! The engine as the target: bursts of workers against a cache in this process.

mod burst;
mod documents;
mod gate;
mod world;

pub(crate) use burst::cache;
pub use burst::{Burst, Measured, Second};
pub use documents::{Docs, DocsError};
pub use world::{EngineError, Library, Stop, World};
