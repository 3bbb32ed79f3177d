//! The content that a route serves with status 200: random text, a filled template or a fetched body, compressed or not.

use std::{
    hash::BuildHasher,
    io::{self, Write},
    sync::Arc,
    time::SystemTime,
};

use arc_swap::ArcSwap;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use foldhash::quality::FixedState;
use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, LAST_MODIFIED},
};
use rand::Rng;
use stockade_model::seed::Seed;
use stockade_record::statement::{
    BodyStatement, DELAY_FIELD, FieldStatement, Freshness, OWNER_FIELD, STATEMENT_FIELD, Statement,
    TIME_FIELD, VARIANT_FIELD, values_crc32,
};
use tokio::sync::Mutex;

use crate::{
    blocking::run_blocking,
    fetch::FetchedContent,
    memfd::MemfdBody,
    recipe::{Content, Recipe, TemplatePart},
    statement::{freshness, of_body},
};

/// Number of the version in a response, from 1.
pub(crate) static VERSION_HEADER: HeaderName = HeaderName::from_static("stockade-version");
pub(crate) static TIME_HEADER: HeaderName = HeaderName::from_static(TIME_FIELD);
pub(crate) static STATEMENT_HEADER: HeaderName = HeaderName::from_static(STATEMENT_FIELD);
pub(crate) static DELAY_HEADER: HeaderName = HeaderName::from_static(DELAY_FIELD);
pub(crate) static OWNER_HEADER: HeaderName = HeaderName::from_static(OWNER_FIELD);
pub(crate) static VARIANT_HEADER: HeaderName = HeaderName::from_static(VARIANT_FIELD);

const CACHE_CONTROL_DEFAULT: HeaderValue = HeaderValue::from_static("max-age=0, private, must-revalidate");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

/// Largest template that the serving thread fills itself. Larger ones go to a blocking thread.
const INLINE_BYTES_MAX: usize = 64 << 10;
/// Copies of a versioned template in memory: its pieces, and the last two versions.
const TEMPLATE_COPIES: u64 = 3;

/// One version of a route's content, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Representation {
    /// As it is sent, compressed or not.
    pub(crate) body: Bytes,
    pub(crate) memfd: Arc<MemfdBody>,
    /// Headers of status 200.
    pub(crate) headers: HeaderMap,
    /// Headers of status 304: those that identify the version, and none that describe a body (RFC 9110, 15.4.5).
    headers_304: HeaderMap,
    /// Headers of any other status: none that describe or identify the content.
    headers_other: HeaderMap,
    /// Of status 200.
    statement: HeaderValue,
    freshness: Option<Freshness>,
    version: u64,
    began: SystemTime,
}

/// A route's content in all its versions.
#[derive(Debug)]
pub(crate) struct VersionedContent {
    headers: HeaderMap,
    source: BodySource,
    etag: bool,
    last_modified: bool,
    is_versioned: bool,
    freshness: Option<Freshness>,
    /// The last two versions: while one version follows the other, requests need both.
    cached: ArcSwap<[Option<Arc<Representation>>; 2]>,
    /// Locked while a large version is built, so that each is built once.
    building: Arc<Mutex<()>>,
}

#[derive(Debug)]
enum BodySource {
    /// The same body in every version.
    Fixed { body: Arc<MemfdBody>, hash: u64, stated: Option<BodyStatement> },
    /// Pieces of text. The version's number goes between them.
    Template { pieces: Vec<Vec<u8>>, is_gzip: bool },
}

impl Representation {
    /// The headers of a response. Statuses other than 200 and 304 carry a text that is not the content.
    pub(crate) fn headers_for(&self, status: StatusCode) -> &HeaderMap {
        match status {
            StatusCode::OK => &self.headers,
            StatusCode::NOT_MODIFIED => &self.headers_304,
            _ => &self.headers_other,
        }
    }

    /// The value of [`STATEMENT_HEADER`]. A 304 has none: a cache would take it over, and its body may be that of another version.
    pub(crate) fn statement(&self, status: StatusCode) -> Option<HeaderValue> {
        match status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => Some(self.statement.clone()),
            StatusCode::NOT_MODIFIED => None,
            _ => Some(statement_value(status, None, self.freshness)),
        }
    }
}

impl VersionedContent {
    /// Builds what all versions share. `fetched` is the body for a recipe with an `origin`. Takes CPU time in proportion
    /// to the size of the content.
    pub(crate) fn new(recipe: &Recipe, fetched: Option<FetchedContent>, seed: Seed) -> Self {
        let is_gzip = recipe.is_gzip();
        let fixed = |body| BodySource::fixed(body, &recipe.headers);
        let source = match (&recipe.content, fetched) {
            (Content::Origin(_), Some(fetched)) if fetched.is_gzip || !is_gzip => fixed(fetched.body),
            (Content::Origin(_), fetched) => {
                let body = fetched.map(|fetched| fetched.body).unwrap_or_default();
                fixed(encode(is_gzip, body.len() as u64, |out| out.write_all(&body)))
            }
            (Content::Random(size), _) => fixed(encode(is_gzip, *size, |out| write_random(out, *size, seed))),
            (Content::Template(parts), _) => {
                let numbered: Vec<_> = (0_u64..).zip(parts).collect();
                let mut pieces = numbered.split(|(_, part)| **part == TemplatePart::Version);
                match (pieces.next(), pieces.next()) {
                    (Some(parts), None) => {
                        let size = parts.iter().map(|(_, part)| part_bytes(part)).sum();
                        fixed(encode(is_gzip, size, |out| write_parts(out, parts, seed)))
                    }
                    _ => {
                        let pieces = numbered.split(|(_, part)| **part == TemplatePart::Version);
                        let pieces = pieces.map(|piece| render_parts(piece, seed)).collect();
                        BodySource::Template { pieces, is_gzip }
                    }
                }
            }
        };
        Self {
            headers: recipe.headers.clone(),
            source,
            etag: recipe.etag,
            last_modified: recipe.last_modified,
            is_versioned: recipe.version_every.is_some(),
            freshness: freshness(&recipe.headers),
            cached: ArcSwap::default(),
            building: Arc::default(),
        }
    }

    /// The version with this number, which began at `began`. If it is not cached, it is built: a large one only once,
    /// and on a blocking thread.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(crate) async fn representation(
        self: &Arc<Self>,
        version: u64,
        began: SystemTime,
    ) -> Arc<Representation> {
        if let Some(cached) = self.cached(version, began) {
            return cached;
        }
        if self.builds_inline() {
            return self.build_and_cache(version, began);
        }
        let building = Arc::clone(&self.building).lock_owned().await;
        if let Some(cached) = self.cached(version, began) {
            return cached;
        }
        let content = Arc::clone(self);
        let build = move || {
            // Moved into the work: it runs to its end even if no request waits for it any more.
            let _building = building;
            content.build_and_cache(version, began)
        };
        run_blocking(build).await
    }

    /// Memory that the content takes, without the memfd.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match &self.source {
            BodySource::Fixed { body, .. } => body.body().len() as u64,
            BodySource::Template { pieces, .. } => {
                pieces.iter().map(|piece| piece.len() as u64).sum::<u64>() * TEMPLATE_COPIES
            }
        }
    }

    fn cached(&self, version: u64, began: SystemTime) -> Option<Arc<Representation>> {
        let cached = self.cached.load();
        let is_wanted = |entry: &&Arc<Representation>| (entry.version, entry.began) == (version, began);
        cached.iter().flatten().find(is_wanted).cloned()
    }

    fn builds_inline(&self) -> bool {
        match &self.source {
            BodySource::Fixed { .. } => true,
            BodySource::Template { pieces, is_gzip } => {
                !is_gzip && pieces.iter().map(Vec::len).sum::<usize>() <= INLINE_BYTES_MAX
            }
        }
    }

    fn build_and_cache(&self, version: u64, began: SystemTime) -> Arc<Representation> {
        let built = Arc::new(self.build(version, began));
        self.cached.rcu(|cached| [Some(Arc::clone(&built)), cached[0].clone()]);
        built
    }

    fn build(&self, version: u64, began: SystemTime) -> Representation {
        let (memfd, hash, stated) = match &self.source {
            BodySource::Fixed { body, hash, stated } => (Arc::clone(body), *hash, *stated),
            BodySource::Template { pieces, is_gzip } => {
                let number = version.to_string();
                let size = pieces.iter().map(|piece| piece.len() + number.len()).sum::<usize>();
                let body = encode(*is_gzip, size as u64, |out| {
                    for (n, piece) in pieces.iter().enumerate() {
                        out.write_all(if n == 0 { b"" } else { number.as_bytes() })?;
                        out.write_all(piece)?;
                    }
                    Ok(())
                });
                let hash = if self.etag { hash(&body) } else { 0 };
                let stated = of_body(&body, &self.headers);
                (Arc::new(MemfdBody::new(body)), hash, stated)
            }
        };
        let body = memfd.body().clone();
        let mut headers = self.headers.clone();
        set_default(&mut headers, CACHE_CONTROL, CACHE_CONTROL_DEFAULT);
        if self.is_versioned {
            headers.insert(&VERSION_HEADER, version.into());
        }
        if self.etag {
            insert_header(&mut headers, ETAG, &format!("\"{version}-{hash:016x}\""));
        }
        if self.last_modified {
            insert_header(&mut headers, LAST_MODIFIED, &httpdate::fmt_http_date(began));
        }
        let without = |headers: &HeaderMap, names: &[HeaderName]| {
            let mut headers = headers.clone();
            names.iter().for_each(|name| drop(headers.remove(name)));
            headers
        };
        let headers_304 = without(&headers, &[CONTENT_ENCODING, CONTENT_TYPE, ACCEPT_RANGES]);
        // An error's text is not compressed, and it is not a version of the content.
        let mut headers_other = without(&headers, &[CONTENT_ENCODING, ACCEPT_RANGES, ETAG, LAST_MODIFIED]);
        set_default(&mut headers_other, CONTENT_TYPE, HTML);
        // A compressed body never begins with a brace, so it counts as HTML, as in OriginSimulator.
        let is_json = body.first() == Some(&b'{');
        set_default(&mut headers, CONTENT_TYPE, if is_json { JSON } else { HTML });
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        let statement = statement_value(StatusCode::OK, stated, self.freshness);
        let freshness = self.freshness;
        Representation {
            body,
            memfd,
            headers,
            headers_304,
            headers_other,
            statement,
            freshness,
            version,
            began,
        }
    }
}

impl BodySource {
    fn fixed(body: Bytes, headers: &HeaderMap) -> Self {
        let (hash, stated) = (hash(&body), of_body(&body, headers));
        Self::Fixed { hash, stated, body: Arc::new(MemfdBody::new(body)) }
    }
}

/// Memory that a content will take according to its recipe, before compression. 0 if it has to be fetched.
pub(crate) fn declared_bytes(content: &Content) -> u64 {
    match content {
        Content::Origin(_) => 0,
        Content::Random(size) => *size,
        Content::Template(parts) => {
            let copies = if parts.contains(&TemplatePart::Version) { TEMPLATE_COPIES } else { 1 };
            parts.iter().map(part_bytes).sum::<u64>() * copies
        }
    }
}

/// Headers of a response for a path without a route.
pub(crate) fn default_headers() -> HeaderMap {
    HeaderMap::from_iter([(CACHE_CONTROL, CACHE_CONTROL_DEFAULT), (CONTENT_TYPE, HTML)])
}

fn set_default(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    headers.entry(name).or_insert(value);
}

fn statement_value(
    status: StatusCode,
    body: Option<BodyStatement>,
    freshness: Option<Freshness>,
) -> HeaderValue {
    let text = Statement { status: status.as_u16(), body, freshness }.to_string();
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

/// The value of [`OWNER_HEADER`] or [`VARIANT_HEADER`] in the response to a request with these headers.
pub(crate) fn field_statement(name: &HeaderName, request: &HeaderMap) -> HeaderValue {
    let values_crc32 = values_crc32(request.get_all(name).iter().map(HeaderValue::as_bytes));
    let text = FieldStatement { name: name.as_str().into(), values_crc32 }.to_string();
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

/// `value` is one that the origin made, so it is always valid.
fn insert_header(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn hash(body: &[u8]) -> u64 {
    FixedState::with_seed(0).hash_one(body)
}

/// Without the digits of a version.
fn part_bytes(part: &TemplatePart) -> u64 {
    match part {
        TemplatePart::Text(text) => text.len() as u64,
        TemplatePart::Random(size) => *size,
        TemplatePart::Version => 0,
    }
}

/// Collects what `write` writes, `size` bytes before compression. Compression happens while writing, so the body is
/// never in memory twice.
fn encode(is_gzip: bool, size: u64, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Bytes {
    let mut bytes = if is_gzip {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        // A write to memory does not fail.
        let _ = write(&mut gzip);
        gzip.finish().unwrap_or_default()
    } else {
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        let _ = write(&mut bytes);
        bytes
    };
    bytes.shrink_to_fit();
    bytes.into()
}

/// Writes parts of a template. A part's number selects its random text.
fn write_parts(mut out: &mut dyn Write, parts: &[(u64, &TemplatePart)], seed: Seed) -> io::Result<()> {
    for (n, part) in parts {
        match part {
            TemplatePart::Text(text) => out.write_all(text.as_bytes())?,
            TemplatePart::Random(size) => write_random(&mut out, *size, seed.child(&n.to_string()))?,
            TemplatePart::Version => {}
        }
    }
    Ok(())
}

fn render_parts(parts: &[(u64, &TemplatePart)], seed: Seed) -> Vec<u8> {
    let size = parts.iter().map(|(_, part)| part_bytes(part)).sum();
    encode(false, size, |out| write_parts(out, parts, seed)).into()
}

/// Writes random text: base64 as in `OriginSimulator`, which gzip shrinks by a quarter.
fn write_random(out: &mut dyn Write, size: u64, seed: Seed) -> io::Result<()> {
    let mut stream = seed.stream("content");
    // A whole number of the generator's words and of base64 groups, so the text does not depend on the buffer's size.
    let (mut random, mut text) = ([0; 3 << 10], [0; 4 << 10]);
    let mut rest = size;
    while rest > 0 {
        stream.fill_bytes(&mut random);
        let encoded = STANDARD.encode_slice(random, &mut text).unwrap_or_default() as u64;
        let chunk = encoded.min(rest);
        out.write_all(&text[..usize::try_from(chunk).unwrap_or_default()])?;
        rest -= chunk;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::recipe::parse;

    fn content(recipe: &str) -> Arc<VersionedContent> {
        Arc::new(VersionedContent::new(&parse(recipe, "recipe", Path::new("")).unwrap()[0], None, Seed(1)))
    }

    const BEGAN: SystemTime = SystemTime::UNIX_EPOCH;
    const LARGE: &str = r#"{"body": "<<1mb>><<version>>", "version_every": "1s", "etag": true}"#;

    #[tokio::test]
    async fn last_two_versions_are_cached() {
        for recipe in [LARGE, &LARGE.replace("1mb", "1b")] {
            let content = content(recipe);
            let (one, two) = (content.representation(1, BEGAN).await, content.representation(2, BEGAN).await);
            for (version, built) in [(1, &one), (2, &two), (1, &one), (2, &two)] {
                assert!(
                    Arc::ptr_eq(&content.representation(version, BEGAN).await, built),
                    "version {version}"
                );
            }
            // Versions share their random text.
            assert_eq!(one.body[..one.body.len() - 1], two.body[..two.body.len() - 1]);
            // A number with another start is another version.
            let later = content.representation(2, BEGAN + std::time::Duration::from_secs(1)).await;
            assert!(!Arc::ptr_eq(&later, &two));
        }
    }

    #[tokio::test]
    async fn large_version_is_built_once_for_all_requests() {
        let content = content(LARGE);
        let (a, b) = tokio::join!(content.representation(1, BEGAN), content.representation(1, BEGAN));
        assert!(Arc::ptr_eq(&a, &b));
    }

    #[tokio::test]
    async fn headers_depend_on_status() {
        let content = content(
            r#"{"body": "b", "etag": true, "last_modified": true, "version_every": "1s",
                "headers": {"vary": "accept", "content-encoding": "gzip"}}"#,
        );
        let representation = content.representation(1, BEGAN).await;
        let names = |status: u16| {
            let headers = representation.headers_for(StatusCode::from_u16(status).unwrap());
            let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
            names.sort_unstable();
            names
        };
        let others = ["cache-control", "content-type", "stockade-version", "vary"];
        let of_304 = ["cache-control", "etag", "last-modified", "stockade-version", "vary"];
        assert_eq!([names(206), names(404), names(500), names(412)], [others; 4]);
        assert_eq!(names(304), of_304);
        assert!(others.iter().chain(&of_304).all(|name| names(200).contains(name)));
        assert!(names(200).contains(&"content-encoding") && names(200).contains(&"accept-ranges"));
    }

    #[test]
    fn random_text_does_not_depend_on_chunks() {
        for size in [0, 1, 4_095, 4_096, 4_097, 10_000] {
            let mut text = Vec::new();
            write_random(&mut text, size, Seed(1)).unwrap();
            let size = usize::try_from(size).unwrap();
            let mut bytes = vec![0; size.div_ceil(4) * 3];
            Seed(1).stream("content").fill_bytes(&mut bytes);
            assert_eq!(text, STANDARD.encode(bytes).as_bytes()[..size]);
        }
    }
}
