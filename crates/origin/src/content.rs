//! What an answer of status 200 has in it: random text, a template's, or another origin's, packed or not.

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
use tokio::sync::Mutex;

use crate::{
    beside::beside,
    recipe::{Content, Part, Recipe},
    wire::FiledBody,
};

/// Which version an answer is, from 1.
pub static VERSION: HeaderName = HeaderName::from_static("stockade-version");
/// When it was made: seconds since 1970, with six decimals.
pub static TIME: HeaderName = HeaderName::from_static("stockade-time");

/// What is said of every answer that a recipe says nothing else of.
const CACHE_CONTROL_DEFAULT: HeaderValue = HeaderValue::from_static("max-age=0, private, must-revalidate");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

/// So large a text is made on the thread that serves; a larger one beside it.
const QUICK_BYTES_MAX: usize = 64 << 10;
/// How often a template with a version is in memory: its pieces, and the last two versions.
const TEMPLATE_COPIES: u64 = 3;

/// One version of what a route serves, ready to be sent.
#[derive(Clone, Debug)]
pub struct Rendition {
    /// As it is sent.
    pub body: Bytes,
    pub(crate) filed: Arc<FiledBody>,
    /// What goes out with it.
    pub head: HeaderMap,
    /// What goes out with 304: what names the version, and nothing of the body that is not there (RFC 9110, 15.4.5).
    pub head_of_304: HeaderMap,
    /// What goes out with any other status: without what is said of the body, or names it.
    pub head_of_others: HeaderMap,
    version: u64,
    began: SystemTime,
}

/// What a route serves, in whatever version.
#[derive(Debug)]
pub struct Shelf {
    headers: HeaderMap,
    source: Source,
    etag: bool,
    last_modified: bool,
    is_versioned: bool,
    /// The versions that were made last: who asks at the turn of two asks for one and the other.
    kept: ArcSwap<[Option<Arc<Rendition>>; 2]>,
    /// Held by whoever makes a large one: the others wait for it.
    making: Arc<Mutex<()>>,
}

/// What the body is made from.
#[derive(Debug)]
enum Source {
    /// The same in every version.
    Made { filed: Arc<FiledBody>, hash: u64 },
    /// Pieces, with the version's number between them.
    Template(Vec<Vec<u8>>),
}

/// A content could not be had from where it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot fetch {uri} for route `{route}`: {reason}")]
pub struct Unavailable {
    /// Where it is.
    pub uri: String,
    /// Which route needs it.
    pub route: String,
    /// Why, and what to do.
    pub reason: String,
}

/// What was fetched.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// As it came.
    pub body: Bytes,
    /// Whether it came packed.
    pub is_gzip: bool,
}

impl Rendition {
    /// What goes out with a status: 200 and 304 are of the body, every other is of another text.
    #[must_use]
    pub fn head_of(&self, status: StatusCode) -> &HeaderMap {
        match status {
            StatusCode::OK => &self.head,
            StatusCode::NOT_MODIFIED => &self.head_of_304,
            _ => &self.head_of_others,
        }
    }
}

impl Shelf {
    /// With what was fetched, where the recipe names an origin. It may take its time.
    #[must_use]
    pub fn new(recipe: &Recipe, fetched: Option<Fetched>, seed: Seed) -> Self {
        let is_gzip = is_gzip(&recipe.headers);
        let source = match (&recipe.content, fetched) {
            (Content::Origin(_), Some(fetched)) if fetched.is_gzip || !is_gzip => Source::made(fetched.body),
            (Content::Origin(_), fetched) => {
                let body = fetched.map(|fetched| fetched.body).unwrap_or_default();
                Source::made(written(is_gzip, body.len() as u64, |to| to.write_all(&body)))
            }
            (Content::Random(size), _) => {
                Source::made(written(is_gzip, *size, |to| write_random(to, *size, seed)))
            }
            (Content::Template(parts), _) => {
                let numbered: Vec<_> = (0_u64..).zip(parts).collect();
                let mut pieces = numbered.split(|(_, part)| **part == Part::Version);
                match (pieces.next(), pieces.next()) {
                    (Some(whole), None) => {
                        let size = whole.iter().map(|(_, part)| size(part)).sum();
                        Source::made(written(is_gzip, size, |to| write_parts(to, whole, seed)))
                    }
                    _ => {
                        let pieces = numbered.split(|(_, part)| **part == Part::Version);
                        Source::Template(pieces.map(|piece| text_of(piece, seed)).collect())
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
            kept: ArcSwap::default(),
            making: Arc::default(),
        }
    }

    /// A version, which began at a moment. It is made where it is not at hand: a large one once, whoever waits for
    /// it, and beside the requests that are served meanwhile.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn version(self: &Arc<Self>, version: u64, began: SystemTime) -> Arc<Rendition> {
        if let Some(kept) = self.kept(version, began) {
            return kept;
        }
        if self.is_quick() {
            return self.make(version, began);
        }
        let making = Arc::clone(&self.making).lock_owned().await;
        if let Some(kept) = self.kept(version, began) {
            return kept;
        }
        let shelf = Arc::clone(self);
        let make = move || {
            // Held to its end, even if nobody waits for it any more.
            let _making = making;
            shelf.make(version, began)
        };
        beside(make).await
    }

    /// How much memory it takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &self.source {
            Source::Made { filed, .. } => filed.body().len() as u64,
            Source::Template(pieces) => {
                pieces.iter().map(|piece| piece.len() as u64).sum::<u64>() * TEMPLATE_COPIES
            }
        }
    }

    fn kept(&self, version: u64, began: SystemTime) -> Option<Arc<Rendition>> {
        let kept = self.kept.load();
        let is_it = |kept: &&Arc<Rendition>| (kept.version, kept.began) == (version, began);
        kept.iter().flatten().find(is_it).cloned()
    }

    /// Whether a version is there at once.
    fn is_quick(&self) -> bool {
        match &self.source {
            Source::Made { .. } => true,
            Source::Template(pieces) => {
                !is_gzip(&self.headers) && pieces.iter().map(Vec::len).sum::<usize>() <= QUICK_BYTES_MAX
            }
        }
    }

    fn make(&self, version: u64, began: SystemTime) -> Arc<Rendition> {
        let made = Arc::new(self.rendition(version, began));
        self.kept.rcu(|kept| [Some(Arc::clone(&made)), kept[0].clone()]);
        made
    }

    fn rendition(&self, version: u64, began: SystemTime) -> Rendition {
        let (filed, hash) = match &self.source {
            Source::Made { filed, hash } => (Arc::clone(filed), *hash),
            Source::Template(pieces) => {
                let number = version.to_string();
                let size = pieces.iter().map(|piece| piece.len() + number.len()).sum::<usize>();
                let body = written(is_gzip(&self.headers), size as u64, |to| {
                    for (n, piece) in pieces.iter().enumerate() {
                        to.write_all(if n == 0 { b"" } else { number.as_bytes() })?;
                        to.write_all(piece)?;
                    }
                    Ok(())
                });
                let hash = if self.etag { hashed(&body) } else { 0 };
                (Arc::new(FiledBody::new(body)), hash)
            }
        };
        let body = filed.body().clone();
        let mut head = self.headers.clone();
        set_default(&mut head, CACHE_CONTROL, CACHE_CONTROL_DEFAULT);
        if self.is_versioned {
            head.insert(&VERSION, version.into());
        }
        if self.etag {
            insert_text(&mut head, ETAG, &format!("\"{version}-{hash:016x}\""));
        }
        if self.last_modified {
            insert_text(&mut head, LAST_MODIFIED, &httpdate::fmt_http_date(began));
        }
        let without = |head: &HeaderMap, names: &[HeaderName]| {
            let mut head = head.clone();
            names.iter().for_each(|name| drop(head.remove(name)));
            head
        };
        let head_of_304 = without(&head, &[CONTENT_ENCODING, CONTENT_TYPE, ACCEPT_RANGES]);
        // What is told of an error is short and not packed, and no version of anything.
        let mut head_of_others = without(&head, &[CONTENT_ENCODING, ACCEPT_RANGES, ETAG, LAST_MODIFIED]);
        set_default(&mut head_of_others, CONTENT_TYPE, HTML);
        // Packed, it never begins with a brace: what OriginSimulator tells, too.
        let is_json = body.first() == Some(&b'{');
        set_default(&mut head, CONTENT_TYPE, if is_json { JSON } else { HTML });
        head.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        Rendition { body, filed, head, head_of_304, head_of_others, version, began }
    }
}

impl Source {
    fn made(body: Bytes) -> Self {
        Self::Made { hash: hashed(&body), filed: Arc::new(FiledBody::new(body)) }
    }
}

/// How much memory a recipe says that its content takes, before it is made; none where it is fetched.
#[must_use]
pub fn declared_bytes(content: &Content) -> u64 {
    match content {
        Content::Origin(_) => 0,
        Content::Random(size) => *size,
        Content::Template(parts) => {
            let copies = if parts.contains(&Part::Version) { TEMPLATE_COPIES } else { 1 };
            parts.iter().map(size).sum::<u64>() * copies
        }
    }
}

/// What goes out where there is no recipe.
#[must_use]
pub fn bare() -> HeaderMap {
    HeaderMap::from_iter([(CACHE_CONTROL, CACHE_CONTROL_DEFAULT), (CONTENT_TYPE, HTML)])
}

/// Whether answers go out packed.
#[must_use]
pub fn is_gzip(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"gzip"))
}

fn set_default(head: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    head.entry(name).or_insert(value);
}

/// What can be no header is left out: ours always can.
fn insert_text(head: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        head.insert(name, value);
    }
}

fn hashed(body: &[u8]) -> u64 {
    FixedState::with_seed(0).hash_one(body)
}

/// A part of no version.
fn size(part: &Part) -> u64 {
    match part {
        Part::Text(text) => text.len() as u64,
        Part::Random(size) => *size,
        Part::Version => 0,
    }
}

/// What is written, of some size, and packed while it is: it is never in memory both ways.
fn written(is_gzip: bool, size: u64, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Bytes {
    let mut text = if is_gzip {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        // Memory takes whatever is written to it.
        let _ = write(&mut packed);
        packed.finish().unwrap_or_default()
    } else {
        let mut text = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        let _ = write(&mut text);
        text
    };
    text.shrink_to_fit();
    text.into()
}

/// Parts of a template with their numbers in it, which say which random text is theirs.
fn write_parts(mut to: &mut dyn Write, parts: &[(u64, &Part)], seed: Seed) -> io::Result<()> {
    for (n, part) in parts {
        match part {
            Part::Text(piece) => to.write_all(piece.as_bytes())?,
            Part::Random(size) => write_random(&mut to, *size, seed.child(&n.to_string()))?,
            Part::Version => {}
        }
    }
    Ok(())
}

fn text_of(parts: &[(u64, &Part)], seed: Seed) -> Vec<u8> {
    written(false, parts.iter().map(|(_, part)| size(part)).sum(), |to| write_parts(to, parts, seed)).into()
}

/// So many bytes of random text: base64, as OriginSimulator has it, which gzip makes a quarter smaller.
fn write_random(to: &mut dyn Write, size: u64, seed: Seed) -> io::Result<()> {
    let mut stream = seed.stream("content");
    // A whole number of words of the generator, and of groups of base64.
    let (mut random, mut text) = ([0; 3 << 10], [0; 4 << 10]);
    let mut rest = size;
    while rest > 0 {
        stream.fill_bytes(&mut random);
        let made = STANDARD.encode_slice(random, &mut text).unwrap_or_default() as u64;
        let part = made.min(rest);
        to.write_all(&text[..usize::try_from(part).unwrap_or_default()])?;
        rest -= part;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::recipe::read;

    fn shelf(recipe: &str) -> Arc<Shelf> {
        Arc::new(Shelf::new(&read(recipe, "recipe", Path::new("")).unwrap()[0], None, Seed(1)))
    }

    const BEGAN: SystemTime = SystemTime::UNIX_EPOCH;
    const LARGE: &str = r#"{"body": "<<1mb>><<version>>", "version_every": "1s", "etag": true}"#;

    #[tokio::test]
    async fn the_last_two_versions_are_kept() {
        for recipe in [LARGE, &LARGE.replace("1mb", "1b")] {
            let shelf = shelf(recipe);
            let (one, two) = (shelf.version(1, BEGAN).await, shelf.version(2, BEGAN).await);
            for (version, made) in [(1, &one), (2, &two), (1, &one), (2, &two)] {
                assert!(Arc::ptr_eq(&shelf.version(version, BEGAN).await, made), "version {version}");
            }
            // The random part is the same.
            assert_eq!(one.body[..one.body.len() - 1], two.body[..two.body.len() - 1]);
            // The same version of another beginning is another.
            let later = shelf.version(2, BEGAN + std::time::Duration::from_secs(1)).await;
            assert!(!Arc::ptr_eq(&later, &two));
        }
    }

    #[tokio::test]
    async fn a_large_version_is_made_once_whoever_waits_for_it() {
        let shelf = shelf(LARGE);
        let (a, b) = tokio::join!(shelf.version(1, BEGAN), shelf.version(1, BEGAN));
        assert!(Arc::ptr_eq(&a, &b));
    }

    #[tokio::test]
    async fn every_status_has_the_head_that_fits() {
        let shelf = shelf(
            r#"{"body": "b", "etag": true, "last_modified": true, "version_every": "1s",
                "headers": {"vary": "accept", "content-encoding": "gzip"}}"#,
        );
        let rendition = shelf.version(1, BEGAN).await;
        let names = |status: u16| {
            let head = rendition.head_of(StatusCode::from_u16(status).unwrap());
            let mut names: Vec<_> = head.keys().map(HeaderName::as_str).collect();
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
    fn random_text_is_the_same_in_whatever_pieces_it_is_made() {
        for size in [0, 1, 4_095, 4_096, 4_097, 10_000] {
            let mut text = Vec::new();
            write_random(&mut text, size, Seed(1)).unwrap();
            let size = usize::try_from(size).unwrap();
            let mut random = vec![0; size.div_ceil(4) * 3];
            Seed(1).stream("content").fill_bytes(&mut random);
            assert_eq!(text, STANDARD.encode(random).as_bytes()[..size]);
        }
    }
}
