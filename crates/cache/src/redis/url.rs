//! Where a Redis is, as its URL says.

use std::{fmt, fs, str::FromStr, sync::Arc, time::Duration};

use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, FromRedisValue, IntoConnectionInfo, ProtocolVersion,
    PushInfo, RedisError, ScriptInvocation, TlsCertificates, Value, aio::MultiplexedConnection,
    cluster::ClusterClientBuilder, cluster_async::ClusterConnection, pipe,
};
use stockade_model::{
    nearest::remedy,
    units::{format_duration, parse_duration},
};

/// A URL cannot be used. It is not shown: it may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("redis: {0}")]
pub struct RedisUrlError(String);

/// Where a [`Redis`](super::Redis) is, and how it is used. Displayed without secrets.
#[derive(Clone)]
pub struct RedisUrl {
    servers: Servers,
    certificates: Option<TlsCertificates>,
    /// Without secrets.
    shown: String,
    /// What every name in it begins with.
    pub(super) prefix: String,
    pub(super) timeout: Duration,
    pub(super) lease: Duration,
}

#[derive(Clone)]
enum Servers {
    One(Box<ConnectionInfo>),
    Cluster(Vec<ConnectionInfo>),
}

/// A connection, or those to the nodes of a cluster. Clones share it.
#[derive(Clone)]
pub(super) struct Link {
    /// Tells it from those before it.
    pub(super) generation: u64,
    wire: Wire,
}

#[derive(Clone)]
enum Wire {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Link {
    /// Runs a script.
    pub(super) async fn invoke<T: FromRedisValue>(
        &self,
        invocation: &ScriptInvocation<'_>,
    ) -> Result<T, RedisError> {
        match self.wire.clone() {
            Wire::One(mut wire) => invocation.invoke_async(&mut wire).await,
            Wire::Cluster(mut wire) => invocation.invoke_async(&mut wire).await,
        }
    }

    /// What is stored under a name. What is of another type counts as absent.
    pub(super) async fn get(&self, name: &[u8]) -> Result<Option<Vec<u8>>, RedisError> {
        let get = Cmd::get(name);
        let stored = match self.wire.clone() {
            Wire::One(mut wire) => get.query_async(&mut wire).await,
            Wire::Cluster(mut wire) => get.query_async(&mut wire).await,
        };
        stored.or_else(
            |error: RedisError| if error.code() == Some("WRONGTYPE") { Ok(None) } else { Err(error) },
        )
    }

    /// Runs commands at once and in their order. All are for names of one server.
    pub(super) async fn run<T: FromRedisValue>(&self, commands: Vec<Cmd>) -> Result<Vec<T>, RedisError> {
        let mut all = pipe();
        for command in commands {
            all.add_command(command);
        }
        match self.wire.clone() {
            Wire::One(mut wire) => all.query_async(&mut wire).await,
            Wire::Cluster(mut wire) => all.query_async(&mut wire).await,
        }
    }

    /// Runs commands that a server may refuse, each for itself: at once, or one after another where names are of
    /// any server of a cluster, and that may be gone. An error is one of the connection.
    pub(super) async fn run_each(&self, commands: Vec<Cmd>) -> Result<(), RedisError> {
        match self.wire.clone() {
            Wire::One(mut wire) if !commands.is_empty() => {
                let mut all = pipe();
                for command in commands {
                    all.add_command(command);
                }
                let _: Vec<Result<Value, RedisError>> = all.ignore_errors().query_async(&mut wire).await?;
            }
            Wire::One(_) => {}
            Wire::Cluster(mut wire) => {
                for command in commands {
                    let _ = command.query_async::<Value>(&mut wire).await;
                }
            }
        }
        Ok(())
    }

    /// Hears what is said on channels.
    pub(super) async fn subscribe(&self, channels: &[String]) -> Result<(), RedisError> {
        match self.wire.clone() {
            Wire::One(mut wire) => wire.subscribe(channels).await,
            Wire::Cluster(mut wire) => wire.subscribe(channels).await,
        }
    }
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
            return Err(wrong("its parameters have an `@`: write a `?` in a password as %3F"));
        }
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        let (userinfo, hosts) = match authority.rsplit_once('@') {
            Some((userinfo, hosts)) => (format!("{userinfo}@"), hosts),
            None => (String::new(), authority),
        };
        if hosts.is_empty() {
            return Err(wrong("it names no host"));
        }
        if database.contains('@') {
            return Err(wrong("its path has an `@`: write a `/` in a password as %2F"));
        }
        let tls = if is_tls { "rediss" } else { "redis" };
        let server = |host: &str| -> Result<ConnectionInfo, RedisUrlError> {
            // What the driver says about a URL may show it.
            let server = format!("{tls}://{userinfo}{host}/{database}").into_connection_info();
            let server = server.map_err(|_| wrong("write redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]"))?;
            let settings = server.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
            Ok(server.set_redis_settings(settings))
        };
        let servers = if is_cluster {
            if !database.is_empty() {
                return Err(wrong("a cluster has no databases: leave out what comes after the hosts"));
            }
            Servers::Cluster(hosts.split(',').map(server).collect::<Result<_, _>>()?)
        } else {
            Servers::One(Box::new(server(hosts)?))
        };
        let slash = if database.is_empty() { "" } else { "/" };
        let mut read = Self {
            servers,
            certificates: None,
            shown: format!("{scheme}://{hosts}{slash}{database}"),
            prefix: "stockade".to_owned(),
            timeout: Duration::from_millis(100),
            lease: Duration::from_secs(2),
        };
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            read.set(name, value)?;
        }
        Ok(read)
    }
}

impl RedisUrl {
    /// Whether a server may be gone while others are there.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Cluster(_))
    }

    /// With another `prefix`.
    #[must_use]
    pub fn with_prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), RedisUrlError> {
        let duration = |least: Duration| match parse_duration(value) {
            Ok(duration) if duration >= least => Ok(duration),
            Ok(_) => Err(wrong(format!("`{name}` has to be {} at least", format_duration(least)))),
            Err(error) => Err(wrong(format!("`{name}`: {error}"))),
        };
        match name {
            "ca" => {
                let unreadable = |error| wrong(format!("cannot read the certificates in {value}: {error}"));
                let root_cert = Some(fs::read(value).map_err(unreadable)?);
                self.certificates = Some(TlsCertificates { client_tls: None, root_cert });
            }
            "lease" => self.lease = duration(Duration::from_millis(100))?,
            "prefix" if value.is_empty() => return Err(wrong("`prefix` is empty: name the cache")),
            "prefix" => value.clone_into(&mut self.prefix),
            "timeout" => self.timeout = duration(Duration::from_millis(1))?,
            _ => return Err(wrong(format!("unknown parameter `{name}`: {}", remedy(name, SETTINGS)))),
        }
        Ok(())
    }

    /// Connects, and has what the server says unasked told.
    pub(super) async fn connect(
        &self,
        generation: u64,
        hear: impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static,
    ) -> Result<Link, RedisError> {
        let hear = Arc::new(hear);
        match &self.servers {
            Servers::One(server) => {
                let client = match &self.certificates {
                    Some(certificates) => Client::build_with_tls((**server).clone(), certificates.clone())?,
                    None => Client::open((**server).clone())?,
                };
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(None)
                    .set_response_timeout(None)
                    .set_push_sender(move |info| hear(info));
                let wire = client.get_multiplexed_async_connection_with_config(&config).await?;
                Ok(Link { generation, wire: Wire::One(wire) })
            }
            Servers::Cluster(servers) => {
                let builder = ClusterClientBuilder::new(servers.clone())
                    .use_protocol(ProtocolVersion::RESP3)
                    .connection_timeout(self.timeout)
                    .response_timeout(self.timeout)
                    .retries(1)
                    .push_sender(move |info| hear(info));
                let builder = match &self.certificates {
                    Some(certificates) => builder.certs(certificates.clone()),
                    None => builder,
                };
                let wire = builder.build()?.get_async_connection().await?;
                Ok(Link { generation, wire: Wire::Cluster(wire) })
            }
        }
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
    fn what_is_shown_has_no_secret() {
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
    fn what_is_wrong_is_told_without_showing_it() {
        for (url, expected) in [
            ("secret", "redis: write `redis://` and a host"),
            ("http://secret@host", "redis: a URL begins with redis://, rediss:// or redis+cluster://"),
            ("redis://:secret@", "redis: it names no host"),
            ("redis://:sec?ret@host", "redis: its parameters have an `@`: write a `?` in a password as %3F"),
            ("redis://:sec/ret@host", "redis: its path has an `@`: write a `/` in a password as %2F"),
            ("redis://:secret@host:port", "redis: write redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]"),
            ("redis://:secret@host/people", "redis: write redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]"),
            (
                "redis+cluster://:secret@host/1",
                "redis: a cluster has no databases: leave out what comes after the hosts",
            ),
            ("redis://host?timeout=5", "redis: `timeout`: `5` has no unit: write `5ms` or `5s`"),
            ("redis://host?lease=1ms", "redis: `lease` has to be 100ms at least"),
            ("redis://host?leese=1s", "redis: unknown parameter `leese`: did you mean `lease`?"),
            ("redis://host?prefix=", "redis: `prefix` is empty: name the cache"),
        ] {
            let error = url.parse::<RedisUrl>().err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), Some(expected));
        }
        let error =
            "redis://host?ca=absent.pem".parse::<RedisUrl>().expect_err("there is no such file").to_string();
        assert!(error.starts_with("redis: cannot read the certificates in absent.pem: "), "{error}");
    }
}
