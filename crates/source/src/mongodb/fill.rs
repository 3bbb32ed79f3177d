//! Fills a collection.

use std::collections::HashMap;

use bson::{Document, RawDocumentBuf, doc};

use super::{collection::MongoDbCollection, error::MongoDbError};
use crate::{OpenError, documents::NamedDocument};

/// Documents in one message.
const BATCH: usize = 1_000;

impl MongoDbCollection {
    /// Inserts the missing documents. A collection with other documents is refused; one that has a part of these
    /// documents is completed.
    pub(super) async fn fill(&self, documents: &[NamedDocument]) -> Result<(), OpenError> {
        let mut missing = HashMap::with_capacity(documents.len());
        for document in documents {
            missing.insert(&*document.id, self.convert(document)?);
        }
        let open_error = |error| self.open_error(error);
        let stored = self.run(self.documents.count_documents(doc! {})).await.map_err(open_error)?;
        if stored > 0 && !self.holds_subset(&mut missing).await.map_err(open_error)? {
            let remedy = "leave --docs-from out to use them, or name a new collection with collection=NAME";
            return Err(self.remote.unusable(format!("it holds {stored} other documents; {remedy}")));
        }
        // In the given order.
        let missing: Vec<_> = documents.iter().filter_map(|document| missing.remove(&*document.id)).collect();
        for batch in missing.chunks(BATCH) {
            let batch = batch.iter().map(RawDocumentBuf::try_from).collect::<Result<Vec<_>, _>>();
            let batch = batch.map_err(|error| self.remote.unusable(error))?;
            self.run(self.documents.insert_many(batch)).await.map_err(open_error)?;
        }
        Ok(())
    }

    fn convert(&self, document: &NamedDocument) -> Result<Document, OpenError> {
        serde_json::from_slice(&document.body).map_err(|error| {
            self.remote.unusable(format!("the document `{}` cannot be BSON: {error}", document.id))
        })
    }

    /// Removes the stored documents from `missing`. True if each stored document was one of them.
    async fn holds_subset(&self, missing: &mut HashMap<&str, Document>) -> Result<bool, MongoDbError> {
        let mut cursor = self.run(self.documents.find(doc! {})).await?;
        while self.run(cursor.advance()).await? {
            let Ok(stored) = Document::try_from(cursor.current()) else { return Ok(false) };
            let Ok(id) = stored.get_str("_id") else { return Ok(false) };
            if missing.remove(id).as_ref() != Some(&stored) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
