//! A source made slower.

use std::sync::{Arc, Mutex, PoisonError};

use stockade_model::{
    seed::{Rng, Seed},
    source::{Document, Source, SourceFuture},
    time::Runtime,
};

use crate::Latency;

/// Answers as the source behind it does, after an extra [`Latency`].
pub struct Delayed<R> {
    source: Arc<dyn Source>,
    latency: Latency,
    runtime: R,
    rng: Mutex<Rng>,
}

impl<R: Runtime> Delayed<R> {
    /// Slows `source` down, with latencies drawn from `seed`. No latency: the source itself.
    pub fn wrap(source: Arc<dyn Source>, latency: Latency, runtime: R, seed: Seed) -> Arc<dyn Source> {
        if latency.is_zero() {
            return source;
        }
        Arc::new(Self { source, latency, runtime, rng: Mutex::new(seed.stream("latency")) })
    }
}

impl<R: Runtime> Source for Delayed<R> {
    fn fetch<'a>(&'a self, id: &'a str) -> SourceFuture<'a, Option<Document>> {
        let latency = self.latency.draw(&mut self.rng.lock().unwrap_or_else(PoisonError::into_inner));
        let until = self.runtime.now() + latency;
        Box::pin(async move {
            self.runtime.sleep_until(until).await;
            self.source.fetch(id).await
        })
    }

    fn ids(&self) -> SourceFuture<'_, Vec<Arc<str>>> {
        self.source.ids()
    }
}
