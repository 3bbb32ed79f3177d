//! Gets contents from where they are, once.

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
    HeaderValue, Request, Response, StatusCode, Uri,
    header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, LOCATION, USER_AGENT},
};
use http_body::Body;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use percent_encoding::percent_decode_str;
use rustls::{ClientConfig, crypto::ring};
use stockade_model::time::{Precise, Runtime, Time, before};
use tokio::sync::OnceCell;

use crate::{
    beside::beside,
    content::{Fetched, Unavailable, is_gzip},
    recipe::{CONTENT_BYTES_MAX, Content, Recipe},
    state::{CONTENTS_BYTES_MAX, Refused},
};

const TIMEOUT: Duration = Duration::from_secs(10);
/// How long all contents of one text may take.
const TIMEOUT_OF_ALL: Duration = Duration::from_secs(30);
const AT_ONCE: usize = 16;

/// Where a content is, and whether it is to come packed.
pub type Key = (Uri, bool);

/// What has to be fetched for a recipe.
pub fn key(recipe: &Recipe) -> Option<Key> {
    match &recipe.content {
        Content::Origin(uri) => Some((uri.clone(), is_gzip(&recipe.headers))),
        Content::Random(_) | Content::Template(_) => None,
    }
}

/// What these recipes need, each once, in so many bytes together.
pub async fn fetch_all(
    recipes: &[Recipe],
    room: u64,
    time: &Precise,
) -> Result<HashMap<Key, Fetched>, Refused> {
    let wanted: HashMap<Key, String> =
        recipes.iter().filter_map(|recipe| Some((key(recipe)?, recipe.route.clone()))).collect();
    let deadline = time.now() + TIMEOUT_OF_ALL;
    let room = Arc::new(AtomicU64::new(room));
    let fetches = wanted.into_iter().map(|((uri, is_gzip), route)| {
        let (room, time) = (Arc::clone(&room), time.clone());
        async move {
            let fetched = fetch(&uri, is_gzip, route, deadline, &room, &time).await?;
            Ok(((uri, is_gzip), fetched))
        }
    });
    stream::iter(fetches).buffer_unordered(AT_ONCE).try_collect().await
}

/// Why there is nothing.
enum Failed {
    For(String),
    /// There is no room for it beside the other contents.
    TooMuch,
}

impl<T: Into<String>> From<T> for Failed {
    fn from(reason: T) -> Self {
        Self::For(reason.into())
    }
}

/// What is at `uri`, packed if that is what `is_gzip` says and the server can.
async fn fetch(
    uri: &Uri,
    is_gzip: bool,
    route: String,
    deadline: Time,
    room: &AtomicU64,
    time: &Precise,
) -> Result<Fetched, Refused> {
    let own = time.now() + TIMEOUT;
    let answer = before(time, own.min(deadline), get(uri, is_gzip, room)).await;
    let reason = match answer {
        Some(Ok(fetched)) => return Ok(fetched),
        Some(Err(Failed::TooMuch)) => return Err(Refused::TooMuch { bytes: CONTENTS_BYTES_MAX + 1 }),
        Some(Err(Failed::For(reason))) => reason,
        None if own <= deadline => format!("no answer within {} s", TIMEOUT.as_secs()),
        None => format!("all contents together took more than {} s", TIMEOUT_OF_ALL.as_secs()),
    };
    Err(Unavailable { uri: without_secrets(uri), route, reason }.into())
}

async fn get(uri: &Uri, is_gzip: bool, room: &AtomicU64) -> Result<Fetched, Failed> {
    let answer = ask(uri, is_gzip).await?;
    if answer.status() != StatusCode::OK {
        let moved = answer.headers().get(LOCATION).and_then(|to| to.to_str().ok());
        let remedy = moved.map(|to| format!(": write {} instead", shown(to))).unwrap_or_default();
        return Err(format!("it answers {}{remedy}", answer.status()).into());
    }
    let encoding = answer.headers().get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
    let is_packed = match encoding {
        None | Some(b"identity") => false,
        Some(b"gzip") if is_gzip => true,
        Some(other) => {
            return Err(format!("it answers in {}, unasked", String::from_utf8_lossy(other)).into());
        }
    };
    let mut incoming = answer.into_body();
    let told = incoming.size_hint().lower().min(CONTENT_BYTES_MAX);
    let mut body = Vec::with_capacity(usize::try_from(told).unwrap_or_default());
    while let Some(frame) = incoming.frame().await {
        let Ok(piece) = frame.map_err(|error| because(&error))?.into_data() else { continue };
        if (body.len() + piece.len()) as u64 > CONTENT_BYTES_MAX {
            return Err("it is larger than 256 MiB".into());
        }
        let taken = room.fetch_update(Relaxed, Relaxed, |room| room.checked_sub(piece.len() as u64));
        taken.map_err(|_| Failed::TooMuch)?;
        body.extend_from_slice(&piece);
    }
    body.shrink_to_fit();
    Ok(Fetched { body: body.into(), is_gzip: is_packed })
}

async fn ask(uri: &Uri, is_gzip: bool) -> Result<Response<Incoming>, Failed> {
    let mut request = Request::get(uri)
        .header(USER_AGENT, concat!("stockade/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT_ENCODING, HeaderValue::from_static(if is_gzip { "gzip" } else { "identity" }));
    if let Some(authorization) = authorization(uri) {
        request = request.header(AUTHORIZATION, authorization);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
    let builder = Client::builder(TokioExecutor::new());
    let answer = if uri.scheme_str() == Some("https") {
        let https = HttpsConnectorBuilder::new().with_tls_config(trust().await?).https_only();
        builder.build(https.enable_http1().build()).request(request).await
    } else {
        builder.build(HttpConnector::new()).request(request).await
    };
    Ok(answer.map_err(|error| because(&error))?)
}

/// Whom this machine trusts: read once, and only if somebody has to be trusted.
async fn trust() -> Result<ClientConfig, Failed> {
    static TRUST: OnceCell<ClientConfig> = OnceCell::const_new();
    let read = || {
        let trust = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_native_roots()
            .map_err(|error| format!("this machine trusts no authority: {error}"))?;
        Ok(trust.with_no_client_auth())
    };
    Ok(TRUST.get_or_try_init(|| beside::<Result<_, String>>(read)).await?.clone())
}

/// Name and password, where a URL has them (RFC 7617).
fn authorization(uri: &Uri) -> Option<HeaderValue> {
    let (secret, _) = uri.authority()?.as_str().rsplit_once('@')?;
    let (name, password) = secret.split_once(':').unwrap_or((secret, ""));
    let mut pair: Vec<u8> = percent_decode_str(name).collect();
    pair.push(b':');
    pair.extend(percent_decode_str(password));
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Where it is now, unless there is a name and a password in that.
fn shown(to: &str) -> String {
    match to.parse::<Uri>() {
        Ok(uri) if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) => {
            without_secrets(&uri)
        }
        _ => to.to_owned(),
    }
}

/// Without a name and a password, and without a query, which may have a token.
fn without_secrets(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
    let query = uri.query().map_or("", |_| "?...");
    format!("{}://{host}{port}{}{query}", uri.scheme_str().unwrap_or("http"), uri.path())
}

/// The innermost reason: the others only say that there was one.
fn because(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
