//! What an answer of status 200 has in it: random text, a template's, or another origin's, packed or not.

use std::{hash::BuildHasher, io::Write, sync::Arc, time::SystemTime};

use arc_swap::ArcSwapOption;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use foldhash::quality::FixedState;
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, LAST_MODIFIED},
};
use rand::Rng;
use stockade_model::seed::Seed;

use crate::{
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

/// One version of what a route serves, ready to be sent.
#[derive(Clone, Debug)]
pub struct Rendition {
    /// As it is sent.
    pub body: Bytes,
    pub(crate) filed: Arc<FiledBody>,
    /// What goes out with it.
    pub head: HeaderMap,
    /// What goes out with any other status: without what is said of the body.
    pub head_of_others: HeaderMap,
    version: u64,
}

/// What a route serves, in whatever version.
#[derive(Debug)]
pub struct Shelf {
    headers: HeaderMap,
    source: Source,
    etag: bool,
    last_modified: bool,
    is_versioned: bool,
    seed: Seed,
    /// The version that was asked for last.
    latest: ArcSwapOption<Rendition>,
}

/// What the body is made from.
#[derive(Debug)]
enum Source {
    Made(Bytes),
    /// With holes that every version fills anew.
    Template(Vec<Part>),
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

impl Shelf {
    /// With what was fetched, where the recipe names an origin.
    #[must_use]
    pub fn new(recipe: &Recipe, fetched: Option<Fetched>, seed: Seed) -> Self {
        let is_gzip = is_gzip(&recipe.headers);
        let packed = |text: Vec<u8>| if is_gzip { gzip(&text) } else { text.into() };
        let source = match (&recipe.content, fetched) {
            (Content::Origin(_), Some(fetched)) if fetched.is_gzip => Source::Made(fetched.body),
            (Content::Origin(_), fetched) => {
                Source::Made(packed(fetched.map(|fetched| fetched.body.to_vec()).unwrap_or_default()))
            }
            (Content::Random(size), _) => {
                let mut text = Vec::new();
                add_random(&mut text, *size, seed);
                Source::Made(packed(text))
            }
            (Content::Template(parts), _) if parts.contains(&Part::Version) => {
                Source::Template(parts.clone())
            }
            (Content::Template(parts), _) => Source::Made(packed(filled(parts, seed, 1))),
        };
        Self {
            headers: recipe.headers.clone(),
            source,
            etag: recipe.etag,
            last_modified: recipe.last_modified,
            is_versioned: recipe.version_every.is_some(),
            seed,
            latest: ArcSwapOption::empty(),
        }
    }

    /// A version, which began at a moment.
    #[must_use]
    pub fn version(&self, version: u64, began: impl FnOnce() -> SystemTime) -> Arc<Rendition> {
        if let Some(latest) = self.latest.load().as_ref().filter(|latest| latest.version == version) {
            return Arc::clone(latest);
        }
        let made = Arc::new(self.rendition(version, began()));
        self.latest.store(Some(Arc::clone(&made)));
        made
    }

    /// How much memory it takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &self.source {
            Source::Made(body) => body.len() as u64,
            Source::Template(parts) => {
                let size = |part: &Part| match part {
                    Part::Text(text) => text.len() as u64,
                    Part::Random(size) => *size,
                    Part::Version => 20,
                };
                parts.iter().map(size).sum()
            }
        }
    }

    fn rendition(&self, version: u64, began: SystemTime) -> Rendition {
        let body = match &self.source {
            Source::Made(body) => body.clone(),
            Source::Template(parts) => {
                let text = filled(parts, self.seed, version);
                if is_gzip(&self.headers) { gzip(&text) } else { text.into() }
            }
        };
        let mut head = self.headers.clone();
        set_default(&mut head, CACHE_CONTROL, CACHE_CONTROL_DEFAULT);
        if self.is_versioned {
            head.insert(&VERSION, version.into());
        }
        let mut head_of_others = head.clone();
        // What is told of an error is short and not packed, and no version of anything.
        head_of_others.remove(CONTENT_ENCODING);
        set_default(&mut head_of_others, CONTENT_TYPE, HTML);
        // Packed, it never begins with a brace: what OriginSimulator tells, too.
        let is_json = body.first() == Some(&b'{');
        set_default(&mut head, CONTENT_TYPE, if is_json { JSON } else { HTML });
        head.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if self.etag {
            let hash = FixedState::with_seed(0).hash_one(&body[..]);
            insert_text(&mut head, ETAG, &format!("\"{version}-{hash:016x}\""));
        }
        if self.last_modified {
            insert_text(&mut head, LAST_MODIFIED, &httpdate::fmt_http_date(began));
        }
        let filed = Arc::new(FiledBody::new(body.clone()));
        Rendition { body, filed, head, head_of_others, version }
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

fn gzip(text: &[u8]) -> Bytes {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    // Memory takes whatever is written to it.
    let _ = packed.write_all(text);
    packed.finish().unwrap_or_default().into()
}

/// A template with all its holes filled: random ones with the same text in every version.
fn filled(parts: &[Part], seed: Seed, version: u64) -> Vec<u8> {
    let mut text = Vec::new();
    for (part, n) in parts.iter().zip(0_u64..) {
        match part {
            Part::Text(piece) => text.extend_from_slice(piece.as_bytes()),
            Part::Random(size) => add_random(&mut text, *size, seed.child(&n.to_string())),
            Part::Version => text.extend_from_slice(version.to_string().as_bytes()),
        }
    }
    text
}

/// So many bytes of random text: base64, as OriginSimulator has it, which gzip makes a quarter smaller.
fn add_random(text: &mut Vec<u8>, size: u64, seed: Seed) {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let mut random = vec![0; size.div_ceil(4) * 3];
    seed.stream("content").fill_bytes(&mut random);
    let encoded = STANDARD.encode(&random);
    text.extend_from_slice(&encoded.as_bytes()[..size]);
}
