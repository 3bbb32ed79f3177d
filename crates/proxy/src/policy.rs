//! What HTTP says about caching (RFC 9110, 9111, 5861, 9211, 9213). Pure: heads and times in, decisions out.

pub mod accept;
pub mod cache_status;
pub mod conditional;
pub mod date;
pub mod directives;
mod field;
pub mod freshness;
pub mod head;
pub mod hop;
pub mod invalidate;
pub mod key;
pub mod range;
pub mod storable;
#[cfg(test)]
mod testing;
pub mod vary;
