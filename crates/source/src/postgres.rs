//! A PostgreSQL database: one table, a column with keys, a column with bodies.
//!
//! Who waits for a turn may give up. Who has one connects and asks to the end, whether or not somebody still waits: so
//! there are connections even where clients give up sooner than one is made, and none is torn down for a client that
//! has gone.

mod connector;
mod explain;
mod fill;
mod server;
mod table;
mod tls;

use std::{
    future::{Future, ready},
    sync::Arc,
    time::Duration,
};

use connector::{Connector, Link};
use deadpool::managed::{Object, Pool, PoolError};
use explain::{explain, is_about_the_key};
use server::Server;
use stockade_model::{
    source::{Document, Source, SourceError, SourceFuture},
    time::{Live, Runtime, Time, before},
};
use table::Body;
use tokio::sync::{Semaphore, oneshot};
use tokio_postgres::{Error, Row};

use crate::{OpenError, Opening, Place, Read, documents::NamedDocument};

/// How long a server is given to stop a query that came to nothing in time.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) fn read(scheme: &str, rest: &str) -> Read {
    Ok(Arc::new(Server::read(scheme, rest)?))
}

impl Place for Server {
    fn open(&self) -> Opening<'_> {
        Box::pin(async { Ok::<Arc<dyn Source>, _>(Arc::new(Postgres::open(self).await?)) })
    }

    fn fill<'a>(&'a self, documents: &'a [NamedDocument]) -> Opening<'a> {
        Box::pin(async {
            fill::fill(self, documents).await?;
            self.open().await
        })
    }
}

/// A table of documents, read over a bounded number of connections.
struct Postgres {
    desk: Arc<Desk>,
    /// One for each connection that there may be.
    turns: Arc<Semaphore>,
    list: String,
}

/// What a turn needs.
struct Desk {
    /// Without secrets.
    name: String,
    timeout: Duration,
    time: Live,
    pool: Pool<Connector>,
}

impl Postgres {
    async fn open(server: &Server) -> Result<Self, OpenError> {
        let (time, tls) = (Live::new(), server.tls()?);
        let (client, mut line) = server.connect(&time, tls.clone()).await?;
        let queries = line.carry(server.table.queries(&client)).await?;
        let queries = queries.map_err(|reason| server.remote.unusable(reason))?;
        line.close(client).await;
        let connections = server.remote.connections()?;
        let connector = Connector::new(server, tls, &queries.find);
        let pool = Pool::builder(connector).max_size(connections).build();
        let pool = pool.map_err(|error| server.remote.unusable(error))?;
        let desk = Desk { name: server.remote.to_string(), timeout: server.timeout, time, pool };
        Ok(Self { desk: Arc::new(desk), turns: Arc::new(Semaphore::new(connections)), list: queries.list })
    }

    /// Asks when there is a turn, and waits for the answer, as long as a fetch may take.
    async fn ask<F>(&self, query: impl FnOnce(&Link) -> F + Send + 'static) -> Result<Vec<Row>, SourceError>
    where
        F: Future<Output = Result<Vec<Row>, Error>> + Send + 'static,
    {
        let desk = &self.desk;
        let until = desk.time.now() + desk.timeout;
        let answer = before(&desk.time, until, async {
            let turn = Arc::clone(&self.turns).acquire_owned().await.ok()?;
            let (tell, told) = oneshot::channel();
            let asked = Arc::clone(desk).ask(query, until, tell);
            desk.time.spawn(async {
                asked.await;
                drop(turn);
            });
            told.await.ok()
        });
        match answer.await {
            Some(Some(answer)) => answer,
            Some(None) => Err(desk.failed("the runtime that it was opened on has ended")),
            None => Err(desk.timed_out()),
        }
    }
}

impl Desk {
    /// Takes a connection and asks. Connecting is given the whole time, however late the turn came.
    async fn ask<F>(
        self: Arc<Self>,
        query: impl FnOnce(&Link) -> F,
        until: Time,
        tell: oneshot::Sender<Result<Vec<Row>, SourceError>>,
    ) where
        F: Future<Output = Result<Vec<Row>, Error>>,
    {
        let link = match before(&self.time, self.time.now() + self.timeout, self.pool.get()).await {
            Some(Ok(link)) => link,
            Some(Err(PoolError::Backend(error))) => return say(tell, Err(self.failed(explain(&error)))),
            Some(Err(error)) => return say(tell, Err(self.failed(error))),
            None => return say(tell, Err(self.timed_out())),
        };
        if tell.is_closed() {
            return;
        }
        match before(&self.time, until, query(&link)).await {
            Some(Ok(rows)) => say(tell, Ok(rows)),
            Some(Err(error)) if is_about_the_key(&error) => say(tell, Ok(Vec::new())),
            Some(Err(error)) => {
                drop(Object::take(link));
                say(tell, Err(self.failed(explain(&error))));
            }
            None => {
                say(tell, Err(self.timed_out()));
                let link = Object::take(link);
                let has_stopped = before(&self.time, self.time.now() + CANCEL_TIMEOUT, link.cancel()).await;
                if has_stopped.is_none_or(|stopped| stopped.is_err()) {
                    link.abort();
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

/// Tells whoever still waits.
fn say<T>(tell: oneshot::Sender<T>, what: T) {
    let _ = tell.send(what);
}

impl Source for Postgres {
    fn fetch<'a>(&'a self, id: &'a str) -> SourceFuture<'a, Option<Document>> {
        if id.contains('\0') {
            // No text has one there.
            return Box::pin(ready(Ok(None)));
        }
        let id = id.to_owned();
        Box::pin(async move {
            let find = move |link: &Link| link.find(id);
            match self.ask(find).await?.as_slice() {
                [] => Ok(None),
                [row] => match row.try_get(0) {
                    Ok(Some(Body(body))) => Ok(Some(body)),
                    Ok(None) => Err(self.desk.failed("a document without a body: NULL is none")),
                    Err(error) => Err(self.desk.failed(explain(&error))),
                },
                _ => Err(self
                    .desk
                    .failed("several rows have this key: name a column without repeats with `key`")),
            }
        })
    }

    fn ids(&self) -> SourceFuture<'_, Vec<Arc<str>>> {
        Box::pin(async {
            let list = self.list.clone();
            let rows = self.ask(|link| link.list(list)).await?;
            let ids = rows.iter().map(|row| row.try_get::<_, &str>(0).map(Arc::from));
            let mut ids: Vec<_> =
                ids.collect::<Result<_, _>>().map_err(|error| self.desk.failed(explain(&error)))?;
            // The database's collation may be any.
            ids.sort_unstable();
            Ok(ids)
        })
    }
}
