//! Spans of loads.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use futures_util::future::join_all;
use stockade_cache::{Cache, Strategy};
use stockade_model::{seed::Seed, time::Virtual};
use tracing::{Event, Metadata, Subscriber, span};

/// Counts spans with the name `load`, and their recorded fields.
#[derive(Default)]
struct Spans {
    begun: AtomicU64,
    recorded: AtomicU64,
    entered: AtomicU64,
}

struct Watch(Arc<Spans>);

impl Subscriber for Watch {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        assert_eq!(attributes.metadata().name(), "load");
        span::Id::from_u64(self.0.begun.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {
        self.0.recorded.fetch_add(1, Ordering::Relaxed);
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &span::Id) {
        self.0.entered.fetch_add(1, Ordering::Relaxed);
    }

    fn exit(&self, _: &span::Id) {}
}

#[test]
fn loader_runs_in_the_span_of_its_load() {
    let spans = Arc::<Spans>::default();
    let time = Virtual::new();
    let seen = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let before = tracing::subscriber::with_default(Watch(Arc::clone(&spans)), || {
        // The first thread that reaches a span decides for all threads whether it has a subscriber, and the load of another test
        // has none. The decision is made again with this subscriber, once that thread has registered the span.
        while seen(&spans.begun) == 0 {
            tracing::callsite::rebuild_interest_cache();
            one_load();
        }
        let before = seen(&spans.begun);
        let cache: Cache<u32, u32, Virtual> =
            Cache::builder(Strategy::preset("stampede").unwrap()).build_on(time.clone(), Seed(1)).unwrap();
        time.run(async {
            join_all((0..5).map(|_| cache.get_with(1, async || Ok::<_, std::io::Error>(1)))).await;
            cache.get_with(2, async || Err::<u32, _>("on purpose")).await.unwrap_err();
        })
        .unwrap();
        before
    });
    assert_eq!(
        (seen(&spans.begun) - before, seen(&spans.recorded)),
        (2, 1),
        "two loads, and the error of one"
    );
    assert!(seen(&spans.entered) >= 2);
}

/// A load in a cache of its own.
fn one_load() {
    let time = Virtual::new();
    let cache: Cache<u32, u32, Virtual> =
        Cache::builder(Strategy::preset("stampede").unwrap()).build_on(time.clone(), Seed(1)).unwrap();
    time.run(async { cache.get_with(1, async || Ok::<_, std::io::Error>(1)).await.unwrap() }).unwrap();
}
