//! Which loads may begin: so many at once over all keys, and only with room for their values.

use std::{hash::Hash, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    answer::Error,
    budget::{Progress, Reservation, Waiting},
    store::Store,
    strategy::Load,
    sync::{AtomicUsize, Ordering},
};

const NEVER_CLOSED: &str = "nobody closes it";

/// Lets loads begin, or has them queue.
#[derive(Debug)]
pub(crate) struct Admission {
    /// None: as many as there are.
    permits: Option<Arc<Semaphore>>,
    queue: usize,
    queued: AtomicUsize,
    /// Who waits for room waits alone, and the others behind it.
    head: Semaphore,
}

/// A load may go on while this is held.
#[derive(Debug)]
pub(crate) struct Pass {
    reservation: Option<Reservation>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Pass {
    /// The load has brought something: the room that its value may take, and its place among those under way.
    pub(crate) fn into_parts(self) -> (Option<Reservation>, Option<OwnedSemaphorePermit>) {
        (self.reservation, self.permit)
    }
}

impl Admission {
    pub(crate) fn new(load: &Load) -> Self {
        let permits = |most: usize| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Self {
            permits: load.max_concurrent.map(permits),
            queue: load.queue,
            queued: AtomicUsize::new(0),
            head: Semaphore::new(1),
        }
    }

    /// Lets the load of a key begin now, unless it has to queue.
    pub(crate) fn try_enter<K, V>(&self, store: &Store<K, V>, key: &K, takes_room: bool) -> Option<Pass>
    where
        K: Hash + Eq + Clone,
        V: Clone,
    {
        if self.queued.load(Ordering::SeqCst) > 0 {
            return None;
        }
        let permit = match &self.permits {
            Some(permits) => Some(Arc::clone(permits).try_acquire_owned().ok()?),
            None => None,
        };
        let reservation = match store.budget().filter(|_| takes_room) {
            Some(budget) => {
                let mut room = Reservation::none(budget);
                if store.reserve_for_load(key, &mut room) != Progress::Done {
                    return None;
                }
                Some(room)
            }
            None => None,
        };
        Some(Pass { reservation, permit })
    }

    /// Queues until the load of a key may begin; an error if the queue is full.
    pub(crate) async fn enter<K, V>(
        &self,
        store: &Store<K, V>,
        key: &K,
        takes_room: bool,
    ) -> Result<Pass, Error>
    where
        K: Hash + Eq + Clone,
        V: Clone,
    {
        let _queued =
            Waiting::try_begin(&self.queued, self.queue).ok_or(Error::Overloaded { queue: self.queue })?;
        let permit = match &self.permits {
            Some(permits) => Some(Arc::clone(permits).acquire_owned().await.expect(NEVER_CLOSED)),
            None => None,
        };
        let reservation = match store.budget().filter(|_| takes_room) {
            Some(budget) => {
                let _head = self.head.acquire().await.expect(NEVER_CLOSED);
                let mut room = Reservation::none(budget);
                budget.until(|| store.reserve_for_load(key, &mut room)).await;
                Some(room)
            }
            None => None,
        };
        Ok(Pass { reservation, permit })
    }
}
