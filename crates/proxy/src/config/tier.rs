//! The URL of a shared tier.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};
use stockade_cache::{RedisUrl, RedisUrlError};

/// A Redis or Valkey that several proxies share: `redis://HOST:PORT`. Displayed without secrets.
#[derive(Clone)]
pub struct SharedTierUrl {
    /// May contain a secret.
    written: String,
    pub redis: RedisUrl,
}

impl FromStr for SharedTierUrl {
    type Err = RedisUrlError;

    fn from_str(url: &str) -> Result<Self, RedisUrlError> {
        Ok(Self { written: url.to_owned(), redis: url.parse()? })
    }
}

impl PartialEq for SharedTierUrl {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl fmt::Display for SharedTierUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.redis.fmt(f)
    }
}

impl fmt::Debug for SharedTierUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for SharedTierUrl {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(feature = "schema")]
impl stockade_cache::spec::value::TextSchema for SharedTierUrl {
    fn schema() -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "examples": ["redis://127.0.0.1:6379?timeout=50ms"] })
    }
}
