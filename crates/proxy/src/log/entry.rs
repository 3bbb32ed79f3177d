//! A request and what became of it.

use std::{
    net::SocketAddr,
    time::{Duration, SystemTime},
};

use http::Version;
use stockade_model::outcome::Outcome;

/// A request and what became of it. Texts are as the client sent them: the log makes them harmless.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// When its head had arrived.
    pub time: SystemTime,
    /// Who asked.
    pub peer: SocketAddr,
    /// How: `GET`.
    pub method: &'a str,
    /// The `Host` or authority that was asked for.
    pub host: &'a [u8],
    /// Path and query.
    pub target: &'a str,
    /// In which version of HTTP.
    pub version: Version,
    /// The status of the answer.
    pub status: u16,
    /// Bytes of the answer's body that were sent.
    pub sent_bytes: u64,
    /// From the head's arrival to the last byte of the answer.
    pub took: Duration,
    /// What the cache did.
    pub outcome: Outcome,
    /// The answer's `Cache-Status`.
    pub cache_status: &'a [u8],
    /// The name of its route; empty: none had it.
    pub route: &'a str,
    /// What the origin said, if it was asked for this request.
    pub origin: Option<OriginAnswer>,
    /// `User-Agent`, if there was one.
    pub user_agent: Option<&'a [u8]>,
    /// `Referer`, if there was one.
    pub referer: Option<&'a [u8]>,
    /// The answer broke off before its end: the client, the origin or a timeout did it.
    pub is_cut: bool,
}

/// What an origin said to a request.
#[derive(Clone, Copy, Debug)]
pub struct OriginAnswer {
    /// Its status; `None`: it did not answer.
    pub status: Option<u16>,
    /// How long that took, until its head was there or it had failed.
    pub took: Duration,
}

/// `HTTP/1.1`.
pub(super) fn version_name(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}
