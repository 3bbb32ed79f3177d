//! A fetch of one document, which may not exist any more.

use std::sync::Arc;

use stockade_model::time::Runtime;
use stockade_source::{StagedSource, VersionedDocument};

/// A drawn document does not exist any more. Its request fails, as the published test crashes on `not_found`.
#[derive(Debug, thiserror::Error)]
#[error("the source has no document `{0}` any more")]
pub(super) struct NotFound(pub(super) Arc<str>);

/// The document of this id, or [`NotFound`].
pub(super) async fn fetch<R: Runtime>(
    source: Arc<StagedSource<R>>,
    id: Arc<str>,
) -> Result<VersionedDocument, Box<dyn std::error::Error + Send + Sync>> {
    match source.fetch_stamped(&id).await? {
        Some(stamped) => Ok(stamped),
        None => Err(Box::from(NotFound(id))),
    }
}
