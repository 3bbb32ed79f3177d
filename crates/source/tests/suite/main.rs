//! Sources on real servers.

#[cfg(feature = "http")]
mod http;
#[cfg(feature = "mongodb")]
mod mongodb;
#[cfg(feature = "postgres")]
mod postgres;
mod sources;
mod staged;
