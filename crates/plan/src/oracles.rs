//! The plan compared with theory and with other simulators, on published traces and facts.

mod traces;
mod twitter;
