//! Access logs and cache traces in.
//!
//! ```text
//! file, plain, gzip or zstd -> InputReader -> lines -> a format
//! ```

pub mod common;
pub mod input;
pub mod json;
pub mod request;
pub mod time;

#[cfg(feature = "zstd")]
mod zstd;
