//! Recipes: which route serves what, and how it behaves when.

mod error;
mod json;
mod object;
mod read;
mod stage;
mod template;
mod units;

use std::time::Duration;

pub use error::RecipeError;
use http::{HeaderMap, Uri};
pub use read::read;
use stockade_model::capacity::Capacity;

use crate::stages::Stages;

/// A text with recipes in it is no larger.
pub const TEXT_BYTES_MAX: usize = 64 << 20;
/// One content is no larger.
pub const CONTENT_BYTES_MAX: u64 = 256 << 20;

/// What one route serves, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// An exact path (`/sport`), or all that begin so (`/news*`).
    pub route: String,
    /// What an answer of status 200 has in it.
    pub content: Content,
    /// What every answer has in its head, in the names' lower case.
    pub headers: HeaderMap,
    /// What it does when.
    pub stages: Stages,
    /// How much it can do at once; `None`: anything.
    pub capacity: Option<Capacity>,
    /// Whether answers have an `ETag`, made from content and version.
    pub etag: bool,
    /// Whether answers have a `Last-Modified`: when the version began.
    pub last_modified: bool,
    /// How long a version lasts; `None`: for ever.
    pub version_every: Option<Duration>,
    /// The recipe as it was written, and the keys of `OriginSimulator` that it left out.
    pub written: serde_json::Value,
}

/// Where an answer's body comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Asked for once, when the recipe is taken in.
    Origin(Uri),
    /// A text with holes.
    Template(Vec<Part>),
    /// So many bytes of random text.
    Random(u64),
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// As it is.
    Text(String),
    /// So many bytes of random text: `<<256kb>>`.
    Random(u64),
    /// The version's number: `<<version>>`.
    Version,
}
