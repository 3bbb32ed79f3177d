//! A MongoDB collection: one document a key, read through the official driver.

mod desk;
mod fill;
mod json;
mod key;
mod trouble;
mod url;

use std::{sync::Arc, time::Duration};

use mongodb::{
    Client,
    options::{ClientOptions, ConnectionString},
};
use stockade_model::{
    source::{Document, Source, SourceError, SourceFuture},
    time::{Live, Runtime, before},
};
use tokio::sync::{Semaphore, oneshot};

use crate::{OpenError, Opening, Place, documents::NamedDocument, remote::Remote};
use desk::Desk;
use trouble::{Pulse, Trouble};

pub(crate) use url::read;

/// What other programs see of us in the server's list of connections.
const APPLICATION: &str = "stockade";

/// How long a question goes on for which nobody waits any more. By then the driver's monitors, which look every ten
/// seconds, have found out that nobody is there, and the server has stopped what took too long.
const AFTERWARDS: Duration = Duration::from_mins(1);

/// Why nothing is asked any more.
const HOMELESS: &str = "the runtime that it was opened on has ended";

/// Where a collection is.
struct Address {
    remote: Arc<Remote>,
    /// What the driver is told. It holds the password.
    connection: ConnectionString,
    database: String,
    collection: String,
    key: String,
    connections: u32,
    timeout: Duration,
}

/// A collection, behind as many turns as there are connections. Whoever waits for a turn may give up; whoever has
/// one asks to the end. The driver has a queue of its own, and keeps those in it who have given up: each holds up
/// the ones behind it until something else happens.
struct MongoDb {
    desk: Arc<Desk>,
    turns: Arc<Semaphore>,
}

impl Place for Address {
    fn open(&self) -> Opening<'_> {
        Box::pin(async {
            let source = self.connect().await?;
            source.desk.check().await?;
            Ok::<Arc<dyn Source>, _>(Arc::new(source))
        })
    }

    fn fill<'a>(&'a self, documents: &'a [NamedDocument]) -> Opening<'a> {
        Box::pin(async {
            if self.key != "_id" {
                return Err(self.remote.wrong("--docs-from fills it by `_id`: leave `key` out"));
            }
            let source = self.connect().await?;
            source.desk.fill(documents).await?;
            Ok::<Arc<dyn Source>, _>(Arc::new(source))
        })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.remote.fmt(f)
    }
}

impl Address {
    /// Connects, and gives up as soon as no server can be reached: later, one may come back.
    async fn connect(&self) -> Result<MongoDb, OpenError> {
        let time = Live::new();
        let refused = |trouble: Trouble| self.remote.unusable(trouble.told(self.timeout));
        // Servers may be listed in the name service.
        let resolving = ClientOptions::parse(self.connection.clone());
        let resolved = before(&time, time.now() + self.timeout, resolving.into_future()).await;
        let mut options =
            resolved.ok_or_else(|| refused(Trouble::Silent))?.map_err(|error| refused((&error).into()))?;
        options.app_name.get_or_insert_with(|| APPLICATION.to_owned());
        options.connect_timeout.get_or_insert(self.timeout);
        options.server_selection_timeout.get_or_insert(self.timeout);
        let turns = match *options.max_pool_size.get_or_insert(self.connections) {
            // As many as anybody wants.
            0 => Semaphore::MAX_PERMITS,
            connections => usize::try_from(connections).unwrap_or(Semaphore::MAX_PERMITS),
        };
        let pulse = Pulse::taken_with(&mut options);
        let client = Client::with_options(options).map_err(|error| refused((&error).into()))?;
        let database = client.database(&self.database);
        let desk = Desk {
            remote: Arc::clone(&self.remote),
            documents: database.collection(&self.collection),
            database,
            key: self.key.clone(),
            time,
            timeout: self.timeout,
            pulse,
        };
        desk.await_server().await.map_err(refused)?;
        Ok(MongoDb { desk: Arc::new(desk), turns: Arc::new(Semaphore::new(turns)) })
    }
}

impl MongoDb {
    /// Asks when there is a turn, on the runtime that the connections live on, and waits for the answer as long as
    /// a fetch may take.
    async fn ask<T, F>(&self, question: impl FnOnce(Arc<Desk>) -> F + Send) -> Result<T, SourceError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Trouble>> + Send + 'static,
    {
        let desk = &self.desk;
        let time = &desk.time;
        let until = time.now() + desk.timeout;
        let answer = before(time, until, async {
            let turn = Arc::clone(&self.turns).acquire_owned().await.ok()?;
            let (tell, told) = oneshot::channel();
            let (question, time) = (question(Arc::clone(desk)), time.clone());
            desk.time.spawn(async move {
                if let Some(answer) = before(&time, until + AFTERWARDS, question).await {
                    // Whoever asked may have gone.
                    let _ = tell.send(answer);
                }
                drop(turn);
            });
            told.await.ok()
        });
        let answer = match answer.await {
            Some(Some(answer)) => answer,
            Some(None) => Err(Trouble::Said(HOMELESS.to_owned())),
            None => Err(desk.pulse.silence()),
        };
        answer.map_err(|trouble| trouble.of_source(&desk.remote, desk.timeout))
    }
}

impl Source for MongoDb {
    fn fetch<'a>(&'a self, id: &'a str) -> SourceFuture<'a, Option<Document>> {
        let query = key::equals(&self.desk.key, id);
        Box::pin(self.ask(|desk| async move { desk.find(query).await }))
    }

    fn ids(&self) -> SourceFuture<'_, Vec<Arc<str>>> {
        Box::pin(self.ask(|desk| async move { desk.list().await }))
    }
}
