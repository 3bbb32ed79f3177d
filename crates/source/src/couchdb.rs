//! A CouchDB database, or a server with the same protocol.
//!
//! A document has the bytes of the response, with `_rev` and the final newline.

mod fill;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::Value;
use stockade_model::source::{Document, Source, SourceError, SourceFuture};

use crate::{
    OpenError, OpenFuture, OpenResult, ParseResult, SourceKind, SourceLocation,
    client::{HttpClient, HttpResponse, HttpServer, error_message, open_error, reason, segment},
    documents::NamedDocument,
    remote::Remote,
};

/// Default port, and default port with TLS.
const PORTS: (u16, u16) = (5984, 6984);

const IDS_PER_PAGE: usize = 10_000;

struct CouchDbLocation {
    remote: Remote,
    server: HttpServer,
}

struct CouchDbSource {
    client: HttpClient,
    /// Path of the database.
    path: String,
}

pub(crate) const fn kind(schemes: &'static [&'static str]) -> SourceKind {
    SourceKind {
        schemes,
        form: "couchdb://HOST/DATABASE",
        summary: "a CouchDB database; couchdbs: with TLS",
        is_simulated: false,
        parse,
    }
}

fn parse(scheme: &str, rest: &str) -> ParseResult {
    let remote = Remote::parse(scheme, rest, &["ca"], false)?;
    let is_tls = scheme == "couchdbs";
    let server = HttpServer::parse(&remote, is_tls, if is_tls { PORTS.1 } else { PORTS.0 })?;
    let path = remote.path().trim_end_matches('/');
    if path.is_empty() {
        return Err(remote.invalid(&format!("it names no database: write {scheme}://HOST/DATABASE")));
    }
    if path.parse::<http::Uri>().is_err() {
        return Err(remote.invalid("its path has characters that have to be percent-encoded"));
    }
    Ok(Arc::new(CouchDbLocation { remote, server }))
}

impl CouchDbLocation {
    async fn connect(&self) -> Result<CouchDbSource, OpenError> {
        let client = HttpClient::new(&self.remote, &self.server).await?;
        Ok(CouchDbSource { client, path: self.remote.path().trim_end_matches('/').to_owned() })
    }

    async fn open_checked(&self) -> OpenResult {
        let couchdb = self.connect().await?;
        if !couchdb.is_there().await.map_err(|error| open_error(&self.remote, error))? {
            return Err(OpenError::Missing { place: self.remote.to_string() });
        }
        Ok(Arc::new(couchdb))
    }

    async fn open_filled(&self, documents: &[NamedDocument]) -> OpenResult {
        let couchdb = self.connect().await?;
        couchdb.fill(documents).await.map_err(|error| open_error(&self.remote, error))?;
        Ok(Arc::new(couchdb))
    }
}

impl SourceLocation for CouchDbLocation {
    fn open(&self) -> OpenFuture<'_> {
        Box::pin(self.open_checked())
    }

    fn fill<'a>(&'a self, documents: &'a [NamedDocument]) -> OpenFuture<'a> {
        Box::pin(self.open_filled(documents))
    }
}

impl fmt::Display for CouchDbLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.remote.fmt(f)
    }
}

impl CouchDbSource {
    /// True if the database exists. Another server than CouchDB is an error.
    async fn is_there(&self) -> Result<bool, SourceError> {
        let response = self.client.get(&self.path).await?;
        let is_error =
            |response: &HttpResponse| json(response.body()).is_some_and(|json| json["error"] == "not_found");
        match response.status() {
            StatusCode::OK if json(response.body()).is_some_and(|json| json["db_name"].is_string()) => {
                Ok(true)
            }
            StatusCode::NOT_FOUND if is_error(&response) => Ok(false),
            StatusCode::OK | StatusCode::NOT_FOUND => {
                Err(self.client.failed("it is not a CouchDB: check host, port and database"))
            }
            _ => Err(self.client.failed(error_message(&response))),
        }
    }

    async fn get(&self, id: &str) -> Result<Option<Document>, SourceError> {
        // Reserved: CouchDB accepts no such document id.
        if id.is_empty() || id.starts_with('_') {
            return Ok(None);
        }
        let Some(id) = segment(id) else { return Ok(None) };
        let response = self.client.get(&format!("{}/{id}", self.path)).await?;
        match response.status() {
            StatusCode::OK => Ok(Some(response.into_body())),
            // A deleted database has the same status and another reason.
            StatusCode::NOT_FOUND if matches!(reason(&response).as_deref(), Some("missing" | "deleted")) => {
                Ok(None)
            }
            _ => Err(self.client.failed(error_message(&response))),
        }
    }

    /// `path` is relative to the database.
    async fn request_json(&self, method: Method, path: &str, body: Bytes) -> Result<Value, SourceError> {
        let response = self.client.send(method, &format!("{}/{path}", self.path), body).await?;
        if !response.status().is_success() {
            return Err(self.client.failed(error_message(&response)));
        }
        json(response.body()).ok_or_else(|| self.client.failed("it answers something else than JSON"))
    }

    /// All ids, page by page. Each page starts with the last id of the previous page.
    async fn listed(&self) -> Result<Vec<Arc<str>>, SourceError> {
        let mut ids: Vec<Arc<str>> = Vec::new();
        let mut page = format!("_all_docs?limit={IDS_PER_PAGE}");
        loop {
            let response = self.request_json(Method::GET, &page, Bytes::new()).await?;
            let rows = response["rows"].as_array();
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

impl Source for CouchDbSource {
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
