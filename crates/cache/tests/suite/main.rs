//! The cache through its public API.

mod faults;
mod flood;
mod invalidation;
mod leaders;
mod limits;
mod live;
mod observed;
#[cfg(feature = "redis")]
mod redis;
mod refresh;
mod spans;
mod strategies;
mod streaming;
mod turns;
