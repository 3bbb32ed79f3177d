//! What a proxy is told: a file, or flags, become what they mean, once, before anything listens.
//!
//! ```text
//! stockade.toml -- file: as it is written --+-- read ---> Config --+-- shown: without secrets
//! flags ------- laid over it ---------------+                      +-- diff: what a reload cannot change
//! ```
//!
//! [`Config`] is plain data: times are [`Duration`]s, sizes are bytes, a strategy is a
//! [`Strategy`](stockade_cache::Strategy). `[cache]` is the block of an experiment file, read by the same code
//! ([`stockade_cache::spec`]), so that the strategy that won can be copied over.
//!
//! ```
//! use stockade_proxy::config::Config;
//!
//! let file = r#"
//!     [cache]
//!     strategy = "swr"
//!     limit = { bytes = "512MiB" }
//!
//!     [[origin]]
//!     name = "app"
//!     url = "http://127.0.0.1:9000"
//! "#;
//! let config = Config::parse("stockade.toml", file).expect("a sound file");
//! let route = config.route("example.org", "/any").expect("the only origin has every path");
//! assert_eq!(config.origins[route.origin].name, "app");
//! ```

mod diff;
mod error;
mod file;
mod flags;
mod origin;
mod read;
mod route;
mod schema;
mod shown;
mod tier;

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf, time::Duration};

use stockade_cache::Limit;

pub use self::{
    diff::{Change, diff},
    error::{ConfigError, FileError},
    flags::{FlagError, Flags},
    origin::{Health, HostHeader, HttpOrigin, Kind, Origin, OriginTimeouts, Probe},
    route::{HostPattern, NamePattern, PathPattern, Route},
    schema::schema,
    tier::TierUrl,
};

/// Everything that a proxy is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where clients come in; one at least.
    pub listen: Vec<SocketAddr>,
    /// How many threads serve; `None`: one for each core.
    pub threads: Option<NonZeroUsize>,
    /// Who it says it is, where connections are encrypted.
    pub tls: Option<Tls>,
    /// Where whoever runs it comes in; `None`: nowhere.
    pub admin: Option<Admin>,
    /// Which names are answered; none: all of them.
    pub hosts: Vec<HostPattern>,
    /// How much all routes together may hold.
    pub limit: Limit,
    /// Where the tier is that nodes share, under the memory of this one; `None`: there is none.
    pub shared: Option<TierUrl>,
    /// What is written of each request; `None`: nothing.
    pub log: Option<Log>,
    /// How long clients may take.
    pub timeouts: Timeouts,
    /// How much clients may ask for.
    pub bounds: Bounds,
    /// Where answers come from; one at least.
    pub origins: Vec<Origin>,
    /// Which requests go where, in the order in which they are to be tried: see [`Config::route`].
    pub routes: Vec<Route>,
}

/// A certificate and its key, in files of PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate, and those that vouch for it.
    pub certificates: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// Where whoever runs the proxy comes in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// On the loopback, or there is a token.
    pub listen: SocketAddr,
    /// The file with the token that requests have to show.
    pub token_file: Option<PathBuf>,
    /// Names that it answers to, beside those of the loopback.
    pub hosts: Vec<String>,
}

/// What is written of each request, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// In which words.
    pub format: Format,
    /// To which file; `None`: to standard output.
    pub path: Option<PathBuf>,
}

/// How a request is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line.
    Json,
    /// Apache's Combined Log Format, and what the cache did and how long it took after it.
    Combined,
}

/// How long clients may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the head of a request is there, from its first byte or the connection's beginning.
    pub head: Duration,
    /// Between two parts of a request's body.
    pub body: Duration,
    /// Between two parts of an answer that a client reads.
    pub write: Duration,
    /// Between two requests of one connection.
    pub idle: Duration,
    /// For a request altogether; `None`: as long as it goes on.
    pub total: Option<Duration>,
    /// For what is under way when the proxy stops.
    pub drain: Duration,
}

/// How much clients may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes in the head of a request.
    pub head_bytes: usize,
    /// Headers of a request.
    pub headers: usize,
    /// Bytes in the body of a request.
    pub body_bytes: usize,
    /// Connections at once.
    pub connections: usize,
    /// Requests of one HTTP/2 connection at once.
    pub streams: usize,
}

impl Default for Timeouts {
    /// Those of nginx and Varnish, where they are neither for ever nor hasty.
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            write: Duration::from_secs(30),
            idle: Duration::from_mins(1),
            total: None,
            drain: Duration::from_secs(30),
        }
    }
}

impl Default for Bounds {
    /// Enough for whatever browsers send.
    fn default() -> Self {
        Self { head_bytes: 64 << 10, headers: 100, body_bytes: 64 << 20, connections: 10_000, streams: 250 }
    }
}

#[cfg(test)]
mod tests;
