//! Servers that a run starts for itself, and that are gone with it.
//!
//! A URL that names no server means one of these: `redis:`, `postgres:?table=people`. It is started when somebody asks for
//! it first.

use std::{borrow::Cow, cell::OnceCell};

use serde::Deserialize;
use stockade_services::{MongoDb, Postgres, Redis, ServiceError};

/// A server that a run can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    /// Redis, without persistence.
    Redis,
    /// PostgreSQL.
    Postgres,
    /// What speaks MongoDB's protocol.
    MongoDb,
}

impl Service {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Redis, Self::Postgres, Self::MongoDb];

    /// As files have it: the scheme of its URLs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Postgres => "postgres",
            Self::MongoDb => "mongodb",
        }
    }

    /// The service that a URL means which names no server, and how it goes on: with nothing, or with a `?`.
    ///
    /// ```
    /// use stockade_lab::services::Service;
    ///
    /// assert_eq!(Service::meant_by("postgres:?table=people"), Some((Service::Postgres, "?table=people")));
    /// assert_eq!(Service::meant_by("postgres://ada@host/db"), None);
    /// ```
    #[must_use]
    pub fn meant_by(url: &str) -> Option<(Self, &str)> {
        let (scheme, rest) = url.split_once(':')?;
        let service = Self::ALL.into_iter().find(|service| service.name() == scheme)?;
        (rest.is_empty() || rest.starts_with('?')).then_some((service, rest))
    }
}

/// Those that have been started. Dropped, they are gone.
#[derive(Debug, Default)]
pub struct Services {
    redis: OnceCell<Redis>,
    postgres: OnceCell<Postgres>,
    mongodb: OnceCell<MongoDb>,
}

impl Services {
    /// Where a service is: started, if it was not.
    pub fn url(&self, service: Service) -> Result<String, ServiceError> {
        Ok(match service {
            Service::Redis => started(&self.redis, Redis::start)?.url(),
            Service::Postgres => started(&self.postgres, Postgres::start)?.url(),
            Service::MongoDb => started(&self.mongodb, MongoDb::start)?.url(),
        })
    }

    /// A URL with its server in it.
    pub fn at<'u>(&self, url: &'u str) -> Result<Cow<'u, str>, ServiceError> {
        Ok(match Service::meant_by(url) {
            Some((service, rest)) => format!("{}{rest}", self.url(service)?).into(),
            None => url.into(),
        })
    }
}

fn started<S>(cell: &OnceCell<S>, start: fn() -> Result<S, ServiceError>) -> Result<&S, ServiceError> {
    let server = if cell.get().is_none() { Some(start()?) } else { None };
    Ok(cell.get_or_init(|| server.expect("it was started, or is there")))
}
