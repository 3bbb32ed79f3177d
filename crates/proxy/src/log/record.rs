//! The data of one line of the access log.

use std::{
    net::SocketAddr,
    time::{Duration, SystemTime},
};

use http::Version;
use stockade_model::outcome::Outcome;

/// A request and its response. Texts are as the client sent them: the log escapes them.
#[derive(Clone, Copy, Debug)]
pub struct AccessRecord<'a> {
    /// When the head had arrived.
    pub time: SystemTime,
    /// The client's address.
    pub peer: SocketAddr,
    pub method: &'a str,
    /// The `Host` or authority of the request.
    pub host: &'a [u8],
    /// Path and query.
    pub target: &'a str,
    pub version: Version,
    pub status: u16,
    /// Bytes of the response body that were sent.
    pub sent_bytes: u64,
    /// From the arrival of the head to the last byte of the response.
    pub took: Duration,
    pub outcome: Outcome,
    /// `Cache-Status` of the response.
    pub cache_status: &'a [u8],
    /// The name of the route; empty: no route matched.
    pub route: &'a str,
    /// `None`: this request went to no origin.
    pub origin: Option<OriginResult>,
    /// Why the origin was not asked or did not respond, or the reason why the proxy refused the request.
    pub error: Option<&'a str>,
    pub user_agent: Option<&'a [u8]>,
    pub referer: Option<&'a [u8]>,
    /// The client, the origin or a timeout ended the response early.
    pub is_truncated: bool,
}

/// How an origin responded to a request.
#[derive(Clone, Copy, Debug)]
pub struct OriginResult {
    /// `None`: there was no response.
    pub status: Option<u16>,
    /// Until the head of the response, or the failure.
    pub took: Duration,
}
