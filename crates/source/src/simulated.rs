//! Documents in memory: the source for virtual time.

use std::{collections::BTreeMap, sync::Arc};

use stockade_model::source::{Document, Source, SourceFuture};

use crate::{
    OpenError, Opened,
    documents::{self, NamedDocument},
};

struct Simulated(BTreeMap<Arc<str>, Document>);

/// How many documents a URL asks for.
pub(crate) fn count(written: &str) -> Result<usize, OpenError> {
    match written.parse() {
        _ if written.is_empty() => Ok(documents::GENERATED),
        Ok(count @ 1..=1_000_000) => Ok(count),
        _ => Err(OpenError::BadCount(written.to_owned())),
    }
}

pub(crate) fn open(written: &str) -> Opened {
    Ok(of(&documents::generate(count(written)?)))
}

#[expect(clippy::unnecessary_wraps, reason = "as the registry has it: other sources can fail")]
pub(crate) fn fill(_: &str, documents: &[NamedDocument]) -> Opened {
    Ok(of(documents))
}

fn of(documents: &[NamedDocument]) -> Arc<dyn Source> {
    Arc::new(Simulated(documents.iter().map(|doc| (Arc::clone(&doc.id), doc.body.clone())).collect()))
}

impl Source for Simulated {
    fn fetch<'a>(&'a self, id: &'a str) -> SourceFuture<'a, Option<Document>> {
        let document = self.0.get(id).cloned();
        Box::pin(async move { Ok(document) })
    }

    fn ids(&self) -> SourceFuture<'_, Vec<Arc<str>>> {
        let ids = self.0.keys().cloned().collect();
        Box::pin(async move { Ok(ids) })
    }
}
