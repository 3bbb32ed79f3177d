//! tokio's `OnceCell`: no cache, but the reference for coalescing.

use std::convert::Infallible;

use tokio::sync::OnceCell;

use crate::stampede::Coalesce;

/// One value for all keys.
impl Coalesce for OnceCell<u64> {
    fn get_with<F>(
        &self,
        _key: &'static u64,
        load: impl FnOnce() -> F + Send + 'static,
    ) -> impl Future<Output = Result<impl Send, impl Send>> + Send
    where
        F: Future<Output = Result<u64, Infallible>> + Send + 'static,
    {
        self.get_or_try_init(load)
    }
}
