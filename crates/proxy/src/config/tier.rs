//! Where a tier is that nodes share.

use std::{fmt, str::FromStr};

use schemars::{Schema, json_schema};
use stockade_cache::{RedisUrl, RedisUrlError, spec::written::Words};

/// A Redis or Valkey that several proxies share: `redis://HOST:PORT`. Displayed without secrets.
#[derive(Clone)]
pub struct TierUrl {
    /// As it was written: it may hold a secret.
    written: String,
    /// What it means.
    pub redis: RedisUrl,
}

impl FromStr for TierUrl {
    type Err = RedisUrlError;

    fn from_str(url: &str) -> Result<Self, RedisUrlError> {
        Ok(Self { written: url.to_owned(), redis: url.parse()? })
    }
}

impl PartialEq for TierUrl {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl fmt::Display for TierUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.redis.fmt(f)
    }
}

impl fmt::Debug for TierUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Words for TierUrl {
    fn schema() -> Schema {
        json_schema!({ "type": "string", "examples": ["redis://127.0.0.1:6379?timeout=50ms"] })
    }
}
