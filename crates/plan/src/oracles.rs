//! The plan beside theory and beside other simulators, on published traces and facts.

mod traces;
mod twitter;
