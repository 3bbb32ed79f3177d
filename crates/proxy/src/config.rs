//! Configuration: a file or flags, parsed and validated once, before anything listens.
//!
//! ```text
//! stockade.toml -- file --------------+-- read: checks what depends --> Config --+-- shown
//! flags -------- override the file ---+   on several settings                   +-- diff: what has changed
//! ```
//!
//! Each table of the file is one type, here and in the file: its fields are read, completed with defaults, and shown. A secret is part
//! of a type that shows none. A strategy is a [`Strategy`](stockade_cache::Strategy). `[cache]` is the block of an experiment file, read by the same code
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
//! let config = Config::parse("stockade.toml", file).expect("a valid file");
//! let route = config.route("example.org", "/any").expect("the default route matches every path");
//! assert_eq!(config.origins[route.origin].name, "app");
//! ```

mod error;
mod file;
mod flags;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod origin;
mod read;
mod route;
mod settings;
mod shadow;
mod tables;
mod tier;
mod value;

pub use self::{
    error::{ConfigError, FileError},
    flags::{FlagError, Flags},
    origin::{HealthTable, OriginConfig, OriginKind, OriginTable, OriginTimeouts},
    route::{
        ClientDirectives, HostPattern, NamePattern, PathPattern, RouteConfig, RouteTable, SetCookie,
        UnsafeInvalidation,
    },
    settings::{Change, Config, RELOADS, Reload, diff},
    shadow::{GhostSize, ShadowConfig},
    tables::{AdminConfig, ClientBounds, ClientTimeouts, LogConfig, LogFormat, SnapshotConfig, TlsFiles},
    tier::SharedTierUrl,
    value::{AdminHost, HeadSize, PlainDuration, PositiveDuration, SocketAddress, Times},
};

/// The JSON schema of the file, draft 2020-12. `docs/proxy.schema.json` is this, pretty-printed.
#[cfg(feature = "schema")]
#[must_use]
pub fn schema() -> serde_json::Value {
    stockade_cache::spec::file_schema::<file::ConfigFile>()
}

#[cfg(test)]
mod tests;
