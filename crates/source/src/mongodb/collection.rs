//! Requests to the server, with timeouts.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bson::{RawDocumentBuf, doc};
use mongodb::{Collection, Database};
use stockade_model::{
    nearest::remedy,
    source::Document,
    time::{Live, Runtime, before},
};
use tokio::sync::oneshot;

use super::{
    error::{MongoDbError, ServerMonitor},
    json, key,
};
use crate::{OpenError, remote::Remote};

/// A collection and its connection state.
pub(super) struct MongoDbCollection {
    pub(super) remote: Arc<Remote>,
    pub(super) database: Database,
    pub(super) documents: Collection<RawDocumentBuf>,
    pub(super) key: String,
    pub(super) time: Live,
    pub(super) timeout: Duration,
    pub(super) monitor: ServerMonitor,
    /// Its drop ends the driver's connections.
    pub(super) _open: oneshot::Sender<Infallible>,
}

impl MongoDbCollection {
    /// Runs a request with the timeout of a fetch. For opening only: an error there also drops
    /// the driver.
    pub(super) async fn run<T>(
        &self,
        query: impl IntoFuture<Output = mongodb::error::Result<T>>,
    ) -> Result<T, MongoDbError> {
        match before(&self.time, self.time.now() + self.timeout, query.into_future()).await {
            Some(answer) => answer.map_err(|error| self.monitor.explain(&error)),
            None => Err(self.monitor.failure()),
        }
    }

    pub(super) fn open_error(&self, error: MongoDbError) -> OpenError {
        self.remote.unusable(error.open_message(self.timeout))
    }

    /// Waits for a response, or until all servers have failed.
    pub(super) async fn await_server(&self) -> Result<(), MongoDbError> {
        let ping = self.database.run_command(doc! { "ping": 1 });
        let mut monitor = self.monitor.clone();
        tokio::select! {
            answer = self.run(ping) => answer.map(drop),
            error = monitor.all_failed() => Err(error),
        }
    }

    /// Fails if the collection has no documents or no such key.
    pub(super) async fn check(&self) -> Result<(), OpenError> {
        let keyed = doc! { self.key.as_str(): { "$exists": true } };
        let first = self.run(self.documents.find_one(keyed)).await;
        if first.map_err(|error| self.open_error(error))?.is_some() {
            return Ok(());
        }
        let missing = self.explain_missing().await.map_err(|error| self.open_error(error))?;
        Err(self.remote.unusable(missing))
    }

    async fn explain_missing(&self) -> Result<String, MongoDbError> {
        let (database, collection) = (self.database.name(), self.documents.name());
        let collections = self.run(self.database.list_collection_names()).await?;
        if collections.is_empty() {
            return Ok(format!(
                "there is no database `{database}`; check its name, or fill it with --docs-from FILE.jsonl"
            ));
        }
        if !collections.iter().any(|other| other == collection) {
            let remedy = remedy(collection, collections.iter().map(String::as_str));
            return Ok(format!(
                "it has no collection `{collection}`; fill it with --docs-from FILE.jsonl, or name another: {remedy}"
            ));
        }
        if self.run(self.documents.find_one(doc! {})).await?.is_some() {
            let key = &self.key;
            return Ok(format!(
                "no document has a `{key}`; name the field that they are fetched by with key=NAME"
            ));
        }
        Ok(format!("its collection `{collection}` is empty; fill it with --docs-from FILE.jsonl"))
    }

    /// The document in its stored form.
    pub(super) async fn find(&self, query: bson::Document) -> Result<Option<Document>, MongoDbError> {
        let found = self.documents.find_one(query).max_time(self.timeout).await;
        let found = found.map_err(|error| self.monitor.explain(&error))?;
        found.as_deref().map(json::relaxed).transpose()
    }

    /// The sorted keys of all documents that have one.
    pub(super) async fn list(&self) -> Result<Vec<Arc<str>>, MongoDbError> {
        let key = self.key.as_str();
        let mut projection = doc! { key: 1 };
        if key != "_id" {
            projection.insert("_id", 0);
        }
        let find = self.documents.find(doc! { key: { "$exists": true } }).projection(projection);
        let explain = |error| self.monitor.explain(&error);
        let mut cursor = find.max_time(self.timeout).await.map_err(explain)?;
        let mut ids = Vec::new();
        while cursor.advance().await.map_err(explain)? {
            ids.push(key::text(key, cursor.current())?);
        }
        ids.sort_unstable();
        match ids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(MongoDbError::Message(format!(
                "several documents have the `{key}` `{}`: name a field without repeats with key=NAME",
                pair[0]
            ))),
            None => Ok(ids),
        }
    }
}
