//! Documents in memory: the source for virtual time.

use std::{collections::BTreeMap, sync::Arc};

use stockade_model::source::{Document, Source, SourceFuture};

use crate::{
    OpenError, Opening, Place, Read,
    documents::{self, NamedDocument},
};

struct Simulated(BTreeMap<Arc<str>, Document>);

/// So many generated documents.
struct Generated {
    count: usize,
}

pub(crate) fn read(_: &str, count: &str) -> Read {
    let count = match count.parse() {
        _ if count.is_empty() => documents::GENERATED,
        Ok(count @ 1..=1_000_000) => count,
        _ => return Err(OpenError::BadCount(count.to_owned())),
    };
    Ok(Arc::new(Generated { count }))
}

impl Place for Generated {
    fn open(&self) -> Opening<'_> {
        Box::pin(async { Ok(of(&documents::generate(self.count))) })
    }

    fn fill<'a>(&'a self, documents: &'a [NamedDocument]) -> Opening<'a> {
        Box::pin(async { Ok(of(documents)) })
    }
}

impl std::fmt::Display for Generated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "simulated:{}", self.count)
    }
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
