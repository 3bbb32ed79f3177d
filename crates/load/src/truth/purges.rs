//! The purges of a load that a cache has answered, with which later answers are compared.

use std::{
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Purges that a cache has answered with success. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct AnsweredPurges(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// False: `purges` is empty, so that a load without purges takes no lock.
    has_any: AtomicBool,
    purges: RwLock<Vec<AnsweredPurge>>,
}

/// A purge. Times are those since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnsweredPurge {
    /// The path and query of its page. With `*` at its end: of all pages whose path begins with the rest.
    pub path: String,
    /// The start of its request.
    pub sent: Duration,
    /// The end of its answer.
    pub answered: Duration,
}

impl AnsweredPurges {
    /// Adds a purge, for requests that are sent after its answer.
    pub fn add(&self, purge: AnsweredPurge) {
        self.0.purges.write().unwrap_or_else(PoisonError::into_inner).push(purge);
        self.0.has_any.store(true, Ordering::Release);
    }

    fn all(&self) -> Vec<AnsweredPurge> {
        self.0.purges.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// When the last purge of the page was sent that had been answered by `requested`, which is computed only if there are purges.
    pub(crate) fn last_sent(&self, path: &str, requested: impl FnOnce() -> Duration) -> Option<Duration> {
        if !self.0.has_any.load(Ordering::Acquire) {
            return None;
        }
        let requested = requested();
        let purges = self.0.purges.read().unwrap_or_else(PoisonError::into_inner);
        let are_of = |purge: &&AnsweredPurge| purge.answered <= requested && purge.has(path);
        purges.iter().filter(are_of).map(|purge| purge.sent).max()
    }
}

impl AnsweredPurge {
    fn has(&self, path: &str) -> bool {
        match self.path.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => path == self.path,
        }
    }
}

impl PartialEq for AnsweredPurges {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.all() == other.all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_purge_of_the_page_counts_once_it_is_answered() {
        let (purges, at) = (AnsweredPurges::default(), Duration::from_secs);
        assert_eq!(purges.last_sent("/a", || at(99)), None);
        for (path, sent) in [("/a", 10), ("/b*", 20), ("/a", 30)] {
            purges.add(AnsweredPurge { path: path.to_owned(), sent: at(sent), answered: at(sent + 2) });
        }
        for (path, requested, last) in [
            ("/a", 11, None),
            ("/a", 12, Some(10)),
            ("/a", 31, Some(10)),
            ("/a", 32, Some(30)),
            ("/a?x", 99, None),
            ("/b", 22, Some(20)),
            ("/b/c?d", 22, Some(20)),
            ("/c", 99, None),
        ] {
            assert_eq!(purges.last_sent(path, || at(requested)), last.map(at), "{path} at {requested} s");
        }
    }
}
