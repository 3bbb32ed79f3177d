//! Admission control: bounds the number of concurrent loads, and reserves bytes for their values.

use std::{hash::Hash, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    error::Error,
    locks::{AtomicUsize, Ordering},
    store::{
        Store,
        budget::{EvictionProgress, ReservedBytes, WaitCount},
    },
    strategy::LoadBounds,
};

const NEVER_CLOSED: &str = "the semaphore is never closed";

#[derive(Debug)]
pub(crate) struct Admission {
    /// `None`: no bound.
    permits: Option<Arc<Semaphore>>,
    queue: usize,
    queued: AtomicUsize,
    /// Held by the load that waits for bytes. The others queue behind it.
    head: Semaphore,
}

/// The right to run one load. Dropping it admits another.
#[derive(Debug)]
pub(crate) struct AdmissionPermit {
    reservation: Option<ReservedBytes>,
    permit: Option<OwnedSemaphorePermit>,
}

impl AdmissionPermit {
    /// The bytes reserved for the value, and the slot among the concurrent loads.
    pub(crate) fn into_parts(self) -> (Option<ReservedBytes>, Option<OwnedSemaphorePermit>) {
        (self.reservation, self.permit)
    }
}

impl Admission {
    pub(crate) fn new(load: &LoadBounds) -> Self {
        let permits = |most: usize| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Self {
            permits: load.max_concurrent.map(permits),
            queue: load.queue,
            queued: AtomicUsize::new(0),
            head: Semaphore::new(1),
        }
    }

    /// Admits a load now; `None`: it has to queue.
    pub(crate) fn try_admit<K, V>(
        &self,
        store: &Store<K, V>,
        key: &K,
        reserves_bytes: bool,
    ) -> Option<AdmissionPermit>
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
        let reservation = match store.budget().filter(|_| reserves_bytes) {
            Some(budget) => {
                let mut reservation = ReservedBytes::none(budget);
                if store.reserve_for_load(key, &mut reservation) != EvictionProgress::Done {
                    return None;
                }
                Some(reservation)
            }
            None => None,
        };
        Some(AdmissionPermit { reservation, permit })
    }

    /// Queues until the load is admitted. Returns an error if the queue is full.
    pub(crate) async fn admit<K, V>(
        &self,
        store: &Store<K, V>,
        key: &K,
        reserves_bytes: bool,
    ) -> Result<AdmissionPermit, Error>
    where
        K: Hash + Eq + Clone,
        V: Clone,
    {
        let _queued =
            WaitCount::try_start(&self.queued, self.queue).ok_or(Error::Overloaded { queue: self.queue })?;
        let permit = match &self.permits {
            Some(permits) => Some(Arc::clone(permits).acquire_owned().await.expect(NEVER_CLOSED)),
            None => None,
        };
        let reservation = match store.budget().filter(|_| reserves_bytes) {
            Some(budget) => {
                let _head = self.head.acquire().await.expect(NEVER_CLOSED);
                let mut reservation = ReservedBytes::none(budget);
                budget.wait_until(|| store.reserve_for_load(key, &mut reservation)).await;
                Some(reservation)
            }
            None => None,
        };
        Ok(AdmissionPermit { reservation, permit })
    }
}
