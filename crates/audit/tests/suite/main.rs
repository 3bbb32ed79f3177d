//! The audit against caches with known faults.
#![expect(clippy::disallowed_methods, reason = "a real cache and its origin need real time")]

mod faulty_cache;
mod good_cache;
mod lab;
mod seeded;
mod switches;
