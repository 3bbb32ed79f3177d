//! Fills a database.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};
use stockade_model::source::SourceError;

use super::CouchDbSource;
use crate::{
    client::{error_message, is_same_value},
    documents::NamedDocument,
};

/// Limit of one request.
const DOCUMENTS_PER_BATCH: usize = 500;

/// Limit of one request, unless one document is larger.
const BYTES_PER_BATCH: usize = 1024 * 1024;

/// A document in CouchDB's form.
#[derive(Clone, Copy)]
struct SizedBody<'a> {
    /// The size of the document as it was given.
    bytes: usize,
    body: &'a Value,
}

impl CouchDbSource {
    /// Creates the database if it is missing, and puts the missing documents. A database with other documents is an error
    /// and stays as it is.
    pub(super) async fn fill(&self, documents: &[NamedDocument]) -> Result<(), SourceError> {
        let bodies: Vec<_> =
            documents.iter().map(|document| self.body(document)).collect::<Result<_, _>>()?;
        if !self.is_there().await? {
            self.create().await?;
        }
        let missing = self.missing_documents(documents, &bodies).await?;
        for batch in batches(&missing) {
            self.put(batch).await?;
        }
        Ok(())
    }

    /// The document in CouchDB's form, without the `_rev` of another database.
    fn body(&self, document: &NamedDocument) -> Result<Value, SourceError> {
        let id = &document.id;
        if id.is_empty() || id.starts_with('_') {
            return Err(self
                .client
                .failed(format!("`{id}` is not an id for CouchDB: begin it with another character")));
        }
        match serde_json::from_slice::<Map<String, Value>>(&document.body) {
            Ok(mut body) => {
                body.remove("_rev");
                body.insert("_id".to_owned(), Value::from(&**id));
                Ok(Value::Object(body))
            }
            Err(_) => Err(self
                .client
                .failed(format!("document `{id}` is not a JSON object: CouchDB holds nothing else"))),
        }
    }

    async fn create(&self) -> Result<(), SourceError> {
        let response = self.client.send(Method::PUT, &self.path, Bytes::new()).await?;
        match response.status() {
            // Another client created it at the same time.
            StatusCode::PRECONDITION_FAILED => Ok(()),
            status if status.is_success() => Ok(()),
            _ => Err(self.client.failed(format!("no new database: {}", error_message(&response)))),
        }
    }

    /// The documents that the database does not have. Other stored documents are an error.
    async fn missing_documents<'a>(
        &self,
        documents: &[NamedDocument],
        bodies: &'a [Value],
    ) -> Result<Vec<SizedBody<'a>>, SourceError> {
        let sizes = documents.iter().map(|document| document.body.len());
        let named: Vec<_> = sizes.zip(bodies).map(|(bytes, body)| SizedBody { bytes, body }).collect();
        let stored = self.listed().await?;
        if stored.is_empty() {
            return Ok(named);
        }
        let ids: HashSet<&str> = documents.iter().map(|document| &*document.id).collect();
        let mut is_other = stored.iter().any(|id| !ids.contains(&**id));
        let mut missing = Vec::new();
        for batch in batches(&named) {
            if is_other {
                break;
            }
            let stored = self.stored_documents(batch).await?;
            for document in batch {
                match stored.get(document.body["_id"].as_str().unwrap_or_default()) {
                    None => missing.push(*document),
                    Some(stored) => is_other |= !is_same_value(stored, document.body),
                }
            }
        }
        if !is_other {
            return Ok(missing);
        }
        let remedy = "leave --docs-from out to use them, or name a new database with --source";
        Err(self.client.failed(format!("it holds {} other documents; {remedy}", stored.len())))
    }

    /// Stored documents of a batch, without revisions.
    async fn stored_documents(&self, batch: &[SizedBody<'_>]) -> Result<HashMap<String, Value>, SourceError> {
        let ids: Vec<_> = batch.iter().map(|document| &document.body["_id"]).collect();
        let keys = Bytes::from(json!({ "keys": ids }).to_string());
        let mut response = self.request_json(Method::POST, "_all_docs?include_docs=true", keys).await?;
        let rows = response["rows"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let stored = rows.into_iter().filter_map(|mut row| {
            let mut document = row["doc"].take();
            document.as_object_mut()?.remove("_rev");
            Some((document["_id"].as_str()?.to_owned(), document))
        });
        Ok(stored.collect())
    }

    async fn put(&self, batch: &[SizedBody<'_>]) -> Result<(), SourceError> {
        let bodies: Vec<_> = batch.iter().map(|document| document.body).collect();
        let response = self
            .request_json(Method::POST, "_bulk_docs", json!({ "docs": bodies }).to_string().into())
            .await?;
        let rows = response.as_array().map(Vec::as_slice).unwrap_or_default();
        match rows.iter().find(|row| !row["error"].is_null()) {
            None => Ok(()),
            Some(row) => {
                Err(self.client.failed(format!("it refused the document {}: {}", row["id"], row["reason"])))
            }
        }
    }
}

/// Splits documents into requests.
fn batches<'a, 'b>(documents: &'a [SizedBody<'b>]) -> impl Iterator<Item = &'a [SizedBody<'b>]> {
    let mut rest = documents;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let mut fits = |document: &SizedBody<'_>| {
            bytes += document.bytes;
            bytes <= BYTES_PER_BATCH
        };
        let count = rest.iter().take(DOCUMENTS_PER_BATCH).take_while(|document| fits(document)).count();
        let (batch, after) = rest.split_at_checked(count.max(1))?;
        rest = after;
        Some(batch)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_bounded_in_documents_and_bytes() {
        let cut = |sizes: &[usize]| {
            let documents: Vec<_> =
                sizes.iter().map(|bytes| SizedBody { bytes: *bytes, body: &Value::Null }).collect();
            batches(&documents).map(<[_]>::len).collect::<Vec<_>>()
        };
        assert_eq!(cut(&[]), [0; 0]);
        assert_eq!(cut(&[10; 1_001]), [500, 500, 1]);
        assert_eq!(
            cut(&[BYTES_PER_BATCH, 1, BYTES_PER_BATCH - 1, 2, BYTES_PER_BATCH * 3, 1]),
            [1, 2, 1, 1, 1]
        );
    }
}
