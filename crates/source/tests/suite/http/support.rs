//! The common part of the tests of HTTP servers.

use std::{
    fmt::Display,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use serde_json::Value;
use stockade_model::{
    source::{Source, SourceError},
    time::{Live, Runtime},
};
use stockade_source::{SourceUrl, documents::NamedDocument};
use tokio::{sync::Notify, task::JoinSet};

/// Concurrent requests.
pub const TASKS: usize = 64;

/// A guard against hanging, not a bound on speed.
pub const SLACK: Duration = Duration::from_mins(1);

pub fn url(text: &str) -> SourceUrl {
    text.parse().unwrap()
}

/// The URL with one more parameter.
pub fn with(url: &str, parameter: &str) -> SourceUrl {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}{parameter}").parse().unwrap()
}

/// A path, percent-encoded for a URL.
pub fn encoded(path: &Path) -> String {
    path.to_str().unwrap().replace('%', "%25").replace('&', "%26")
}

#[track_caller]
pub fn message<T>(result: Result<T, impl Display>) -> String {
    result.err().expect("an error").to_string()
}

#[track_caller]
pub fn assert_error<T>(result: Result<T, impl Display>, words: &[&str]) {
    let message = message(result);
    assert!(words.iter().all(|word| message.contains(word)), "{message}\n{words:?}");
    assert!(!message.contains("secret") && !message.contains("sesame"), "{message}");
}

/// Checks that the source has only these documents: equal bytes or, if the server reformats them, equal JSON.
pub async fn assert_serves(source: &Arc<dyn Source>, documents: &[NamedDocument]) {
    let ids = source.ids().await.unwrap();
    assert!(ids.is_sorted());
    assert_eq!(ids.len(), documents.len());
    for document in documents {
        let stored = source.fetch(&document.id).await.unwrap().expect("a document");
        if stored != document.body {
            assert_eq!(value(&stored), value(&document.body));
        }
    }
    assert_eq!(source.fetch("not written").await.unwrap(), None, "not found is an answer");
}

/// A document without CouchDB's additions.
pub fn value(document: &[u8]) -> Value {
    let mut value: Value = serde_json::from_slice(document).unwrap();
    value.as_object_mut().unwrap().remove("_rev");
    value
}

/// Fetches in many tasks until each has had an error. Calls `after_first` after the first success of each task. Returns the
/// errors with the duration of the last fetch.
pub async fn fetch_until_errors(
    source: &Arc<dyn Source>,
    documents: &[NamedDocument],
    after_first: impl FnOnce(),
) -> Vec<(SourceError, Duration)> {
    let (begun, all_have) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let clock = Live::new();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (source, clock) = (Arc::clone(source), clock.clone());
        let (begun, all_have) = (Arc::clone(&begun), Arc::clone(&all_have));
        let ids: Vec<_> = documents.iter().map(|document| Arc::clone(&document.id)).collect();
        tasks.spawn(async move {
            for round in 0.. {
                let started = clock.now();
                match source.fetch(&ids[(task + round) % ids.len()]).await {
                    Ok(document) => assert!(document.is_some()),
                    Err(error) => return (error, clock.now() - started),
                }
                if round == 0 && begun.fetch_add(1, Relaxed) + 1 == TASKS {
                    all_have.notify_one();
                }
            }
            unreachable!("the loop has no end");
        });
    }
    all_have.notified().await;
    after_first();
    tasks.join_all().await
}

/// Fetches once in each of many tasks. Returns the results with their durations.
pub async fn fetch_once_each(
    source: &Arc<dyn Source>,
    documents: &[NamedDocument],
) -> Vec<(Result<(), SourceError>, Duration)> {
    let clock = Live::new();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (source, clock) = (Arc::clone(source), clock.clone());
        let document = documents[task % documents.len()].clone();
        tasks.spawn(async move {
            let started = clock.now();
            let fetched = source.fetch(&document.id).await.map(|fetched| {
                assert_eq!(
                    value(&fetched.expect("a document")),
                    value(&document.body),
                    "the document of another key"
                );
            });
            (fetched, clock.now() - started)
        });
    }
    tasks.join_all().await
}

/// Checks that each of many fetches succeeds.
pub async fn assert_all_answered(source: &Arc<dyn Source>, documents: &[NamedDocument]) {
    for (fetched, _) in fetch_once_each(source, documents).await {
        fetched.unwrap();
    }
}

/// Checks that each of many fetches times out, not before its timeout. The wait for a permit counts.
pub async fn assert_all_late(source: &Arc<dyn Source>, documents: &[NamedDocument], timeout: Duration) {
    for (fetched, took) in fetch_once_each(source, documents).await {
        assert!(
            matches!(fetched, Err(SourceError::TimedOut { after, .. }) if after == timeout),
            "{fetched:?}"
        );
        assert!((timeout..timeout + SLACK).contains(&took), "{took:?}");
    }
}
