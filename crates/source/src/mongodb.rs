//! A MongoDB collection: one document a key, read through the official driver.

mod fill;
mod json;
mod key;
mod trouble;
mod url;

use std::{sync::Arc, time::Duration};

use bson::{RawDocumentBuf, doc};
use mongodb::{
    Client, Collection, Database,
    options::{ClientOptions, ConnectionString},
};
use stockade_model::{
    nearest::remedy,
    source::{Document, Source, SourceFuture},
    time::{Live, Runtime, before},
};
use tokio::runtime::Handle;

use crate::{OpenError, Opening, Place, documents::NamedDocument, remote::Remote};
use trouble::{Pulse, Trouble};

pub(crate) use url::read;

/// What other programs see of us in the server's list of connections.
const APPLICATION: &str = "stockade";

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

/// A collection, and the connections to its server.
struct MongoDb {
    remote: Arc<Remote>,
    database: Database,
    documents: Collection<RawDocumentBuf>,
    key: String,
    time: Live,
    timeout: Duration,
    pulse: Pulse,
}

impl Place for Address {
    fn open(&self) -> Opening<'_> {
        Box::pin(async {
            let source = self.connect().await?;
            source.check().await?;
            Ok::<Arc<dyn Source>, _>(Arc::new(source))
        })
    }

    fn fill<'a>(&'a self, documents: &'a [NamedDocument]) -> Opening<'a> {
        Box::pin(async {
            if self.key != "_id" {
                return Err(self.remote.wrong("--docs-from fills it by `_id`: leave `key` out"));
            }
            let source = self.connect().await?;
            source.fill(documents).await?;
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
        let time = Live::on(Handle::current());
        let refused = |trouble: Trouble| self.remote.unusable(trouble.told(self.timeout));
        // Servers may be listed in the name service.
        let resolving = ClientOptions::parse(self.connection.clone());
        let resolved = before(&time, time.now() + self.timeout, resolving.into_future()).await;
        let mut options =
            resolved.ok_or_else(|| refused(Trouble::Silent))?.map_err(|error| refused((&error).into()))?;
        options.app_name.get_or_insert_with(|| APPLICATION.to_owned());
        options.max_pool_size.get_or_insert(self.connections);
        options.connect_timeout.get_or_insert(self.timeout);
        options.server_selection_timeout.get_or_insert(self.timeout);
        let pulse = Pulse::taken_with(&mut options);
        let client = Client::with_options(options).map_err(|error| refused((&error).into()))?;
        let database = client.database(&self.database);
        let source = MongoDb {
            remote: Arc::clone(&self.remote),
            documents: database.collection(&self.collection),
            database,
            key: self.key.clone(),
            time,
            timeout: self.timeout,
            pulse,
        };
        source.await_server().await.map_err(refused)?;
        Ok(source)
    }
}

impl MongoDb {
    /// What a question to the server comes to, in the time that there is for it.
    async fn ask<T>(
        &self,
        question: impl IntoFuture<Output = mongodb::error::Result<T>>,
    ) -> Result<T, Trouble> {
        let deadline = self.time.now() + self.timeout;
        match before(&self.time, deadline, question.into_future()).await {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(error)) => Err(self.pulse.explain(&error)),
            None => Err(self.pulse.silence()),
        }
    }

    /// Waits for an answer, or for the news that there is nobody to give one.
    async fn await_server(&self) -> Result<(), Trouble> {
        let ping = self.database.run_command(doc! { "ping": 1 });
        let mut pulse = self.pulse.clone();
        tokio::select! {
            answer = self.ask(ping) => answer.map(drop),
            trouble = pulse.stops() => Err(trouble),
        }
    }

    /// Whether there are documents, before anything is built on them.
    async fn check(&self) -> Result<(), OpenError> {
        let refused = |trouble: Trouble| self.remote.unusable(trouble.told(self.timeout));
        let keyed = doc! { self.key.as_str(): { "$exists": true } };
        if self.ask(self.documents.find_one(keyed)).await.map_err(refused)?.is_some() {
            return Ok(());
        }
        let collections = self.ask(self.database.list_collection_names()).await.map_err(refused)?;
        let name = self.documents.name();
        Err(self.remote.unusable(if collections.is_empty() {
            let database = self.database.name();
            format!(
                "there is no database `{database}`; check its name, or fill it with --docs-from FILE.jsonl"
            )
        } else if !collections.iter().any(|collection| collection == name) {
            let remedy = remedy(name, collections.iter().map(String::as_str));
            format!("it has no collection `{name}`: {remedy} Or fill it with --docs-from FILE.jsonl")
        } else if self.ask(self.documents.find_one(doc! {})).await.map_err(refused)?.is_some() {
            format!("no document has a `{}`; name the field that they are fetched by with key=NAME", self.key)
        } else {
            format!("its collection `{name}` is empty; fill it with --docs-from FILE.jsonl")
        }))
    }
}

impl Source for MongoDb {
    fn fetch<'a>(&'a self, id: &'a str) -> SourceFuture<'a, Option<Document>> {
        Box::pin(async move {
            let found = self.ask(self.documents.find_one(key::equals(&self.key, id))).await;
            let written = found.and_then(|found| found.as_deref().map(json::relaxed).transpose());
            written.map_err(|trouble| trouble.of_source(&self.remote, self.timeout))
        })
    }

    fn ids(&self) -> SourceFuture<'_, Vec<Arc<str>>> {
        Box::pin(async {
            let ids = self.list().await;
            ids.map_err(|trouble| trouble.of_source(&self.remote, self.timeout))
        })
    }
}

impl MongoDb {
    /// The keys of all documents that have one, sorted.
    async fn list(&self) -> Result<Vec<Arc<str>>, Trouble> {
        let key = self.key.as_str();
        let mut projection = doc! { key: 1 };
        if key != "_id" {
            projection.insert("_id", 0);
        }
        let find = self.documents.find(doc! { key: { "$exists": true } }).projection(projection);
        let mut cursor = self.ask(find).await?;
        let mut ids = Vec::new();
        while self.ask(cursor.advance()).await? {
            ids.push(key::text(key, cursor.current())?);
        }
        ids.sort_unstable();
        match ids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Trouble::Said(format!(
                "several documents have the `{key}` `{}`: they must differ",
                pair[0]
            ))),
            None => Ok(ids),
        }
    }
}
