//! Gets a content from where it is, once.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue, Request, StatusCode, Uri,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, LOCATION, USER_AGENT},
};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use stockade_model::time::{Precise, Runtime, before};

use crate::content::{Fetched, Unavailable};

/// As much as a content may be.
const BODY_BYTES_MAX: usize = 256 << 20;
const TIMEOUT: Duration = Duration::from_secs(10);

/// What is at `uri`, packed if that is what `is_gzip` says and the server can.
pub async fn fetch(uri: &Uri, is_gzip: bool, route: &str, time: &Precise) -> Result<Fetched, Unavailable> {
    let deadline = time.now() + TIMEOUT;
    let answer: Option<Result<Fetched, String>> = before(time, deadline, get(uri, is_gzip)).await;
    let answer = answer.unwrap_or_else(|| Err(format!("no answer within {} s", TIMEOUT.as_secs())));
    answer.map_err(|reason| Unavailable { uri: without_secrets(uri), route: route.to_owned(), reason })
}

fn get(uri: &Uri, is_gzip: bool) -> impl Future<Output = Result<Fetched, String>> + Send {
    let request = Request::get(uri)
        .header(USER_AGENT, concat!("stockade/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT_ENCODING, HeaderValue::from_static(if is_gzip { "gzip" } else { "identity" }))
        .body(Empty::<Bytes>::new());
    async move {
        let https = HttpsConnectorBuilder::new()
            .with_native_roots()
            .map_err(|error| format!("this machine trusts no authority: {error}"))?
            .https_or_http()
            .enable_http1()
            .build();
        let client = Client::builder(TokioExecutor::new()).build(https);
        let request = request.map_err(|error| error.to_string())?;
        let answer = client.request(request).await.map_err(|error| because(&error))?;
        if answer.status() != StatusCode::OK {
            let moved = answer.headers().get(LOCATION).and_then(|to| to.to_str().ok());
            let remedy = moved.map(|to| format!(": write {to} instead")).unwrap_or_default();
            return Err(format!("it answers {}{remedy}", answer.status()));
        }
        let encoding = answer.headers().get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
        let is_packed = match encoding {
            None | Some(b"identity") => false,
            Some(b"gzip") if is_gzip => true,
            Some(other) => {
                return Err(format!("it answers in {}, unasked", String::from_utf8_lossy(other)));
            }
        };
        let body = Limited::new(answer.into_body(), BODY_BYTES_MAX).collect().await;
        let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => "it is larger than 256 MiB".to_owned(),
            None => because(&*error),
        })?;
        Ok(Fetched { body: body.to_bytes(), is_gzip: is_packed })
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
