//! Asks the server, and waits no longer than allowed.

use std::{sync::Arc, time::Duration};

use bson::{RawDocumentBuf, doc};
use mongodb::{Collection, Database};
use stockade_model::{
    nearest::remedy,
    source::Document,
    time::{Live, Runtime, before},
};

use super::{
    json, key,
    trouble::{Pulse, Trouble},
};
use crate::{OpenError, remote::Remote};

/// A collection, and what it takes to ask for something in it.
pub(super) struct Desk {
    pub(super) remote: Arc<Remote>,
    pub(super) database: Database,
    pub(super) documents: Collection<RawDocumentBuf>,
    pub(super) key: String,
    pub(super) time: Live,
    pub(super) timeout: Duration,
    pub(super) pulse: Pulse,
}

impl Desk {
    /// What the server answers, if it does in the time that a fetch may take. For opening: whoever gives up here
    /// gives the driver up, too.
    pub(super) async fn ask<T>(
        &self,
        question: impl IntoFuture<Output = mongodb::error::Result<T>>,
    ) -> Result<T, Trouble> {
        match before(&self.time, self.time.now() + self.timeout, question.into_future()).await {
            Some(answer) => answer.map_err(|error| self.pulse.explain(&error)),
            None => Err(self.pulse.silence()),
        }
    }

    /// An error of opening.
    pub(super) fn refused(&self, trouble: Trouble) -> OpenError {
        self.remote.unusable(trouble.told(self.timeout))
    }

    /// Waits for an answer, or for the news that there is nobody to give one.
    pub(super) async fn await_server(&self) -> Result<(), Trouble> {
        let ping = self.database.run_command(doc! { "ping": 1 });
        let mut pulse = self.pulse.clone();
        tokio::select! {
            answer = self.ask(ping) => answer.map(drop),
            trouble = pulse.stops() => Err(trouble),
        }
    }

    /// Whether there are documents, before anything is built on them.
    pub(super) async fn check(&self) -> Result<(), OpenError> {
        let keyed = doc! { self.key.as_str(): { "$exists": true } };
        let first = self.ask(self.documents.find_one(keyed)).await;
        if first.map_err(|trouble| self.refused(trouble))?.is_some() {
            return Ok(());
        }
        let missing = self.what_is_missing().await.map_err(|trouble| self.refused(trouble))?;
        Err(self.remote.unusable(missing))
    }

    async fn what_is_missing(&self) -> Result<String, Trouble> {
        let (database, collection) = (self.database.name(), self.documents.name());
        let collections = self.ask(self.database.list_collection_names()).await?;
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
        if self.ask(self.documents.find_one(doc! {})).await?.is_some() {
            let key = &self.key;
            return Ok(format!(
                "no document has a `{key}`; name the field that they are fetched by with key=NAME"
            ));
        }
        Ok(format!("its collection `{collection}` is empty; fill it with --docs-from FILE.jsonl"))
    }

    /// A document, as it is stored.
    pub(super) async fn find(&self, query: bson::Document) -> Result<Option<Document>, Trouble> {
        let found = self.documents.find_one(query).max_time(self.timeout).await;
        let found = found.map_err(|error| self.pulse.explain(&error))?;
        found.as_deref().map(json::relaxed).transpose()
    }

    /// The keys of all documents that have one, sorted.
    pub(super) async fn list(&self) -> Result<Vec<Arc<str>>, Trouble> {
        let key = self.key.as_str();
        let mut projection = doc! { key: 1 };
        if key != "_id" {
            projection.insert("_id", 0);
        }
        let find = self.documents.find(doc! { key: { "$exists": true } }).projection(projection);
        let explain = |error| self.pulse.explain(&error);
        let mut cursor = find.max_time(self.timeout).await.map_err(explain)?;
        let mut ids = Vec::new();
        while cursor.advance().await.map_err(explain)? {
            ids.push(key::text(key, cursor.current())?);
        }
        ids.sort_unstable();
        match ids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Trouble::Said(format!(
                "several documents have the `{key}` `{}`: name a field without repeats with key=NAME",
                pair[0]
            ))),
            None => Ok(ids),
        }
    }
}
