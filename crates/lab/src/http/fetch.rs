//! Single requests outside of the load, with limits on time and size.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use stockade_http::{
    client::{HttpClient, HttpUrl, block_within},
    tls::Trust,
};

use stockade_record::clock::instant;

/// The limit of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// The limit of an admin request.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(2);
/// The limit of a reply's body.
const REPLY_BYTES_MAX: usize = 16 << 20;

/// Status and body, or the reason.
type Answer = Result<(u16, String), String>;

/// A response and its duration.
pub(super) struct TimedReply {
    pub(super) answer: Answer,
    pub(super) took: Duration,
}

/// GETs a URL within [`PROBE_TIMEOUT`].
pub(super) fn fetch_timed(url: &str, trust: &Trust) -> TimedReply {
    // It may read the certificate authorities, which takes time.
    let client = client(url, trust);
    let began = instant();
    let answer = client.and_then(|client| fetch(&client, Method::GET, PROBE_TIMEOUT));
    TimedReply { answer, took: began.elapsed() }
}

/// Sends a request without a body within [`PROBE_TIMEOUT`].
pub(super) fn send(method: &str, url: &str, trust: &Trust) -> Answer {
    let method = method.parse().map_err(|_| format!("`{method}` is not a method"))?;
    fetch(&client(url, trust)?, method, PROBE_TIMEOUT)
}

/// The admin page of a child process, or an error message.
pub(super) fn get(url: &str) -> Result<String, String> {
    match client(url, &Trust::System).and_then(|client| fetch(&client, Method::GET, ADMIN_TIMEOUT)) {
        Ok((200, body)) => Ok(body),
        Ok((_, body)) => Err(format!("does not answer at its admin address: {}", body.trim())),
        Err(error) => Err(format!("does not answer at its admin address: {error}")),
    }
}

fn client(url: &str, trust: &Trust) -> Result<HttpClient, String> {
    let parsed = HttpUrl::parse(url).map_err(|_| format!("`{url}` is not the URL of a server"))?;
    let client = HttpClient::new(parsed, HeaderMap::new(), trust, REPLY_BYTES_MAX);
    client.map_err(|error| error.to_string())
}

fn fetch(client: &HttpClient, method: Method, timeout: Duration) -> Answer {
    let reply =
        block_within(timeout, client.send(method, Bytes::new())).map_err(|error| error.to_string())?;
    let reply = reply.ok_or_else(|| format!("no answer within {} s", timeout.as_secs()))?;
    let (head, body) = reply.map_err(|error| error.to_string())?.into_parts();
    // The body of a probe may be binary.
    Ok((head.status.as_u16(), String::from_utf8_lossy(&body).into_owned()))
}
