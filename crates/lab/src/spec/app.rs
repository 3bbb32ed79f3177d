//! What the document app is told: `[origin] source`, and a `[cache]` as that of an open load.

use std::{ops::Range, path::Path};

use serde::Deserialize;
use stockade_cache::{
    Strategy,
    spec::{Wrong, written::Text},
};
use stockade_source::SourceUrl;
use toml::{Spanned, de::DeTable};

use super::{
    LoadError,
    cache::{self, Cache},
    node_test, pointing, read_file,
    tables::{self, Table},
};
use crate::engine::{App, Target};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AppTables {
    origin: Origin,
    cache: Option<Spanned<Cache>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Origin {
    source: Text<SourceUrl>,
}

impl App {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let (name, text) = read_file(path)?;
        let app = DeTable::parse(&text).map_err(|error| tables::unreadable(&error)).and_then(|table| {
            let span = table.span();
            read(table.into_inner(), span)
        });
        Ok(app.map_err(|wrong| pointing(wrong, &name, &text))?)
    }
}

/// What the tables mean.
pub(super) fn read(mut table: Table<'_>, span: Range<usize>) -> Result<App, Wrong> {
    let node_test = node_test::take(&mut table)?;
    let AppTables { origin, cache } = tables::read(table, span)?;
    let (target, shared) = match (node_test, &cache) {
        (Some(taken), _) => (Target::NodeTest(taken.test), taken.shared),
        (None, Some(cache)) => {
            let strategy = cache::strategy(cache.get_ref(), Some(cache.span()))?;
            (Target::Cache(Box::new(strategy)), cache::shared(cache.get_ref())?)
        }
        (None, None) => (Target::Cache(Box::new(Strategy::preset("none").expect("it is a preset"))), None),
    };
    Ok(App { source: origin.source.0, target, shared: shared.map(|(tier, _)| tier) })
}
