//! A PostgreSQL table with a column of keys and a column of bodies.
//!
//! A request that waits for a permit can be cancelled. A request with a permit connects and runs to its end. So
//! connections are made even if clients have a shorter timeout, and none is closed because its client has
//! gone.

mod connector;
mod explain;
mod fill;
mod location;
mod table;
mod tls;

use std::{
    future::{Future, ready},
    sync::Arc,
    time::Duration,
};

use connector::{PooledPostgresConnection, PostgresConnector};
use deadpool::managed::{Object, Pool, PoolError};
use explain::{explain, is_invalid_key};
use location::PostgresLocation;
use stockade_model::{
    source::{Document, Source, SourceError, SourceFuture},
    time::{Live, Runtime, Time, before},
};
use table::BodyColumn;
use tokio::sync::{Semaphore, oneshot};
use tokio_postgres::{Error, Row};

use crate::{OpenError, OpenFuture, ParseResult, SourceKind, SourceLocation, documents::NamedDocument};

/// Time limit of a cancel request after a query's timeout.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) const fn kind(schemes: &'static [&'static str]) -> SourceKind {
    SourceKind {
        schemes,
        form: "postgres://USER@HOST/DATABASE",
        summary: "a table of a PostgreSQL database",
        is_simulated: false,
        parse,
    }
}

fn parse(scheme: &str, rest: &str) -> ParseResult {
    Ok(Arc::new(PostgresLocation::read(scheme, rest)?))
}

impl SourceLocation for PostgresLocation {
    fn open(&self) -> OpenFuture<'_> {
        Box::pin(async { Ok::<Arc<dyn Source>, _>(Arc::new(PostgresSource::open(self).await?)) })
    }

    fn fill<'a>(&'a self, documents: &'a [NamedDocument]) -> OpenFuture<'a> {
        Box::pin(async {
            fill::fill(self, documents).await?;
            self.open().await
        })
    }
}

/// A table of documents with a bounded number of connections.
struct PostgresSource {
    pool: Arc<PostgresPool>,
    /// One for each connection.
    permits: Arc<Semaphore>,
    list: String,
}

struct PostgresPool {
    /// Contains no secrets.
    name: String,
    timeout: Duration,
    time: Live,
    pool: Pool<PostgresConnector>,
}

impl PostgresSource {
    async fn open(server: &PostgresLocation) -> Result<Self, OpenError> {
        let (time, tls) = (Live::new(), server.tls()?);
        let (client, mut connection) = server.connect(&time, tls.clone()).await?;
        let queries = connection.run(server.table.queries(&client)).await?;
        let queries = queries.map_err(|reason| server.remote.unusable(reason))?;
        connection.close(client).await;
        let connections = server.remote.connections()?;
        let connector = PostgresConnector::new(server, tls, &queries.find);
        let pool = Pool::builder(connector).max_size(connections).build();
        let pool = pool.map_err(|error| server.remote.unusable(error))?;
        let pool = PostgresPool { name: server.remote.to_string(), timeout: server.timeout, time, pool };
        Ok(Self { pool: Arc::new(pool), permits: Arc::new(Semaphore::new(connections)), list: queries.list })
    }

    /// Waits for a permit, then for the rows, at most the timeout together.
    async fn query<F>(
        &self,
        query: impl FnOnce(&PooledPostgresConnection) -> F + Send + 'static,
    ) -> Result<Vec<Row>, SourceError>
    where
        F: Future<Output = Result<Vec<Row>, Error>> + Send + 'static,
    {
        let pool = &self.pool;
        let until = pool.time.now() + pool.timeout;
        let answer = before(&pool.time, until, async {
            let permit = Arc::clone(&self.permits).acquire_owned().await.ok()?;
            let (sender, receiver) = oneshot::channel();
            let query = Arc::clone(pool).query(query, until, sender);
            pool.time.spawn(async {
                query.await;
                drop(permit);
            });
            receiver.await.ok()
        });
        match answer.await {
            Some(Some(answer)) => answer,
            Some(None) => Err(pool.failed("the runtime that it was opened on has ended")),
            None => Err(pool.timed_out()),
        }
    }
}

impl PostgresPool {
    /// Connecting may take the whole timeout, independent of the wait for the permit.
    async fn query<F>(
        self: Arc<Self>,
        query: impl FnOnce(&PooledPostgresConnection) -> F,
        until: Time,
        sender: oneshot::Sender<Result<Vec<Row>, SourceError>>,
    ) where
        F: Future<Output = Result<Vec<Row>, Error>>,
    {
        let connection = match before(&self.time, self.time.now() + self.timeout, self.pool.get()).await {
            Some(Ok(connection)) => connection,
            Some(Err(PoolError::Backend(error))) => return send(sender, Err(self.failed(explain(&error)))),
            Some(Err(error)) => return send(sender, Err(self.failed(error))),
            None => return send(sender, Err(self.timed_out())),
        };
        if sender.is_closed() {
            return;
        }
        match before(&self.time, until, query(&connection)).await {
            Some(Ok(rows)) => send(sender, Ok(rows)),
            Some(Err(error)) if is_invalid_key(&error) => send(sender, Ok(Vec::new())),
            Some(Err(error)) => {
                drop(Object::take(connection));
                send(sender, Err(self.failed(explain(&error))));
            }
            None => {
                send(sender, Err(self.timed_out()));
                let connection = Object::take(connection);
                let has_stopped =
                    before(&self.time, self.time.now() + CANCEL_TIMEOUT, connection.cancel()).await;
                if has_stopped.is_none_or(|stopped| stopped.is_err()) {
                    connection.abort();
                }
            }
        }
    }

    fn timed_out(&self) -> SourceError {
        SourceError::TimedOut { source_name: self.name.clone(), after: self.timeout }
    }

    fn failed(&self, reason: impl std::fmt::Display) -> SourceError {
        SourceError::Failed { source_name: self.name.clone(), reason: reason.to_string() }
    }
}

/// An error means that the caller was dropped.
fn send<T>(sender: oneshot::Sender<T>, reply: T) {
    let _ = sender.send(reply);
}

impl Source for PostgresSource {
    fn fetch<'a>(&'a self, id: &'a str) -> SourceFuture<'a, Option<Document>> {
        if id.contains('\0') {
            // PostgreSQL's text has no NUL.
            return Box::pin(ready(Ok(None)));
        }
        let id = id.to_owned();
        Box::pin(async move {
            let find = move |connection: &PooledPostgresConnection| connection.find(id);
            match self.query(find).await?.as_slice() {
                [] => Ok(None),
                [row] => match row.try_get(0) {
                    Ok(Some(BodyColumn(body))) => Ok(Some(body)),
                    Ok(None) => Err(self.pool.failed("a document without a body: its column is NULL")),
                    Err(error) => Err(self.pool.failed(explain(&error))),
                },
                _ => Err(self
                    .pool
                    .failed("several rows have this key: name a column without repeats with `key`")),
            }
        })
    }

    fn ids(&self) -> SourceFuture<'_, Vec<Arc<str>>> {
        Box::pin(async {
            let list = self.list.clone();
            let rows = self.query(|connection| connection.list(list)).await?;
            let ids = rows.iter().map(|row| row.try_get::<_, &str>(0).map(Arc::from));
            let mut ids: Vec<_> =
                ids.collect::<Result<_, _>>().map_err(|error| self.pool.failed(explain(&error)))?;
            // The collation of the database may order them in another way.
            ids.sort_unstable();
            Ok(ids)
        })
    }
}
