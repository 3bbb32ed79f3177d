//! The plan beside theory, on workloads with published facts.

mod twitter;
