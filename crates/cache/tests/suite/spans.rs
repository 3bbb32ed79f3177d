//! Spans of loads.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use futures_util::future::join_all;
use stockade_cache::{Cache, Strategy};
use stockade_model::{seed::Seed, time::Virtual};
use tracing::{Event, Instrument, Metadata, Subscriber, span};
use tracing_core::span::Current;

/// Counts spans with the name `load`, their parents and their recorded fields.
#[derive(Default)]
struct Spans {
    /// Of this thread.
    open: Mutex<Vec<span::Id>>,
    known: Mutex<Vec<&'static Metadata<'static>>>,
    parents: Mutex<Vec<Option<&'static str>>>,
    begun: AtomicU64,
    recorded: AtomicU64,
    entered: AtomicU64,
}

struct Watch(Arc<Spans>);

fn number(id: &span::Id) -> usize {
    usize::try_from(id.into_u64() - 1).unwrap()
}

impl Subscriber for Watch {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut known = self.0.known.lock().unwrap();
        if attributes.metadata().name() == "load" {
            self.0.begun.fetch_add(1, Ordering::Relaxed);
            let parent = attributes.parent().map(|id| known[number(id)].name());
            self.0.parents.lock().unwrap().push(parent);
        }
        known.push(attributes.metadata());
        span::Id::from_u64(known.len() as u64)
    }

    fn current_span(&self) -> Current {
        let open = self.0.open.lock().unwrap();
        let Some(id) = open.last() else { return Current::none() };
        Current::new(id.clone(), self.0.known.lock().unwrap()[number(id)])
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {
        self.0.recorded.fetch_add(1, Ordering::Relaxed);
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, id: &span::Id) {
        self.0.entered.fetch_add(1, Ordering::Relaxed);
        self.0.open.lock().unwrap().push(id.clone());
    }

    fn exit(&self, _: &span::Id) {
        self.0.open.lock().unwrap().pop();
    }
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
            let failing = cache.get_with(2, async || Err::<u32, _>("on purpose"));
            failing.instrument(tracing::info_span!("request")).await.unwrap_err();
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
    let parents = spans.parents.lock().unwrap();
    assert_eq!(parents[parents.len() - 2..], [None, Some("request")], "that of its caller");
}

/// A load in a cache of its own.
fn one_load() {
    let time = Virtual::new();
    let cache: Cache<u32, u32, Virtual> =
        Cache::builder(Strategy::preset("stampede").unwrap()).build_on(time.clone(), Seed(1)).unwrap();
    time.run(async { cache.get_with(1, async || Ok::<_, std::io::Error>(1)).await.unwrap() }).unwrap();
}
