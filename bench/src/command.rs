//! `make bench`: runs benches in sittings, keeps a record of each, and writes RESULTS.md.

pub mod fold;
pub mod machine;
pub mod options;
pub mod plot;
pub mod record;
pub mod report;
pub mod runner;
