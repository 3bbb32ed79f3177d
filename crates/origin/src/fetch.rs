//! Fetches the contents of recipes that name an `origin`.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::{
    HeaderValue, Request, StatusCode, Uri,
    header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, HOST, LOCATION, USER_AGENT},
    uri::{Authority, PathAndQuery},
};
use http_body_util::Full;
use percent_encoding::percent_decode_str;
use rustls::ClientConfig;
use stockade_http::{
    client::{AGENT, ClientError, Connector, endpoint},
    location,
    tls::Trust,
};
use stockade_model::time::{Precise, Runtime, Time, before};
use tokio::sync::OnceCell;

use crate::{
    blocking::run_blocking,
    recipe::{CONTENT_BYTES_MAX, Content, Recipe},
};

const TIMEOUT: Duration = Duration::from_secs(10);
/// Bound for all contents of one text.
const TIMEOUT_OF_ALL: Duration = Duration::from_secs(30);
const CONCURRENT_FETCHES_MAX: usize = 16;

/// Identifies a fetched content.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FetchKey {
    uri: Uri,
    /// The request accepts gzip.
    is_gzip: bool,
}

/// A fetched body.
#[derive(Clone, Debug)]
pub(crate) struct FetchedContent {
    pub(crate) body: Bytes,
    /// `body` is compressed. A server may ignore that the request accepts gzip.
    pub(crate) is_gzip: bool,
}

/// The content of a recipe could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot fetch {uri} for route `{route}`: {reason}")]
pub struct FetchError {
    /// URL without password and query.
    pub uri: String,
    /// Route of the recipe.
    pub route: String,
    /// Cause and remedy.
    pub reason: String,
}

/// Why [`fetch_all`] failed.
#[derive(Debug)]
pub(crate) enum FetchFailure {
    Unavailable(FetchError),
    /// The contents exceed the bound on all contents.
    TooLarge,
}

/// Why one request failed.
enum FetchRequestFailure {
    Unavailable(String),
    TooLarge,
}

impl<T: Into<String>> From<T> for FetchRequestFailure {
    fn from(reason: T) -> Self {
        Self::Unavailable(reason.into())
    }
}

impl FetchKey {
    /// `None`: the recipe needs no fetch.
    pub(crate) fn of(recipe: &Recipe) -> Option<Self> {
        match &recipe.content {
            Content::Origin(uri) => Some(Self { uri: uri.clone(), is_gzip: recipe.is_gzip() }),
            Content::Random(_) | Content::Template(_) => None,
        }
    }
}

/// Fetches what the recipes need, each content once. All bodies together have at most `bytes_max`.
pub(crate) async fn fetch_all(
    recipes: &[Recipe],
    bytes_max: u64,
    time: &Precise,
) -> Result<HashMap<FetchKey, FetchedContent>, FetchFailure> {
    let routes: HashMap<FetchKey, String> =
        recipes.iter().filter_map(|recipe| Some((FetchKey::of(recipe)?, recipe.route.clone()))).collect();
    let deadline = time.now() + TIMEOUT_OF_ALL;
    let bytes_left = Arc::new(AtomicU64::new(bytes_max));
    let fetches = routes.into_iter().map(|(key, route)| {
        let (bytes_left, time) = (Arc::clone(&bytes_left), time.clone());
        async move {
            let content = fetch(&key, route, deadline, &bytes_left, &time).await?;
            Ok((key, content))
        }
    });
    stream::iter(fetches).buffer_unordered(CONCURRENT_FETCHES_MAX).try_collect().await
}

async fn fetch(
    key: &FetchKey,
    route: String,
    deadline_of_all: Time,
    bytes_left: &AtomicU64,
    time: &Precise,
) -> Result<FetchedContent, FetchFailure> {
    let deadline = time.now() + TIMEOUT;
    let response = before(time, deadline.min(deadline_of_all), get(key, bytes_left)).await;
    let reason = match response {
        Some(Ok(content)) => return Ok(content),
        Some(Err(FetchRequestFailure::TooLarge)) => return Err(FetchFailure::TooLarge),
        Some(Err(FetchRequestFailure::Unavailable(reason))) => reason,
        None if deadline <= deadline_of_all => format!("no response within {} s", TIMEOUT.as_secs()),
        None => format!("fetching all contents took more than {} s", TIMEOUT_OF_ALL.as_secs()),
    };
    Err(FetchFailure::Unavailable(FetchError { uri: redact(&key.uri), route, reason }))
}

async fn get(key: &FetchKey, bytes_left: &AtomicU64) -> Result<FetchedContent, FetchRequestFailure> {
    let FetchKey { uri, is_gzip } = key;
    let (is_encrypted, host, port) = endpoint(uri).ok_or("it is not the URL of a server")?;
    let tls = if is_encrypted { Some(system_trust().await?) } else { None };
    let mut connection =
        Connector::new(host, port, tls).connect().await.map_err(|error| root_cause(&error))?;
    let (mut content_left, mut is_too_large) = (CONTENT_BYTES_MAX, false);
    let has_room = |bytes: usize| {
        let Some(left) = content_left.checked_sub(bytes as u64) else { return false };
        content_left = left;
        let reserved = bytes_left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes as u64));
        is_too_large = reserved.is_err();
        !is_too_large
    };
    let reply = match connection.exchange(request(key)?, has_room).await {
        Ok(reply) => reply,
        Err(ClientError::TooLarge) if is_too_large => return Err(FetchRequestFailure::TooLarge),
        Err(ClientError::TooLarge) => return Err("the body is larger than 256 MiB".into()),
        Err(error) => return Err(root_cause(&error).into()),
    };
    if reply.status() != StatusCode::OK {
        let location = reply.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        let remedy =
            location.map(|url| format!(": write {} instead", redact_password(url))).unwrap_or_default();
        return Err(format!("the server answers {}{remedy}", reply.status()).into());
    }
    let encoding = reply.headers().get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
    let is_gzip = match encoding {
        None | Some(b"identity") => false,
        Some(b"gzip") if *is_gzip => true,
        Some(other) => {
            let encoding = String::from_utf8_lossy(other);
            return Err(format!("the server answers in {encoding}, which the request does not accept").into());
        }
    };
    Ok(FetchedContent { body: reply.into_body(), is_gzip })
}

fn request(key: &FetchKey) -> Result<Request<Full<Bytes>>, FetchRequestFailure> {
    let FetchKey { uri, is_gzip } = key;
    let authority = uri.authority().map_or("", Authority::as_str);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let mut request = Request::get(uri.path_and_query().map_or("/", PathAndQuery::as_str))
        .header(HOST, host)
        .header(USER_AGENT, AGENT)
        .header(ACCEPT_ENCODING, HeaderValue::from_static(if *is_gzip { "gzip" } else { "identity" }));
    if let Some(authorization) = basic_authorization(uri) {
        request = request.header(AUTHORIZATION, authorization);
    }
    Ok(request.body(Full::default()).map_err(|error| error.to_string())?)
}

/// Certificate authorities of the system. Read once, at the first `https` URL.
async fn system_trust() -> Result<ClientConfig, FetchRequestFailure> {
    static TRUST: OnceCell<ClientConfig> = OnceCell::const_new();
    let read = || Trust::System.client_config().map_err(|error| error.to_string());
    Ok(TRUST.get_or_try_init(|| run_blocking::<Result<_, String>>(read)).await?.clone())
}

/// Name and password of a URL (RFC 7617).
fn basic_authorization(uri: &Uri) -> Option<HeaderValue> {
    let (credentials, _) = uri.authority()?.as_str().rsplit_once('@')?;
    let (name, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    let mut pair: Vec<u8> = percent_decode_str(name).collect();
    pair.push(b':');
    pair.extend(percent_decode_str(password));
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// A URL; redacted if it may contain a password.
fn redact_password(url: &str) -> String {
    if url.contains('@') { location::redact(url) } else { url.to_owned() }
}

/// A URL without name, password and query, which may contain a token.
fn redact(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
    let query = uri.query().map_or("", |_| "?...");
    format!("{}://{host}{port}{}{query}", uri.scheme_str().unwrap_or("http"), uri.path())
}

/// The innermost source: the outer errors only say that something failed.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
