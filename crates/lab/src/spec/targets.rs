//! `[target]`: the registry of its kinds. A new kind needs a file with a `Target`, a reader of its tables, and
//! a line here.

use std::ops::Range;

use stockade_cache::spec::TomlError;
use stockade_model::nearest::remedy;
use toml::de::{DeTable, DeValue};

#[cfg(feature = "http")]
use super::http;
use super::{Cell, engine, fleet, tables::TomlTable};

pub(super) const SECTIONS: [&str; 9] =
    ["target", "origin", "cache", "fleet", "proxy", "load", "event", "preflight", "sample"];

/// The names of the test and the arm of a merged table.
#[derive(Clone, Copy)]
pub(super) struct CellNames<'a> {
    pub(super) test: &'a str,
    pub(super) arm: &'a str,
}

/// Reads the tables of one test and arm: a cell for each swept combination.
type ReadCells = fn(TomlTable<'_>, CellNames<'_>, Range<usize>) -> Result<Vec<Cell>, TomlError>;

/// The values of `[target] kind`, in the order of the reference; `None`: not in this build.
const KINDS: [(&str, Option<ReadCells>); 5] = [
    ("engine", Some(engine::read)),
    ("fleet", Some(fleet::read)),
    #[cfg(feature = "http")]
    ("proxy", Some(http::read_proxy)),
    #[cfg(feature = "http")]
    ("app", Some(http::read_app)),
    #[cfg(feature = "http")]
    ("url", Some(http::read_url)),
    #[cfg(not(feature = "http"))]
    ("proxy", None),
    #[cfg(not(feature = "http"))]
    ("app", None),
    #[cfg(not(feature = "http"))]
    ("url", None),
];

/// The values of `[target] kind`.
#[cfg(feature = "schema")]
pub(super) fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.into_iter().map(|(name, _)| name)
}

pub(super) fn cells(
    table: TomlTable<'_>,
    layer: CellNames<'_>,
    span: Range<usize>,
) -> Result<Vec<Cell>, TomlError> {
    let Some((kind, at)) = kind(&table) else {
        // The engine's reader reports the missing key.
        return engine::read(table, layer, span);
    };
    match KINDS.into_iter().find(|(name, _)| *name == kind) {
        Some((_, Some(read))) => read(table, layer, span),
        Some((name, None)) => Err(TomlError {
            message: format!("this build has no target `{name}`"),
            help: Some("build it with the default features, or with `--features http`".to_owned()),
            span: Some(at),
        }),
        None => Err(TomlError {
            message: format!("unknown kind of target `{kind}`"),
            help: Some(remedy(&kind, KINDS.into_iter().map(|(name, _)| name))),
            span: Some(at),
        }),
    }
}

/// `kind` of `[target]`; `url` if that is its only key.
fn kind(table: &TomlTable<'_>) -> Option<(String, Range<usize>)> {
    let DeValue::Table(target) = find(table, "target")?.1 else { return None };
    match find(target, "kind") {
        Some((at, kind)) => Some((kind.as_str()?.to_owned(), at)),
        None => find(target, "url").map(|(at, _)| ("url".to_owned(), at)),
    }
}

pub(super) fn find<'t, 'i>(table: &'t DeTable<'i>, name: &str) -> Option<(Range<usize>, &'t DeValue<'i>)> {
    let (_, value) = table.iter().find(|(key, _)| key.get_ref() == name)?;
    Some((value.span(), value.get_ref()))
}
