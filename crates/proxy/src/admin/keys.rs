//! `/keys`: the keys that are asked for most, and the slowest loads. Estimates over a sample, with their errors.

use serde::Serialize;

/// Secrets in queries are masked as in the access log.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KeyStats {
    /// A request counts half after this time.
    pub half_life_seconds: f64,
    /// Keys with the most requests, bypassed ones left out; the most frequent first.
    pub hottest: Vec<KeyShare>,
    /// Keys whose requests found no usable response most often; the most frequent first.
    pub most_missed: Vec<KeyShare>,
    /// Of the last ten minutes; the slowest first.
    pub slowest_loads: Vec<SlowLoad>,
}

/// The requests of one key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeyShare {
    /// At most 515 bytes, with `...` at the end of a longer key.
    pub key: String,
    /// Of all requests of the list, from 0 to 1. Not less than the sample's share, and at most `error` more.
    pub share: f64,
    pub error: f64,
    /// Requests a second at this share.
    pub rate: f64,
}

/// One request to an origin.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlowLoad {
    pub key: String,
    /// Until the head of the response, or the failure.
    pub seconds: f64,
    /// When it ended: seconds since 1970.
    pub ended_at: u64,
    /// `None`: there was no response.
    pub status: Option<u16>,
}
