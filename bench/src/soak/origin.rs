//! The origin, in a process of its own, so that it can be killed and stopped.

use std::{
    convert::Infallible,
    io::Read,
    ops::Range,
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use http_body_util::BodyExt;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{
        ACCEPT_RANGES, CACHE_CONTROL, CONTENT_RANGE, ETAG, HeaderMap, HeaderName, IF_NONE_MATCH, RANGE, VARY,
    },
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, time::sleep};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Result,
    content::{ECHO, GENERATED, Manner, Resource, VARIANT},
    options::OriginOptions,
    pattern::{Pace, Pattern, PatternBody},
};

/// Serves until it is killed, or until standard input ends: then the run that started it is gone.
pub fn serve(options: &OriginOptions) -> Result<()> {
    thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::bind(options.listen).await?;
        loop {
            let Ok((tcp, _)) = listener.accept().await else { continue };
            let _ = tcp.set_nodelay(true);
            let seed = options.seed;
            tokio::spawn(async move {
                let service = service_fn(move |request| respond(seed, request));
                // A proxy may close at any time.
                let _ = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(tcp), service)
                    .await;
            });
        }
    })
}

/// Milliseconds since the epoch.
#[must_use]
pub fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

async fn respond(
    seed: u64,
    request: Request<Incoming>,
) -> std::result::Result<Response<PatternBody>, Infallible> {
    if request.uri().path().starts_with(ECHO) {
        return Ok(echo(request).await);
    }
    let variant = request.headers().get(VARIANT).and_then(|value| value.to_str().ok()?.parse().ok());
    let Some(resource) = Resource::parse(request.uri().path(), variant.unwrap_or(0)) else {
        return Ok(status_only(StatusCode::BAD_REQUEST));
    };
    let generated = unix_ms();
    let version = resource.version_at(generated);
    let one = resource.representation(seed, version);
    sleep(resource.head_delay(one.body)).await;
    let etag = one.etag();
    let is_known =
        request.headers().get(IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == etag.as_bytes());
    let status = StatusCode::from_u16(resource.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = Response::builder()
        .header(ETAG, etag)
        .header(CACHE_CONTROL, resource.class.cache_control)
        .header(GENERATED, generated)
        .header(HeaderName::from_static("surrogate-key"), format!("class-{}", resource.class.name));
    if resource.class.variants > 1 {
        response = response.header(VARY, VARIANT);
    }
    let (status, part) = if is_known && status == StatusCode::OK {
        (StatusCode::NOT_MODIFIED, 0..0)
    } else if let (Some(range), StatusCode::OK) = (range(request.headers(), one.body_bytes), status) {
        response = response
            .header(CONTENT_RANGE, format!("bytes {}-{}/{}", range.start, range.end - 1, one.body_bytes));
        (StatusCode::PARTIAL_CONTENT, range)
    } else {
        (status, 0..one.body_bytes)
    };
    if resource.class.manner != Manner::Chunked {
        response = response.header(ACCEPT_RANGES, "bytes");
    }
    // hyper sends the length of a response to HEAD, too, and not its bytes.
    let body = PatternBody::new(one.body, part, resource.pace(one.body_bytes));
    let response = response.status(status).body(body);
    Ok(response.unwrap_or_else(|_| status_only(StatusCode::INTERNAL_SERVER_ERROR)))
}

/// The first and the last byte's successor of `bytes=A-B`; other forms are answered with the whole.
fn range(headers: &HeaderMap, body_bytes: u64) -> Option<Range<u64>> {
    let (from, to) = headers.get(RANGE)?.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
    let (from, to): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
    (from <= to && from < body_bytes).then(|| from..to.saturating_add(1).min(body_bytes))
}

/// Length and hash of the request's body, in headers.
async fn echo(request: Request<Incoming>) -> Response<PatternBody> {
    if request.method() != Method::POST {
        return status_only(StatusCode::METHOD_NOT_ALLOWED);
    }
    // The client cut the upload, and does not read the response.
    let Ok(body) = request.into_body().collect().await else {
        return status_only(StatusCode::BAD_REQUEST);
    };
    let body = body.to_bytes();
    let hash = xxh3_64(&body);
    Response::builder()
        .header(CACHE_CONTROL, "no-store")
        .header(ETAG, format!("\"{:x}-{hash:016x}\"", body.len()))
        .body(PatternBody::new(Pattern(hash), 0..100, Pace::default()))
        .unwrap_or_else(|_| status_only(StatusCode::INTERNAL_SERVER_ERROR))
}

fn status_only(status: StatusCode) -> Response<PatternBody> {
    let mut response = Response::new(PatternBody::empty());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_the_end_of_the_body() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, text.parse().expect("a header value"));
            range(&headers, 100)
        };
        assert_eq!(of("bytes=0-0"), Some(0..1));
        assert_eq!(of("bytes=90-200"), Some(90..100));
        for whole in ["bytes=100-101", "bytes=5-4", "bytes=-5", "bytes=1-2,4-5", "lines=1-2"] {
            assert_eq!(of(whole), None, "{whole}");
        }
    }
}
