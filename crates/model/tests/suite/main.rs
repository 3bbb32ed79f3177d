//! Tests of real, precise and virtual time.

#[cfg(feature = "precise")]
mod precise;
mod virtual_time;
