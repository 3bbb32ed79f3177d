//! A CouchDB database, or whatever speaks its protocol.
//!
//! A document is fetched as the server has it, byte for byte: with the `_rev` that CouchDB gives it, and with the
//! line's end after it. A cache in front of it keeps just that.

mod fill;

use std::{fmt, sync::Arc};

use hyper::{Method, StatusCode, body::Bytes};
use serde_json::Value;
use stockade_model::source::{Document, Source, SourceError, SourceFuture};

use crate::{
    OpenError, Opened, Opening, Place, Read,
    client::{Answer, Client, Server, segment, unopened},
    documents::NamedDocument,
    remote::Remote,
};

/// The port, and the one with TLS, where nobody names another.
const PORTS: (u16, u16) = (5984, 6984);

/// How many ids are listed with one request.
const IDS_PER_PAGE: usize = 10_000;

/// A database on a server.
struct Database {
    remote: Remote,
    server: Server,
}

/// A database that has been opened.
struct CouchDb {
    client: Client,
    /// Its path on the server.
    path: String,
}

pub(crate) fn read(scheme: &str, rest: &str) -> Read {
    let remote = Remote::read(scheme, rest, &["ca"], false)?;
    let is_tls = scheme == "couchdbs";
    let server = Server::read(&remote, is_tls, if is_tls { PORTS.1 } else { PORTS.0 })?;
    let path = remote.path().trim_end_matches('/');
    if path.is_empty() {
        return Err(remote.wrong(&format!("it names no database: write {scheme}://HOST/DATABASE")));
    }
    if path.parse::<hyper::Uri>().is_err() {
        return Err(remote.wrong("its path has characters that have to be percent-encoded"));
    }
    Ok(Arc::new(Database { remote, server }))
}

impl Database {
    async fn reach(&self) -> Result<CouchDb, OpenError> {
        let client = Client::new(&self.remote, &self.server).await?;
        Ok(CouchDb { client, path: self.remote.path().trim_end_matches('/').to_owned() })
    }

    async fn opened(&self) -> Opened {
        let couchdb = self.reach().await?;
        if !couchdb.is_there().await.map_err(|error| unopened(&self.remote, error))? {
            return Err(OpenError::Missing { place: self.remote.to_string() });
        }
        Ok(Arc::new(couchdb))
    }

    async fn filled(&self, documents: &[NamedDocument]) -> Opened {
        let couchdb = self.reach().await?;
        couchdb.fill(documents).await.map_err(|error| unopened(&self.remote, error))?;
        Ok(Arc::new(couchdb))
    }
}

impl Place for Database {
    fn open(&self) -> Opening<'_> {
        Box::pin(self.opened())
    }

    fn fill<'a>(&'a self, documents: &'a [NamedDocument]) -> Opening<'a> {
        Box::pin(self.filled(documents))
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.remote.fmt(f)
    }
}

impl CouchDb {
    /// Whether there is such a database. What is no CouchDB is an error.
    async fn is_there(&self) -> Result<bool, SourceError> {
        let answer = self.client.get(&self.path).await?;
        let is_error = |answer: &Answer| json(&answer.body).is_some_and(|json| json["error"] == "not_found");
        match answer.status {
            StatusCode::OK if json(&answer.body).is_some_and(|json| json["db_name"].is_string()) => Ok(true),
            StatusCode::NOT_FOUND if is_error(&answer) => Ok(false),
            StatusCode::OK | StatusCode::NOT_FOUND => {
                Err(self.client.failed("it is no CouchDB: check host, port and database"))
            }
            _ => Err(self.client.failed(answer.complaint())),
        }
    }

    async fn get(&self, id: &str) -> Result<Option<Document>, SourceError> {
        // CouchDB has names of its own that begin so, and takes none for a document.
        if id.is_empty() || id.starts_with('_') {
            return Ok(None);
        }
        let Some(id) = segment(id) else { return Ok(None) };
        let answer = self.client.get(&format!("{}/{id}", self.path)).await?;
        match answer.status {
            StatusCode::OK => Ok(Some(answer.body)),
            // It says the same of a database that is gone.
            StatusCode::NOT_FOUND if matches!(answer.said().as_deref(), Some("missing" | "deleted")) => {
                Ok(None)
            }
            _ => Err(self.client.failed(answer.complaint())),
        }
    }

    /// Asks below the database for JSON.
    async fn ask(&self, method: Method, below: &str, body: Bytes) -> Result<Value, SourceError> {
        let answer = self.client.send(method, &format!("{}/{below}", self.path), body).await?;
        if !answer.status.is_success() {
            return Err(self.client.failed(answer.complaint()));
        }
        json(&answer.body).ok_or_else(|| self.client.failed("it answers something else than JSON"))
    }

    /// The ids, page by page. Each page begins with the last id of the one before.
    async fn listed(&self) -> Result<Vec<Arc<str>>, SourceError> {
        let mut ids: Vec<Arc<str>> = Vec::new();
        let mut page = format!("_all_docs?limit={IDS_PER_PAGE}");
        loop {
            let answer = self.ask(Method::GET, &page, Bytes::new()).await?;
            let rows = answer["rows"].as_array();
            let rows = rows.ok_or_else(|| self.client.failed("its _all_docs has no rows"))?;
            let last = rows.last().and_then(|row| row["id"].as_str());
            ids.extend(rows.iter().filter_map(|row| row["id"].as_str()).map(Arc::from));
            match last.and_then(|last| segment(&Value::from(last).to_string())) {
                Some(last) if rows.len() == IDS_PER_PAGE => {
                    page = format!("_all_docs?limit={IDS_PER_PAGE}&startkey={last}");
                }
                _ => break,
            }
        }
        ids.retain(|id| !id.starts_with('_'));
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }
}

impl Source for CouchDb {
    fn fetch<'a>(&'a self, id: &'a str) -> SourceFuture<'a, Option<Document>> {
        Box::pin(self.get(id))
    }

    fn ids(&self) -> SourceFuture<'_, Vec<Arc<str>>> {
        Box::pin(self.listed())
    }
}

fn json(body: &[u8]) -> Option<Value> {
    serde_json::from_slice(body).ok()
}
