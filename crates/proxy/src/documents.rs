//! An origin that serves documents of a database by their ids.

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, ETAG},
};
use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};
use stockade_model::source::{Source, SourceError};

/// Maximum id length in bytes, above the key limits of all supported databases.
const ID_BYTES_MAX: usize = 2_048;

/// Serves `GET /{id}` and `HEAD /{id}` from a [`Source`]. Clones share the source.
#[derive(Clone)]
pub struct DocumentOrigin {
    source: Arc<dyn Source>,
}

/// The source failed or timed out.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct DocumentsError(#[from] SourceError);

impl DocumentsError {
    /// The status for clients: 504 after a timeout, 502 otherwise.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self.0 {
            SourceError::TimedOut { .. } => StatusCode::GATEWAY_TIMEOUT,
            SourceError::Failed { .. } => StatusCode::BAD_GATEWAY,
        }
    }
}

impl DocumentOrigin {
    #[must_use]
    pub fn new(source: Arc<dyn Source>) -> Self {
        Self { source }
    }

    /// The response to a request: 200 with the document, 404 for a missing document, 400 for a path that is not an id,
    /// 405 for other methods. A response to `HEAD` has the headers of `GET` and no body.
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

/// Decodes the id of a path with one segment, percent-encoded UTF-8.
#[must_use]
pub fn id(path: &str) -> Option<String> {
    let segment = path.strip_prefix('/').filter(|segment| !segment.is_empty() && !segment.contains('/'))?;
    if !has_whole_escapes(segment) {
        return None;
    }
    let id = percent_decode_str(segment).decode_utf8().ok()?;
    // Clients resolve `.` and `..` as folders, and databases refuse NUL in keys.
    let is_id = !matches!(&*id, "." | "..") && id.len() <= ID_BYTES_MAX && !id.contains('\0');
    is_id.then(|| id.into_owned())
}

/// True if every `%` starts a valid escape.
fn has_whole_escapes(segment: &str) -> bool {
    segment.split('%').skip(1).all(|escape| {
        let digits = escape.as_bytes();
        digits.len() >= 2 && digits[..2].iter().all(u8::is_ascii_hexdigit)
    })
}

/// A 200 response with a content type guessed from the first bytes, and a strong validator.
#[must_use]
pub fn found(document: Bytes) -> Response<Bytes> {
    let kind = if begins_as_json(&document) { "application/json" } else { "application/octet-stream" };
    let tag = etag(&document);
    let mut answer = of_length(StatusCode::OK, document);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Ok(tag) = HeaderValue::try_from(tag) {
        answer.headers_mut().insert(ETAG, tag);
    }
    answer
}

/// A plain-text response.
pub fn words(status: StatusCode, words: impl Into<Bytes>) -> Response<Bytes> {
    let mut answer = of_length(status, words.into());
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

/// True if a document starts as a JSON object, array or string.
fn begins_as_json(document: &[u8]) -> bool {
    let first = document.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
    first.is_some_and(|first| matches!(first, b'{' | b'[' | b'"'))
}

/// A strong validator (RFC 9110, section 8.8.3): half of the SHA-256 digest.
fn etag(document: &[u8]) -> String {
    let digest = Sha256::digest(document);
    let half = digest.iter().take(16);
    half.fold(String::from('"'), |tag, byte| format!("{tag}{byte:02x}")) + "\""
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::Empty;
    use stockade_model::source::{Document, SourceFuture};

    use super::*;

    /// Returns the id as the document, except for ids that select a failure.
    struct EchoSource;

    impl Source for EchoSource {
        fn fetch<'a>(&'a self, id: &'a str) -> SourceFuture<'a, Option<Document>> {
            let source_name = "echo".to_owned();
            let answer = match id {
                "missing" => Ok(None),
                "failed" => Err(SourceError::Failed { source_name, reason: "disk error".to_owned() }),
                "slow" => Err(SourceError::TimedOut { source_name, after: Duration::from_secs(1) }),
                id => Ok(Some(Bytes::from(id.to_owned()))),
            };
            Box::pin(async { answer })
        }

        fn ids(&self) -> SourceFuture<'_, Vec<Arc<str>>> {
            Box::pin(async { Ok(Vec::new()) })
        }
    }

    async fn fetch(method: &str, uri: &str) -> Result<Response<Bytes>, DocumentsError> {
        let request =
            Request::builder().method(method).uri(uri).body(Empty::<Bytes>::new()).expect("a request");
        DocumentOrigin::new(Arc::new(EchoSource)).answer(&request).await
    }

    #[tokio::test]
    async fn path_names_the_document() {
        for (path, id) in [
            ("/a", Some("a")),
            ("/a?b", Some("a")),
            ("/a%2Fb%20c%3F", Some("a/b c?")),
            ("/%C3%BC", Some("\u{fc}")),
            ("/..a", Some("..a")),
            ("/+", Some("+")),
            ("/", None),
            ("//a", None),
            ("/a/", None),
            ("/a/b", None),
            ("/.", None),
            ("/%2E%2e", None),
            ("/a%", None),
            ("/a%4", None),
            ("/a%zz", None),
            ("/%ff", None),
            ("/a%00", None),
        ] {
            let answer = fetch("GET", path).await.expect("an answer");
            let expected = if id.is_some() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
            assert_eq!(answer.status(), expected, "{path}");
            if let Some(id) = id {
                assert_eq!(answer.body(), id, "{path}");
            }
        }
        let long = format!("/{}", "a".repeat(ID_BYTES_MAX + 1));
        assert_eq!(fetch("GET", &long).await.expect("an answer").status(), StatusCode::BAD_REQUEST);
        assert_eq!(fetch("GET", &long[1..]).await.expect("an answer").status(), StatusCode::BAD_REQUEST);
    }

    #[tokio::test]
    async fn headers_have_type_length_and_validator() {
        for (path, kind) in [
            ("/%7B%7D", "application/json"),
            ("/%20%0A[]", "application/json"),
            ("/%22a%22", "application/json"),
            ("/1", "application/octet-stream"),
            ("/a", "application/octet-stream"),
        ] {
            let answer = fetch("GET", path).await.expect("an answer");
            assert_eq!(answer.headers()[CONTENT_TYPE], kind, "{path}");
            let head = fetch("HEAD", path).await.expect("an answer");
            assert_eq!((head.headers(), head.body().len()), (answer.headers(), 0), "{path}");
            assert_eq!(head.headers()[CONTENT_LENGTH], answer.body().len().to_string(), "{path}");
        }
        let tag = |answer: Response<Bytes>| answer.headers()[ETAG].to_str().expect("text").to_owned();
        let (one, two) = (fetch("GET", "/a").await.expect("one"), fetch("GET", "/b").await.expect("another"));
        let (one, two) = (tag(one), tag(two));
        // SHA-256 of `a`, FIPS 180-4.
        assert_eq!(one, "\"ca978112ca1bbdcafac231b39a23dc4d\"");
        assert_ne!(one, two);
    }

    #[tokio::test]
    async fn missing_documents_methods_and_failures_have_their_status() {
        for method in ["GET", "HEAD"] {
            let missing = fetch(method, "/missing").await.expect("an answer");
            assert_eq!((missing.status(), missing.headers().get(ETAG)), (StatusCode::NOT_FOUND, None));
        }
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "PURGE"] {
            let refused = fetch(method, "/a").await.expect("an answer");
            assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED);
            assert_eq!(refused.headers()[ALLOW], "GET, HEAD");
        }
        for (path, status, said) in [
            ("/failed", StatusCode::BAD_GATEWAY, "echo: disk error"),
            ("/slow", StatusCode::GATEWAY_TIMEOUT, "echo did not answer within 1s"),
        ] {
            let error = fetch("GET", path).await.expect_err("a failure");
            assert_eq!((error.status(), error.to_string().as_str()), (status, said));
        }
    }
}
