//! An origin that is a database: documents by their ids.

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, ETAG},
};
use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};
use stockade_model::source::{Source, SourceError};

/// The longest id, in bytes: longer than any that a database has for a key.
const ID_BYTES_MAX: usize = 2_048;

/// Answers `GET /{id}` and `HEAD /{id}` with the document of that id. Clones share the source.
#[derive(Clone)]
pub struct Documents {
    source: Arc<dyn Source>,
}

/// A source could not answer.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct DocumentsError(#[from] SourceError);

impl DocumentsError {
    /// What a client is told: 504 where the source was too slow, 502 otherwise.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self.0 {
            SourceError::TimedOut { .. } => StatusCode::GATEWAY_TIMEOUT,
            SourceError::Failed { .. } => StatusCode::BAD_GATEWAY,
        }
    }
}

impl Documents {
    /// The documents of a source.
    #[must_use]
    pub fn new(source: Arc<dyn Source>) -> Self {
        Self { source }
    }

    /// The document that a request names, or why there is none: 404 if there is no such document, 400 if it is no id,
    /// 405 for other methods. An answer to `HEAD` has the headers of the one to `GET`, and no body.
    pub async fn answer<B>(&self, request: &Request<B>) -> Result<Response<Bytes>, DocumentsError> {
        let is_head = request.method() == Method::HEAD;
        if !is_head && request.method() != Method::GET {
            let mut refused = words(StatusCode::METHOD_NOT_ALLOWED, "there are only GET and HEAD\n");
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Ok(refused);
        }
        let answer = match id(request.uri().path()) {
            None => words(StatusCode::BAD_REQUEST, "write /ID: one segment, percent-encoded UTF-8\n"),
            Some(id) => match self.source.fetch(&id).await? {
                None => words(StatusCode::NOT_FOUND, "no such document\n"),
                Some(document) => found(document),
            },
        };
        Ok(if is_head { answer.map(|_| Bytes::new()) } else { answer })
    }
}

/// The id in a path of one segment.
fn id(path: &str) -> Option<String> {
    let segment = path.strip_prefix('/').filter(|segment| !segment.is_empty() && !segment.contains('/'))?;
    if !has_whole_escapes(segment) {
        return None;
    }
    let id = percent_decode_str(segment).decode_utf8().ok()?;
    // The others are no names that a document could be asked for by: folders, and what no database takes in a key.
    let is_id = !matches!(&*id, "." | "..") && id.len() <= ID_BYTES_MAX && !id.contains('\0');
    is_id.then(|| id.into_owned())
}

/// Whether every `%` begins an escape.
fn has_whole_escapes(segment: &str) -> bool {
    segment.split('%').skip(1).all(|escape| {
        let digits = escape.as_bytes();
        digits.len() >= 2 && digits[..2].iter().all(u8::is_ascii_hexdigit)
    })
}

fn found(document: Bytes) -> Response<Bytes> {
    let kind = if begins_as_json(&document) { "application/json" } else { "application/octet-stream" };
    let tag = etag(&document);
    let mut answer = of_length(StatusCode::OK, document);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Ok(tag) = HeaderValue::try_from(tag) {
        answer.headers_mut().insert(ETAG, tag);
    }
    answer
}

fn words(status: StatusCode, words: &'static str) -> Response<Bytes> {
    let mut answer = of_length(status, Bytes::from_static(words.as_bytes()));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

fn of_length(status: StatusCode, body: Bytes) -> Response<Bytes> {
    let length = HeaderValue::from(body.len());
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_LENGTH, length);
    answer
}

/// Whether a document's first bytes are those of an object, an array or a string. Others could be anything.
fn begins_as_json(document: &[u8]) -> bool {
    let first = document.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
    first.is_some_and(|first| matches!(first, b'{' | b'[' | b'"'))
}

/// A strong validator (RFC 9110, section 8.8.3): bytes that differ have others, as good as always.
fn etag(document: &[u8]) -> String {
    let digest = Sha256::digest(document);
    let half = digest.iter().take(16);
    half.fold(String::from('"'), |tag, byte| format!("{tag}{byte:02x}")) + "\""
}
