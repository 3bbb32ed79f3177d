//! Loads against servers of bytes, on free ports of this machine: what they do and what is told of them.

mod faults;
mod pacing;
mod requests;
mod stub;
