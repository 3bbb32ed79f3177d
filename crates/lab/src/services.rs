//! Servers that a run starts and stops.
//!
//! URLs without an address mean these servers: `redis:`, `postgres:?table=people`. A server is started on first use.

use std::{borrow::Cow, cell::OnceCell};

use serde::Deserialize;
use stockade_services::{MongoDbServer, PostgresServer, RedisServer, ServiceError};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunService {
    /// Without persistence.
    Redis,
    Postgres,
    /// A server of MongoDB's protocol.
    MongoDb,
}

impl RunService {
    pub const ALL: [Self; 3] = [Self::Redis, Self::Postgres, Self::MongoDb];

    /// The scheme of its URLs in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Postgres => "postgres",
            Self::MongoDb => "mongodb",
        }
    }

    /// The service of a URL without an address, and the rest of the URL: empty, or beginning with `?`.
    ///
    /// ```
    /// use stockade_lab::services::RunService;
    ///
    /// assert_eq!(RunService::from_url("postgres:?table=people"), Some((RunService::Postgres, "?table=people")));
    /// assert_eq!(RunService::from_url("postgres://ada@host/db"), None);
    /// ```
    #[must_use]
    pub fn from_url(url: &str) -> Option<(Self, &str)> {
        let (scheme, rest) = url.split_once(':')?;
        let service = Self::ALL.into_iter().find(|service| service.name() == scheme)?;
        (rest.is_empty() || rest.starts_with('?')).then_some((service, rest))
    }
}

/// The servers that run. They stop on drop.
#[derive(Debug, Default)]
pub struct Services {
    redis: OnceCell<RedisServer>,
    postgres: OnceCell<PostgresServer>,
    mongodb: OnceCell<MongoDbServer>,
}

impl Services {
    /// The URL of a service, which is started on first use.
    pub fn url(&self, service: RunService) -> Result<String, ServiceError> {
        Ok(match service {
            RunService::Redis => started(&self.redis, RedisServer::start)?.url(),
            RunService::Postgres => started(&self.postgres, PostgresServer::start)?.url(),
            RunService::MongoDb => started(&self.mongodb, MongoDbServer::start)?.url(),
        })
    }

    /// Replaces a URL without an address by that of the running server.
    pub fn resolve<'u>(&self, url: &'u str) -> Result<Cow<'u, str>, ServiceError> {
        Ok(match RunService::from_url(url) {
            Some((service, rest)) => format!("{}{rest}", self.url(service)?).into(),
            None => url.into(),
        })
    }
}

fn started<S>(cell: &OnceCell<S>, start: fn() -> Result<S, ServiceError>) -> Result<&S, ServiceError> {
    let server = if cell.get().is_none() { Some(start()?) } else { None };
    Ok(cell.get_or_init(|| server.expect("either set before or started above")))
}
