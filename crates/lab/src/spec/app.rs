//! The settings of the document app: `[origin] source`, and `[cache]` as in open loads.

use std::{ops::Range, path::Path};

use serde::Deserialize;
use stockade_cache::{
    Strategy,
    spec::{TomlError, value::TextValue},
};
use stockade_source::SourceUrl;
use toml::{Spanned, de::DeTable};

#[cfg(feature = "schema")]
use super::schema::SourceText;
use super::{
    LoadError,
    cache::{self, CacheTables},
    node_js_cache, pointing, read_file,
    tables::{self, TomlTable},
};
use crate::engine::{DocumentApp, TestedCache};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub(super) struct AppTables {
    origin: AppOriginTable,
    #[cfg_attr(feature = "schema", schemars(with = "Option<CacheTables>"))]
    cache: Option<Spanned<CacheTables>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct AppOriginTable {
    #[cfg_attr(feature = "schema", schemars(with = "SourceText"))]
    source: TextValue<SourceUrl>,
}

impl DocumentApp {
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let (name, text) = read_file(path)?;
        let app = DeTable::parse(&text).map_err(|error| tables::unreadable(&error)).and_then(|table| {
            let span = table.span();
            read(table.into_inner(), span)
        });
        Ok(app.map_err(|wrong| pointing(wrong, &name, &text))?)
    }
}

pub(super) fn read(mut table: TomlTable<'_>, span: Range<usize>) -> Result<DocumentApp, TomlError> {
    let node_js_test = node_js_cache::take(&mut table)?;
    let AppTables { origin, cache } = tables::read(table, span)?;
    let (target, shared) = match (node_js_test, &cache) {
        (Some(taken), _) => (TestedCache::NodeJsTest(taken.test), taken.shared),
        (None, Some(cache)) => {
            let strategy = cache::strategy(cache.get_ref(), Some(cache.span()))?;
            (TestedCache::Cache(Box::new(strategy)), cache::shared(cache.get_ref())?)
        }
        (None, None) => {
            (TestedCache::Cache(Box::new(Strategy::preset("none").expect("it is a preset"))), None)
        }
    };
    Ok(DocumentApp { source: origin.source.0, target, shared: shared.map(|(tier, _)| tier) })
}
