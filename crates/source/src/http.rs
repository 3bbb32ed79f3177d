//! Documents of any HTTP server: one URL a document.

use std::{fmt, future, path::PathBuf, sync::Arc};

use futures_util::{StreamExt, TryStreamExt, stream};
use hyper::{Method, StatusCode, Uri, body::Bytes};
use serde_json::Value;
use stockade_model::source::{Document, Source, SourceError, SourceFuture};
use tokio::task::spawn_blocking;

use crate::{
    Opened, Opening, Place, Read,
    client::{Answer, Client, Server, is_same_value, segment, unopened},
    documents::NamedDocument,
    remote::Remote,
};

/// Where the id of a document goes in a URL.
const ID: &str = "{id}";

/// What a server is asked for, with `{id}` in it.
#[derive(Clone)]
struct Target(String);

/// Where the ids of the documents are written down.
#[derive(Clone)]
enum Listing {
    /// Nowhere: a server need not know what it has.
    Nowhere,
    /// In a file.
    File(PathBuf),
    /// On the server itself: what it is asked for.
    Server(String),
    /// It was filled with these.
    Known(Arc<[Arc<str>]>),
}

/// A URL with a place for an id.
struct Documents {
    remote: Remote,
    server: Server,
    target: Target,
    listing: Listing,
}

/// A server that has been reached.
struct Http {
    client: Client,
    target: Target,
    listing: Listing,
}

pub(crate) fn read(scheme: &str, rest: &str) -> Read {
    let remote = Remote::read(scheme, rest, &["ids", "ca"], true)?;
    let is_tls = scheme == "https";
    let server = Server::read(&remote, is_tls, if is_tls { 443 } else { 80 })?;
    let target = Target::of(&remote);
    let is_whole = target.with("an-id").is_some_and(|target| target.parse::<Uri>().is_ok());
    if !is_whole {
        return Err(
            remote.wrong("its path or its parameters have characters that have to be percent-encoded")
        );
    }
    let listing = Listing::read(&remote, scheme)?;
    Ok(Arc::new(Documents { remote, server, target, listing }))
}

impl Target {
    /// An id that is not asked for by `{id}` is the last segment of the path.
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

impl Listing {
    /// The setting `ids`: a file, or a URL of the same server. What the server wants as a parameter with every
    /// document (a key, at times) it is sent here, too.
    fn read(remote: &Remote, scheme: &str) -> Result<Self, crate::OpenError> {
        let Some(written) = remote.setting("ids") else { return Ok(Self::Nowhere) };
        if !["http://", "https://"].iter().any(|scheme| written.starts_with(scheme)) {
            return Ok(Self::File(PathBuf::from(written)));
        }
        let path = written.strip_prefix(&format!("{scheme}://{}", remote.hosts()));
        let path = path.filter(|path| path.starts_with('/') && !path.contains(['?', '#']));
        let wrong =
            "`ids` is a file, or a URL of the same scheme, host and port, without user and parameters";
        let path = path.ok_or_else(|| remote.wrong(wrong))?;
        let query = remote.their_query();
        Ok(Self::Server(format!("{path}{}", if query.contains(ID) { "" } else { &query })))
    }
}

impl Documents {
    async fn reach(&self, listing: Listing) -> Result<Http, crate::OpenError> {
        let client = Client::new(&self.remote, &self.server).await?;
        let unopened = |error| unopened(&self.remote, error);
        client.reach().await.map_err(unopened)?;
        Ok(Http { client, target: self.target.clone(), listing })
    }

    /// Reaches the server, and gets a document if any is known: a wrong password is told before a load begins.
    async fn opened(&self) -> Opened {
        let http = self.reach(self.listing.clone()).await?;
        if !matches!(http.listing, Listing::Nowhere) {
            let unopened = |error| unopened(&self.remote, error);
            if let Some(first) = http.ids().await.map_err(unopened)?.first() {
                http.fetch(first).await.map_err(unopened)?;
            }
        }
        Ok(Arc::new(http))
    }

    /// Puts those documents that are not there yet. What is there and is another is not written to.
    async fn filled(&self, documents: &[NamedDocument]) -> Opened {
        let mut ids: Vec<_> = documents.iter().map(|document| Arc::clone(&document.id)).collect();
        ids.sort_unstable();
        let http = self.reach(Listing::Known(ids.into())).await?;
        let unopened = |error| unopened(&self.remote, error);
        let at_once = self.remote.connections()?;
        let looked_at = stream::iter(documents.to_vec()).map(|document| http.look_at(document));
        let missing = looked_at.buffered(at_once).try_filter_map(|missing| future::ready(Ok(missing)));
        let missing: Vec<_> = missing.try_collect().await.map_err(unopened)?;
        let puts = stream::iter(missing.into_iter().map(Ok));
        puts.try_for_each_concurrent(at_once, |document| http.put(document)).await.map_err(unopened)?;
        Ok(Arc::new(http))
    }
}

impl Place for Documents {
    fn open(&self) -> Opening<'_> {
        Box::pin(self.opened())
    }

    fn fill<'a>(&'a self, documents: &'a [NamedDocument]) -> Opening<'a> {
        Box::pin(self.filled(documents))
    }
}

impl fmt::Display for Documents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.remote.fmt(f)
    }
}

impl Http {
    fn target(&self, id: &str) -> Result<String, SourceError> {
        let target = self.target.with(id);
        target.ok_or_else(|| self.client.failed(format!("`{id}` is no id: a server takes it for a folder")))
    }

    async fn get(&self, id: &str) -> Result<Option<Document>, SourceError> {
        let answer = self.client.get(&self.target(id)?).await?;
        match answer.status {
            StatusCode::OK => Ok(Some(answer.body)),
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(None),
            _ => Err(self.client.failed(answer.complaint())),
        }
    }

    /// The document, if it is missing there. Another of that id is an error.
    async fn look_at(&self, document: NamedDocument) -> Result<Option<NamedDocument>, SourceError> {
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
        let answer = self.client.send(Method::PUT, &target, document.body).await?;
        if answer.status.is_success() { Ok(()) } else { Err(self.client.failed(refusal(&answer))) }
    }

    async fn listed(&self) -> Result<Vec<Arc<str>>, SourceError> {
        let (place, listing) = match &self.listing {
            Listing::Known(ids) => return Ok(ids.to_vec()),
            Listing::Nowhere => {
                return Err(self.client.failed(
                    "it has no list of its documents: add ids=FILE-OR-URL, a JSON array of ids, or fill it with \
                     --docs-from FILE.jsonl",
                ));
            }
            Listing::Server(target) => {
                let answer = self.client.get(target).await?;
                if answer.status != StatusCode::OK {
                    return Err(self.client.failed(format!("`ids`: {}", answer.complaint())));
                }
                ("the list".to_owned(), answer.body)
            }
            Listing::File(path) => {
                let (place, path) = (path.display().to_string(), path.clone());
                let read = spawn_blocking(move || std::fs::read(path)).await;
                let read = read.map_err(|error| self.client.failed(error))?;
                let read = read.map_err(|error| self.client.failed(format!("`ids`: {place}: {error}")))?;
                (place, Bytes::from(read))
            }
        };
        let mut ids: Vec<Arc<str>> = serde_json::from_slice::<Vec<String>>(&listing)
            .map_err(|error| {
                self.client.failed(format!("`ids`: {place} is no JSON array of strings: {error}"))
            })?
            .into_iter()
            .map(Arc::from)
            .collect();
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }
}

impl Source for Http {
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

/// Why a document was not taken, and what to do about it.
fn refusal(answer: &Answer) -> String {
    match answer.status {
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => format!(
            "{} to PUT: it takes no documents; put them there by other means, and it is used as it is",
            answer.status
        ),
        _ => format!("PUT: {}", answer.complaint()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_goes_where_the_url_has_it() {
        for (rest, expected) in [
            ("//host", "/a%2Fb"),
            ("//host/?lang=en", "/a%2Fb?lang=en"),
            ("//host/docs/?lang=en&timeout=1s", "/docs/a%2Fb?lang=en"),
            ("//host/docs/{id}.json", "/docs/a%2Fb.json"),
            ("//host/{id}/{id}?v=1", "/a%2Fb/a%2Fb?v=1"),
            ("//ada:secret@host?key={id}", "/?key=a%2Fb"),
        ] {
            let remote = Remote::read("http", rest, &["ids", "ca"], true).unwrap();
            assert_eq!(Target::of(&remote).with("a/b").as_deref(), Some(expected), "{rest}");
        }
    }
}
