//! Documents in memory: the source for virtual time.

use std::{collections::BTreeMap, sync::Arc};

use stockade_model::source::{Document, Source, SourceFuture};

use crate::{
    OpenError, OpenFuture, ParseResult, SourceKind, SourceLocation,
    documents::{self, NamedDocument},
};

struct SimulatedSource(BTreeMap<Arc<str>, Document>);

/// The number of generated documents.
struct SimulatedLocation {
    count: usize,
}

pub(crate) const fn kind(schemes: &'static [&'static str]) -> SourceKind {
    SourceKind {
        schemes,
        form: "simulated:COUNT",
        summary: "generated documents in memory (680 without a count), in virtual time",
        is_simulated: true,
        parse,
    }
}

fn parse(_: &str, count: &str) -> ParseResult {
    let count = match count.parse() {
        _ if count.is_empty() => documents::GENERATED,
        Ok(count @ 1..=1_000_000) => count,
        _ => return Err(OpenError::BadCount(count.to_owned())),
    };
    Ok(Arc::new(SimulatedLocation { count }))
}

impl SourceLocation for SimulatedLocation {
    fn open(&self) -> OpenFuture<'_> {
        Box::pin(async { Ok(of(&documents::generate(self.count))) })
    }

    fn fill<'a>(&'a self, documents: &'a [NamedDocument]) -> OpenFuture<'a> {
        Box::pin(async { Ok(of(documents)) })
    }
}

impl std::fmt::Display for SimulatedLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "simulated:{}", self.count)
    }
}

fn of(documents: &[NamedDocument]) -> Arc<dyn Source> {
    Arc::new(SimulatedSource(documents.iter().map(|doc| (Arc::clone(&doc.id), doc.body.clone())).collect()))
}

impl Source for SimulatedSource {
    fn fetch<'a>(&'a self, id: &'a str) -> SourceFuture<'a, Option<Document>> {
        let document = self.0.get(id).cloned();
        Box::pin(async move { Ok(document) })
    }

    fn ids(&self) -> SourceFuture<'_, Vec<Arc<str>>> {
        let ids = self.0.keys().cloned().collect();
        Box::pin(async move { Ok(ids) })
    }
}
