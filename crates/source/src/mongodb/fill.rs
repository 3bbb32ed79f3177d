//! Documents go into a collection.

use std::collections::HashMap;

use bson::{Document, RawDocumentBuf, doc};

use super::{desk::Desk, trouble::Trouble};
use crate::{OpenError, documents::NamedDocument};

/// How many documents are sent at once.
const BATCH: usize = 1_000;

impl Desk {
    /// Inserts what is not there yet. Somebody's collection is not written to, unless it holds nothing but
    /// documents of these: a filling that was cut off goes on.
    pub(super) async fn fill(&self, documents: &[NamedDocument]) -> Result<(), OpenError> {
        let mut missing = HashMap::with_capacity(documents.len());
        for document in documents {
            missing.insert(&*document.id, self.convert(document)?);
        }
        let refused = |trouble| self.refused(trouble);
        let stored = self.ask(self.documents.count_documents(doc! {})).await.map_err(refused)?;
        if stored > 0 && !self.take_out(&mut missing).await.map_err(refused)? {
            let remedy = "leave --docs-from out to use them, or name a new collection with collection=NAME";
            return Err(self.remote.unusable(format!("it holds {stored} other documents; {remedy}")));
        }
        // In the order that they were given.
        let missing: Vec<_> = documents.iter().filter_map(|document| missing.remove(&*document.id)).collect();
        for batch in missing.chunks(BATCH) {
            let batch = batch.iter().map(RawDocumentBuf::try_from).collect::<Result<Vec<_>, _>>();
            let batch = batch.map_err(|error| self.remote.unusable(error))?;
            self.ask(self.documents.insert_many(batch)).await.map_err(refused)?;
        }
        Ok(())
    }

    fn convert(&self, document: &NamedDocument) -> Result<Document, OpenError> {
        serde_json::from_slice(&document.body).map_err(|error| {
            self.remote.unusable(format!("the document `{}` cannot be BSON: {error}", document.id))
        })
    }

    /// Takes what is stored already out of `missing`; false if something else is stored.
    async fn take_out(&self, missing: &mut HashMap<&str, Document>) -> Result<bool, Trouble> {
        let mut cursor = self.ask(self.documents.find(doc! {})).await?;
        while self.ask(cursor.advance()).await? {
            let Ok(stored) = Document::try_from(cursor.current()) else { return Ok(false) };
            let Ok(id) = stored.get_str("_id") else { return Ok(false) };
            if missing.remove(id).as_ref() != Some(&stored) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
