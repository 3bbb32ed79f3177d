//! A MongoDB collection with one document for each key, read through the official driver.

mod collection;
mod error;
mod fill;
mod json;
mod key;
mod url;

use std::{convert::Infallible, sync::Arc, time::Duration};

use mongodb::{
    Client,
    options::{ClientOptions, ConnectionString},
};
use stockade_model::{
    source::{Document, Source, SourceError, SourceFuture},
    time::{Live, Runtime, before},
};
use tokio::sync::{Semaphore, oneshot};

use crate::{OpenError, OpenFuture, SourceKind, SourceLocation, documents::NamedDocument, remote::Remote};
use collection::MongoDbCollection;
use error::{MongoDbError, ServerMonitor};

use url::parse;

pub(crate) const fn kind(schemes: &'static [&'static str]) -> SourceKind {
    SourceKind {
        schemes,
        form: "mongodb://USER@HOST/DATABASE",
        summary: "a MongoDB collection, in extended JSON",
        is_simulated: false,
        parse,
    }
}

/// The name in the server's list of connections.
const APPLICATION: &str = "stockade";

/// Time limit of a query after the caller's timeout. Within it the driver's monitors, which check every ten
/// seconds, detect an unreachable server, and a reachable server has stopped the query.
const ABANDONED_QUERY_MAX: Duration = Duration::from_mins(1);

/// The process drops its sources and ends its runtime within this time.
const END_DELAY: Duration = Duration::from_secs(1);

/// The reason of all later requests' failures.
const RUNTIME_ENDED: &str = "the runtime that it was opened on has ended";

struct MongoDbLocation {
    remote: Arc<Remote>,
    /// For the driver. Contains the password.
    connection: ConnectionString,
    database: String,
    collection: String,
    key: String,
    connections: u32,
    timeout: Duration,
}

/// A collection with as many permits as connections. A request that waits for a permit can be cancelled; a request with
/// a permit runs to its end. The driver's own queue keeps cancelled requests, and each of them blocks the next one until
/// another event.
struct MongoDbSource {
    collection: Arc<MongoDbCollection>,
    permits: Arc<Semaphore>,
}

impl SourceLocation for MongoDbLocation {
    fn open(&self) -> OpenFuture<'_> {
        Box::pin(async {
            let source = self.connect().await?;
            source.collection.check().await?;
            Ok::<Arc<dyn Source>, _>(Arc::new(source))
        })
    }

    fn fill<'a>(&'a self, documents: &'a [NamedDocument]) -> OpenFuture<'a> {
        Box::pin(async {
            if self.key != "_id" {
                return Err(self.remote.invalid("--docs-from fills it by `_id`: leave `key` out"));
            }
            let source = self.connect().await?;
            source.collection.fill(documents).await?;
            Ok::<Arc<dyn Source>, _>(Arc::new(source))
        })
    }
}

impl std::fmt::Display for MongoDbLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.remote.fmt(f)
    }
}

impl MongoDbLocation {
    /// Connects, and fails as soon as all servers are unreachable. After the opening, a server may return.
    async fn connect(&self) -> Result<MongoDbSource, OpenError> {
        let time = Live::new();
        let open_error = |error: MongoDbError| self.remote.unusable(error.open_message(self.timeout));
        // The scheme `mongodb+srv` looks servers up in DNS.
        let resolving = ClientOptions::parse(self.connection.clone());
        let resolved = before(&time, time.now() + self.timeout, resolving.into_future()).await;
        let mut options = resolved
            .ok_or_else(|| open_error(MongoDbError::NoResponse))?
            .map_err(|error| open_error((&error).into()))?;
        options.app_name.get_or_insert_with(|| APPLICATION.to_owned());
        options.connect_timeout.get_or_insert(self.timeout);
        options.server_selection_timeout.get_or_insert(self.timeout);
        let permits = match *options.max_pool_size.get_or_insert(self.connections) {
            // The driver's form of "unlimited".
            0 => Semaphore::MAX_PERMITS,
            connections => usize::try_from(connections).unwrap_or(Semaphore::MAX_PERMITS),
        };
        let monitor = ServerMonitor::install(&mut options);
        let client = Client::with_options(options).map_err(|error| open_error((&error).into()))?;
        let (open, closed) = oneshot::channel();
        time.spawn(end_after_close(client.clone(), closed, time.clone()));
        let database = client.database(&self.database);
        let collection = MongoDbCollection {
            remote: Arc::clone(&self.remote),
            documents: database.collection(&self.collection),
            database,
            key: self.key.clone(),
            time,
            timeout: self.timeout,
            monitor,
            _open: open,
        };
        collection.await_server().await.map_err(open_error)?;
        Ok(MongoDbSource { collection: Arc::new(collection), permits: Arc::new(Semaphore::new(permits)) })
    }
}

/// Ends the sessions and connections a moment after the collection was dropped, and not at all if the runtime ends
/// before. The driver ends its sessions at once when the last client is dropped, in a task that panics if the runtime
/// ends meanwhile (mongodb 3.9.1).
async fn end_after_close(client: Client, closed: oneshot::Receiver<Infallible>, time: Live) {
    let _ = closed.await;
    time.sleep_until(time.now() + END_DELAY).await;
    client.shutdown().immediate(true).await;
}

impl MongoDbSource {
    /// Waits for a permit, then sends the request on the runtime of the connections, and waits for the reply, at most
    /// the timeout together.
    async fn run<T, F>(
        &self,
        query: impl FnOnce(Arc<MongoDbCollection>) -> F + Send,
    ) -> Result<T, SourceError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, MongoDbError>> + Send + 'static,
    {
        let collection = &self.collection;
        let time = &collection.time;
        let until = time.now() + collection.timeout;
        let answer = before(time, until, async {
            let permit = Arc::clone(&self.permits).acquire_owned().await.ok()?;
            let (sender, receiver) = oneshot::channel();
            let (query, time) = (query(Arc::clone(collection)), time.clone());
            collection.time.spawn(async move {
                if let Some(answer) = before(&time, until + ABANDONED_QUERY_MAX, query).await {
                    // An error means that the caller was dropped.
                    let _ = sender.send(answer);
                }
                drop(permit);
            });
            receiver.await.ok()
        });
        let answer = match answer.await {
            Some(Some(answer)) => answer,
            Some(None) => Err(MongoDbError::Message(RUNTIME_ENDED.to_owned())),
            None => Err(collection.monitor.failure()),
        };
        answer.map_err(|error| error.into_source_error(&collection.remote, collection.timeout))
    }
}

impl Source for MongoDbSource {
    fn fetch<'a>(&'a self, id: &'a str) -> SourceFuture<'a, Option<Document>> {
        let query = key::equals(&self.collection.key, id);
        Box::pin(self.run(|collection| async move { collection.find(query).await }))
    }

    fn ids(&self) -> SourceFuture<'_, Vec<Arc<str>>> {
        Box::pin(self.run(|collection| async move { collection.list().await }))
    }
}
