//! The proxy as a whole, with real bytes on both sides.

mod answers;
mod crowds;
mod faults;
mod model;
mod own;
mod poison;
mod support;
