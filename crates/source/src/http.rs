//! Documents of any HTTP server: one URL for each document.

use std::{fmt, future, path::PathBuf, sync::Arc};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::{Method, StatusCode, Uri};
use serde_json::Value;
use stockade_model::source::{Document, Source, SourceError, SourceFuture};
use tokio::task::spawn_blocking;

use crate::{
    OpenFuture, OpenResult, ParseResult, SourceKind, SourceLocation,
    client::{HttpClient, HttpResponse, HttpServer, error_message, is_same_value, open_error, segment},
    documents::NamedDocument,
    remote::Remote,
};

/// Placeholder of the document id in a URL.
const ID: &str = "{id}";

/// Path and query with `{id}` in it.
#[derive(Clone)]
struct UrlTemplate(String);

/// Source of the list of ids.
#[derive(Clone)]
enum IdSource {
    /// A server need not know its documents.
    Unknown,
    File(PathBuf),
    /// A path and query of the server itself.
    Server(String),
    /// The ids of the documents that filled the server.
    Known(Arc<[Arc<str>]>),
}

struct HttpLocation {
    remote: Remote,
    server: HttpServer,
    target: UrlTemplate,
    id_source: IdSource,
}

struct HttpSource {
    client: HttpClient,
    target: UrlTemplate,
    id_source: IdSource,
}

pub(crate) const fn kind(schemes: &'static [&'static str]) -> SourceKind {
    SourceKind {
        schemes,
        form: "https://HOST/{id}",
        summary: "any HTTP server: one URL a document; ids=FILE-OR-URL lists them",
        is_simulated: false,
        parse,
    }
}

fn parse(scheme: &str, rest: &str) -> ParseResult {
    let remote = Remote::parse(scheme, rest, &["ids", "ca"], true)?;
    let is_tls = scheme == "https";
    let server = HttpServer::parse(&remote, is_tls, if is_tls { 443 } else { 80 })?;
    let target = UrlTemplate::of(&remote);
    let is_whole = target.with("an-id").is_some_and(|target| target.parse::<Uri>().is_ok());
    if !is_whole {
        return Err(
            remote.invalid("its path or its parameters have characters that have to be percent-encoded")
        );
    }
    let id_source = IdSource::parse(&remote, scheme)?;
    Ok(Arc::new(HttpLocation { remote, server, target, id_source }))
}

impl UrlTemplate {
    /// Without `{id}` the id is the last segment of the path.
    fn of(remote: &Remote) -> Self {
        let (path, query) = (remote.path(), remote.their_query());
        if path.contains(ID) || query.contains(ID) {
            let slash = if path.is_empty() { "/" } else { "" };
            return Self(format!("{slash}{path}{query}"));
        }
        Self(format!("{}/{ID}{query}", path.trim_end_matches('/')))
    }

    fn with(&self, id: &str) -> Option<String> {
        Some(self.0.replace(ID, &segment(id)?))
    }
}

impl IdSource {
    /// The setting `ids`: a file, or a URL of the same server. The list is requested with the parameters of the
    /// documents, which may contain an API key.
    fn parse(remote: &Remote, scheme: &str) -> Result<Self, crate::OpenError> {
        let Some(written) = remote.setting("ids") else { return Ok(Self::Unknown) };
        if !["http://", "https://"].iter().any(|scheme| written.starts_with(scheme)) {
            return Ok(Self::File(PathBuf::from(written)));
        }
        let path = written.strip_prefix(&format!("{scheme}://{}", remote.hosts()));
        let path = path.filter(|path| path.starts_with('/') && !path.contains(['?', '#']));
        let wrong =
            "`ids` is a file, or a URL of the same scheme, host and port, without user and parameters";
        let path = path.ok_or_else(|| remote.invalid(wrong))?;
        let query = remote.their_query();
        Ok(Self::Server(format!("{path}{}", if query.contains(ID) { "" } else { &query })))
    }
}

impl HttpLocation {
    async fn connect(&self, id_source: IdSource) -> Result<HttpSource, crate::OpenError> {
        let client = HttpClient::new(&self.remote, &self.server).await?;
        let open_error = |error| open_error(&self.remote, error);
        client.connect().await.map_err(open_error)?;
        Ok(HttpSource { client, target: self.target.clone(), id_source })
    }

    /// Connects, and fetches a document if an id is known: a wrong password is reported before a load starts.
    async fn open_checked(&self) -> OpenResult {
        let http = self.connect(self.id_source.clone()).await?;
        if !matches!(http.id_source, IdSource::Unknown) {
            let open_error = |error| open_error(&self.remote, error);
            if let Some(first) = http.ids().await.map_err(open_error)?.first() {
                http.fetch(first).await.map_err(open_error)?;
            }
        }
        Ok(Arc::new(http))
    }

    /// Puts the missing documents. A stored document that differs is an error and stays.
    async fn open_filled(&self, documents: &[NamedDocument]) -> OpenResult {
        let mut ids: Vec<_> = documents.iter().map(|document| Arc::clone(&document.id)).collect();
        ids.sort_unstable();
        let http = self.connect(IdSource::Known(ids.into())).await?;
        let open_error = |error| open_error(&self.remote, error);
        let at_once = self.remote.connections()?;
        let checks = stream::iter(documents.to_vec()).map(|document| http.find_missing(document));
        let missing = checks.buffered(at_once).try_filter_map(|missing| future::ready(Ok(missing)));
        let missing: Vec<_> = missing.try_collect().await.map_err(open_error)?;
        let puts = stream::iter(missing.into_iter().map(Ok));
        puts.try_for_each_concurrent(at_once, |document| http.put(document)).await.map_err(open_error)?;
        Ok(Arc::new(http))
    }
}

impl SourceLocation for HttpLocation {
    fn open(&self) -> OpenFuture<'_> {
        Box::pin(self.open_checked())
    }

    fn fill<'a>(&'a self, documents: &'a [NamedDocument]) -> OpenFuture<'a> {
        Box::pin(self.open_filled(documents))
    }
}

impl fmt::Display for HttpLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.remote.fmt(f)
    }
}

impl HttpSource {
    fn target(&self, id: &str) -> Result<String, SourceError> {
        let target = self.target.with(id);
        target
            .ok_or_else(|| self.client.failed(format!("`{id}` is not an id: a server takes it for a folder")))
    }

    async fn get(&self, id: &str) -> Result<Option<Document>, SourceError> {
        let response = self.client.get(&self.target(id)?).await?;
        match response.status() {
            StatusCode::OK => Ok(Some(response.into_body())),
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(None),
            _ => Err(self.client.failed(error_message(&response))),
        }
    }

    /// The document, if the server does not have it. Another document with the same id is an error.
    async fn find_missing(&self, document: NamedDocument) -> Result<Option<NamedDocument>, SourceError> {
        match self.get(&document.id).await? {
            None => Ok(Some(document)),
            Some(stored) if is_same(&stored, &document.body) => Ok(None),
            Some(_) => Err(self.client.failed(format!(
                "it holds another document `{}`; leave --docs-from out to use what is there, or name a new place \
                 with --source",
                document.id
            ))),
        }
    }

    async fn put(&self, document: NamedDocument) -> Result<(), SourceError> {
        let target = self.target(&document.id)?;
        let response = self.client.send(Method::PUT, &target, document.body).await?;
        if response.status().is_success() { Ok(()) } else { Err(self.client.failed(put_error(&response))) }
    }

    async fn listed(&self) -> Result<Vec<Arc<str>>, SourceError> {
        let (place, listing) = match &self.id_source {
            IdSource::Known(ids) => return Ok(ids.to_vec()),
            IdSource::Unknown => {
                return Err(self.client.failed(
                    "it has no list of its documents: add ids=FILE-OR-URL, a JSON array of ids, or fill it with \
                     --docs-from FILE.jsonl",
                ));
            }
            IdSource::Server(target) => {
                let response = self.client.get(target).await?;
                if response.status() != StatusCode::OK {
                    return Err(self.client.failed(format!("`ids`: {}", error_message(&response))));
                }
                ("the list".to_owned(), response.into_body())
            }
            IdSource::File(path) => {
                let (place, path) = (path.display().to_string(), path.clone());
                let read = spawn_blocking(move || std::fs::read(path)).await;
                let read = read.map_err(|error| self.client.failed(error))?;
                let read = read.map_err(|error| self.client.failed(format!("`ids`: {place}: {error}")))?;
                (place, Bytes::from(read))
            }
        };
        let mut ids: Vec<Arc<str>> = serde_json::from_slice::<Vec<String>>(&listing)
            .map_err(|error| {
                self.client.failed(format!("`ids`: {place} is not a JSON array of strings: {error}"))
            })?
            .into_iter()
            .map(Arc::from)
            .collect();
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }
}

impl Source for HttpSource {
    fn fetch<'a>(&'a self, id: &'a str) -> SourceFuture<'a, Option<Document>> {
        Box::pin(self.get(id))
    }

    fn ids(&self) -> SourceFuture<'_, Vec<Arc<str>>> {
        Box::pin(self.listed())
    }
}

fn is_same(stored: &[u8], document: &[u8]) -> bool {
    let values = || {
        let value = |bytes| serde_json::from_slice::<Value>(bytes).ok();
        Some(is_same_value(&value(stored)?, &value(document)?))
    };
    stored == document || values().unwrap_or(false)
}

/// The cause and the remedy.
fn put_error(response: &HttpResponse) -> String {
    match response.status() {
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => format!(
            "{} to PUT: it takes no documents; put them there by other means, and it is used as it is",
            response.status()
        ),
        _ => format!("PUT: {}", error_message(response)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_replaces_its_placeholder_or_extends_the_path() {
        for (rest, expected) in [
            ("//host", "/a%2Fb"),
            ("//host/?lang=en", "/a%2Fb?lang=en"),
            ("//host/docs/?lang=en&timeout=1s", "/docs/a%2Fb?lang=en"),
            ("//host/docs/{id}.json", "/docs/a%2Fb.json"),
            ("//host/{id}/{id}?v=1", "/a%2Fb/a%2Fb?v=1"),
            ("//ada:secret@host?key={id}", "/?key=a%2Fb"),
        ] {
            let remote = Remote::parse("http", rest, &["ids", "ca"], true).unwrap();
            assert_eq!(UrlTemplate::of(&remote).with("a/b").as_deref(), Some(expected), "{rest}");
        }
    }
}
