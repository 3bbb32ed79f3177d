//! Recipes: the content and behavior of each route.

mod error;
mod fields;
mod json;
mod parse;
mod stage;
mod template;
mod units;

use std::time::Duration;

pub use error::RecipeError;
use http::{
    HeaderMap, HeaderName, Uri,
    header::{CACHE_CONTROL, CONTENT_ENCODING},
};
pub use parse::parse;
use stockade_model::capacity::Capacity;

use crate::stages::Stages;

/// Largest text that [`parse`] reads.
pub const TEXT_BYTES_MAX: usize = 64 << 20;
/// Largest content of one route.
pub const CONTENT_BYTES_MAX: u64 = 256 << 20;

/// Headers that tell a shared cache how long a response is fresh (RFC 9111, RFC 9213).
pub(crate) const CACHE_HEADERS: [HeaderName; 3] = [
    CACHE_CONTROL,
    HeaderName::from_static("cdn-cache-control"),
    HeaderName::from_static("surrogate-control"),
];

/// The content and behavior of one route.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// An exact path (`/sport`), or a prefix with a `*` at its end (`/news*`).
    pub route: String,
    /// Body of a response with status 200, before compression.
    pub content: Content,
    /// Headers of every response. Names are lower case.
    pub headers: HeaderMap,
    /// Statuses, latencies and faults over time.
    pub stages: Stages,
    /// Requests that the route works on at once; `None`: unlimited.
    pub capacity: Option<Capacity>,
    /// Responses carry an `ETag` that the origin makes from content and version.
    pub etag: bool,
    /// Responses carry a `Last-Modified`: the start of the version.
    pub last_modified: bool,
    /// Responses state the values of this field of the request: each is for one user.
    pub owner: Option<HeaderName>,
    /// Responses state the values of this field of the request, which selects a variant.
    pub variant: Option<HeaderName>,
    /// Lifetime of a version; `None`: the first version never ends.
    pub version_every: Option<Duration>,
    /// The recipe as it was written, with every key of `OriginSimulator` that it left out.
    pub json: serde_json::Value,
}

/// Source of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Fetched from this URL once, when the recipe is added.
    Origin(Uri),
    /// Text with placeholders.
    Template(Vec<TemplatePart>),
    /// Random text of this many bytes.
    Random(u64),
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePart {
    /// Literal text.
    Text(String),
    /// Random text of this many bytes: `<<256kb>>`.
    Random(u64),
    /// The version's number: `<<version>>`.
    Version,
}

impl Recipe {
    /// False: its responses forbid shared caches to store them, since that is OriginSimulator's default.
    pub(crate) fn has_cache_headers(&self) -> bool {
        CACHE_HEADERS.iter().any(|name| self.headers.contains_key(name))
    }

    pub(crate) fn is_gzip(&self) -> bool {
        let encoding = self.headers.get(CONTENT_ENCODING);
        encoding.is_some_and(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"gzip"))
    }
}
