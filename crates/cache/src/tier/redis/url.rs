//! The URL of a Redis tier.

use std::{fmt, fs, str::FromStr, time::Duration};

use ::redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, TlsCertificates};
use stockade_model::{
    nearest::remedy,
    units::{format_duration, parse_duration},
};

use super::envelope::VALUE_BYTES_MAX;

/// An invalid URL. The message does not contain it: it may have a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("redis: {0}")]
pub struct RedisUrlError(String);

/// The address and settings of a [`RedisTier`](super::RedisTier). Displayed without secrets.
#[derive(Clone)]
pub struct RedisUrl {
    pub(super) servers: Servers,
    /// Trusted certificates in PEM.
    pub(super) ca: Option<Vec<u8>>,
    /// Without secrets.
    shown: String,
    /// The prefix of all names.
    pub(super) prefix: String,
    pub(super) timeout: Duration,
    pub(super) lease: Duration,
    /// The length of the longest value that is read.
    pub(super) value_bytes_max: u64,
}

#[derive(Clone)]
pub(super) enum Servers {
    One(Box<ConnectionInfo>),
    Cluster(Vec<ConnectionInfo>),
}

const SETTINGS: [&str; 4] = ["ca", "lease", "prefix", "timeout"];

fn wrong(what: impl Into<String>) -> RedisUrlError {
    RedisUrlError(what.into())
}

impl FromStr for RedisUrl {
    type Err = RedisUrlError;

    fn from_str(url: &str) -> Result<Self, RedisUrlError> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("write `redis://` and a host"))?;
        let (is_cluster, is_tls) = match scheme {
            "redis" | "valkey" => (false, false),
            "rediss" | "valkeys" => (false, true),
            "redis+cluster" | "valkey+cluster" => (true, false),
            "rediss+cluster" | "valkeys+cluster" => (true, true),
            _ => return Err(wrong("a URL begins with redis://, rediss:// or redis+cluster://")),
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        if query.contains('@') {
            return Err(wrong("the query has an `@`: write a `?` in a password as %3F"));
        }
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        let (userinfo, hosts) = match authority.rsplit_once('@') {
            Some((userinfo, hosts)) => (format!("{userinfo}@"), hosts),
            None => (String::new(), authority),
        };
        if hosts.is_empty() {
            return Err(wrong("the URL has no host"));
        }
        if database.contains('@') {
            return Err(wrong("the path has an `@`: write a `/` in a password as %2F"));
        }
        let tls = if is_tls { "rediss" } else { "redis" };
        let server = |host: &str| -> Result<ConnectionInfo, RedisUrlError> {
            // The driver's message might contain the URL.
            let server = format!("{tls}://{userinfo}{host}/{database}").into_connection_info();
            let server = server.map_err(|_| wrong("write redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]"))?;
            let settings = server.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
            Ok(server.set_redis_settings(settings))
        };
        let servers = if is_cluster {
            if !database.is_empty() {
                return Err(wrong("a cluster has no databases: remove the path"));
            }
            Servers::Cluster(hosts.split(',').map(server).collect::<Result<_, _>>()?)
        } else {
            Servers::One(Box::new(server(hosts)?))
        };
        let slash = if database.is_empty() { "" } else { "/" };
        let mut read = Self {
            servers,
            ca: None,
            shown: format!("{scheme}://{hosts}{slash}{database}"),
            prefix: "stockade".to_owned(),
            timeout: Duration::from_millis(100),
            lease: Duration::from_secs(2),
            value_bytes_max: VALUE_BYTES_MAX as u64,
        };
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            read.set(name, value)?;
        }
        Ok(read)
    }
}

impl RedisUrl {
    /// In a cluster one server may be down while others are up.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Cluster(_))
    }

    pub(super) fn is_tls(&self) -> bool {
        let is_tls = |server: &ConnectionInfo| matches!(server.addr(), ConnectionAddr::TcpTls { .. });
        match &self.servers {
            Servers::One(server) => is_tls(server),
            Servers::Cluster(servers) => servers.iter().any(is_tls),
        }
    }

    /// The trusted certificates, as the driver takes them.
    pub(super) fn certificates(&self) -> Option<TlsCertificates> {
        let root_cert = Some(self.ca.clone()?);
        Some(TlsCertificates { client_tls: None, root_cert })
    }

    /// Replaces the length of the longest value that is read, 64 MiB. A server that announces a longer one, and 16 MiB of other data, is
    /// disconnected, so that it cannot fill the memory of its clients.
    #[must_use]
    pub fn with_value_bytes_max(self, value_bytes_max: u64) -> Self {
        Self { value_bytes_max, ..self }
    }

    /// Replaces the `prefix`.
    #[must_use]
    pub fn with_prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), RedisUrlError> {
        let duration = |least: Duration| match parse_duration(value) {
            Ok(duration) if duration >= least => Ok(duration),
            Ok(_) => Err(wrong(format!("`{name}` has to be at least {}", format_duration(least)))),
            Err(error) => Err(wrong(format!("`{name}`: {error}"))),
        };
        match name {
            "ca" => {
                let unreadable = |error| wrong(format!("cannot read the certificates in {value}: {error}"));
                self.ca = Some(fs::read(value).map_err(unreadable)?);
            }
            "lease" => self.lease = duration(Duration::from_millis(100))?,
            "prefix" if value.is_empty() => return Err(wrong("`prefix` is empty: write a name")),
            "prefix" => value.clone_into(&mut self.prefix),
            "timeout" => self.timeout = duration(Duration::from_millis(1))?,
            _ => return Err(wrong(format!("unknown parameter `{name}`: {}", remedy(name, SETTINGS)))),
        }
        Ok(())
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displayed_url_has_no_secret() {
        for (url, shown) in [
            ("redis://ada:secret@host:1/2?prefix=people", "redis://host:1/2"),
            ("rediss://:secret@host", "rediss://host"),
            ("valkey+cluster://:secret@a:1,b:2?lease=1s", "valkey+cluster://a:1,b:2"),
        ] {
            let url: RedisUrl = url.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((url.to_string().as_str(), format!("{url:?}").as_str()), (shown, shown));
        }
    }

    #[test]
    fn url_errors_do_not_contain_the_url() {
        for (url, expected) in [
            ("secret", "redis: write `redis://` and a host"),
            ("http://secret@host", "redis: a URL begins with redis://, rediss:// or redis+cluster://"),
            ("redis://:secret@", "redis: the URL has no host"),
            ("redis://:sec?ret@host", "redis: the query has an `@`: write a `?` in a password as %3F"),
            ("redis://:sec/ret@host", "redis: the path has an `@`: write a `/` in a password as %2F"),
            ("redis://:secret@host:port", "redis: write redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]"),
            ("redis://:secret@host/people", "redis: write redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]"),
            ("redis+cluster://:secret@host/1", "redis: a cluster has no databases: remove the path"),
            ("redis://host?timeout=5", "redis: `timeout`: `5` has no unit: write `5ms` or `5s`"),
            ("redis://host?lease=1ms", "redis: `lease` has to be at least 100ms"),
            ("redis://host?leese=1s", "redis: unknown parameter `leese`: did you mean `lease`?"),
            ("redis://host?prefix=", "redis: `prefix` is empty: write a name"),
        ] {
            let error = url.parse::<RedisUrl>().err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), Some(expected));
        }
        let error =
            "redis://host?ca=absent.pem".parse::<RedisUrl>().expect_err("there is no such file").to_string();
        assert!(error.starts_with("redis: cannot read the certificates in absent.pem: "), "{error}");
    }
}
