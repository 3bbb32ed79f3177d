//! A source that behaves as its stages have it, and works on so many fetches at once.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    future::pending,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use rand::RngExt;
use stockade_model::{
    capacity::{Desk, Full},
    seed::{Rng, Seed},
    source::{Document, Source, SourceError, SourceFuture},
    time::{Runtime, Time},
};

use crate::stages::{Conduct, Stages, State};

/// Answers as the source behind it does, if and when its [`Conduct`] lets it, and counts who asks.
///
/// Before it [begins](Self::begin) it stands aside: it is as slow as in its first stage, and neither fails
/// nor counts.
pub struct Staged<R> {
    source: Arc<dyn Source>,
    stages: Stages,
    runtime: R,
    began: OnceLock<Time>,
    door: Mutex<Door>,
    versions: Mutex<BTreeMap<Arc<str>, u64>>,
}

/// A document, and how old it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// Its bytes.
    pub document: Document,
    /// How often it had been [written](Staged::write) when the source was asked.
    pub version: u64,
    /// When the source answered.
    pub at: Time,
}

/// Who came, who is inside.
struct Door {
    desk: Desk,
    latencies: Rng,
    errors: Rng,
    fetches: u64,
    by_second: BTreeMap<u64, u64>,
    /// Fetches that somebody waits for.
    awaited: usize,
    /// When the origin will be done with those that nobody waits for any more.
    abandoned: BinaryHeap<Reverse<Time>>,
    concurrent_max: usize,
}

/// What becomes of a fetch that came to the door.
enum Admitted<'a, R: Runtime> {
    /// It stands aside: until then nothing else happens.
    Passed(Time),
    Inside(Visit<'a, R>),
    /// Until whoever waits for it gives up.
    Unanswered(Visit<'a, R>),
    Refused(&'static str),
}

/// A fetch that somebody waits for. If nobody does any more, it is worked on until it `ends`.
struct Visit<'a, R: Runtime> {
    staged: &'a Staged<R>,
    ends: Time,
    fails: bool,
}

impl<R: Runtime> Staged<R> {
    /// In front of `source`, with latencies and errors drawn from `seed`.
    pub fn new(source: Arc<dyn Source>, conduct: &Conduct, runtime: R, seed: Seed) -> Self {
        let door = Door {
            desk: Desk::new(conduct.capacity),
            latencies: seed.stream("latency"),
            errors: seed.stream("errors"),
            fetches: 0,
            by_second: BTreeMap::new(),
            awaited: 0,
            abandoned: BinaryHeap::new(),
            concurrent_max: 0,
        };
        Self {
            source,
            stages: conduct.stages.clone(),
            runtime,
            began: OnceLock::new(),
            door: Mutex::new(door),
            versions: Mutex::default(),
        }
    }

    /// The load begins now: from here on stages are counted. Only the first time counts.
    pub fn begin(&self) {
        self.began.get_or_init(|| self.runtime.now());
    }

    /// How many fetches have come to the door, whatever became of them.
    pub fn fetches(&self) -> u64 {
        self.door().fetches
    }

    /// How many of them came in which of these seconds since the beginning. Each is told once.
    pub fn take_fetches(&self, until: Bound<u64>) -> BTreeMap<u64, u64> {
        let by_second = &mut self.door().by_second;
        let later = match until {
            Bound::Included(second) => by_second.split_off(&second.saturating_add(1)),
            Bound::Excluded(second) => by_second.split_off(&second),
            Bound::Unbounded => BTreeMap::new(),
        };
        std::mem::replace(by_second, later)
    }

    /// The most fetches that were inside at once: waiting for their turn or worked on, whether or not
    /// anybody still waited for them, or waited for in vain while the source was silent.
    pub fn concurrent_max(&self) -> usize {
        self.door().concurrent_max
    }

    /// How many fetches are inside that somebody waits for.
    pub fn awaited(&self) -> usize {
        self.door().awaited
    }

    /// Writes the document with this id anew: its bytes stay, its version is one more; which it is.
    pub fn write(&self, id: &Arc<str>) -> u64 {
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        let version = versions.entry(Arc::clone(id)).or_default();
        *version += 1;
        *version
    }

    /// The document with this id, and which version of it that is.
    pub async fn fetch_stamped(&self, id: &str) -> Result<Option<Stamped>, SourceError> {
        // As a database does, it reads what is there when it is asked, however long the answer takes.
        let version = self.versions.lock().unwrap_or_else(PoisonError::into_inner).get(id).copied();
        let document = self.fetch(id).await?;
        let stamp =
            |document| Stamped { document, version: version.unwrap_or_default(), at: self.runtime.now() };
        Ok(document.map(stamp))
    }

    fn door(&self) -> MutexGuard<'_, Door> {
        self.door.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self) -> Admitted<'_, R> {
        let mut door = self.door();
        let door = &mut *door;
        let now = self.runtime.now();
        let Some(began) = self.began.get().copied() else {
            return Admitted::Passed(now + self.stages.at(Duration::ZERO).latency.draw(&mut door.latencies));
        };
        door.fetches += 1;
        *door.by_second.entry((now - began).as_secs()).or_default() += 1;
        match self.stages.at(now - began).state {
            State::Up => {}
            State::Refusing => return Admitted::Refused("connection refused"),
            State::Silent => return Admitted::Unanswered(self.enter(door, now, now, false)),
        }
        let mut fails = false;
        let ends = door.desk.admit(now, |turn: Time| -> Duration {
            let stage = self.stages.at(turn - began);
            fails = stage.errors > 0.0 && door.errors.random_bool(stage.errors.min(1.0));
            stage.latency.draw(&mut door.latencies)
        });
        let ends = match ends {
            Ok(ends) => ends,
            Err(Full) => return Admitted::Refused("its queue is full"),
        };
        Admitted::Inside(self.enter(door, now, ends, fails))
    }

    fn enter(&self, door: &mut Door, now: Time, ends: Time, fails: bool) -> Visit<'_, R> {
        while door.abandoned.peek().is_some_and(|ends| ends.0 <= now) {
            door.abandoned.pop();
        }
        door.awaited += 1;
        door.concurrent_max = door.concurrent_max.max(door.awaited + door.abandoned.len());
        Visit { staged: self, ends, fails }
    }
}

impl<R: Runtime> Drop for Visit<'_, R> {
    fn drop(&mut self) {
        let mut door = self.staged.door();
        door.awaited -= 1;
        if self.staged.runtime.now() < self.ends {
            door.abandoned.push(Reverse(self.ends));
        }
    }
}

fn failed<T>(reason: &str) -> Result<T, SourceError> {
    Err(SourceError::Failed { source_name: "the origin".to_owned(), reason: reason.to_owned() })
}

impl<R: Runtime> Source for Staged<R> {
    /// It is at the door when this is called.
    fn fetch<'a>(&'a self, id: &'a str) -> SourceFuture<'a, Option<Document>> {
        let admitted = self.admit();
        Box::pin(async move {
            match admitted {
                Admitted::Passed(until) => {
                    self.runtime.sleep_until(until).await;
                    self.source.fetch(id).await
                }
                Admitted::Unanswered(_visit) => pending().await,
                Admitted::Refused(reason) => failed(reason),
                Admitted::Inside(visit) => {
                    self.runtime.sleep_until(visit.ends).await;
                    if visit.fails {
                        failed("it answered with an error")
                    } else {
                        self.source.fetch(id).await
                    }
                }
            }
        })
    }

    fn ids(&self) -> SourceFuture<'_, Vec<Arc<str>>> {
        self.source.ids()
    }
}
