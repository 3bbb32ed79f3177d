//! The lock of a key.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use stockade_model::time::{Runtime, before};
use tokio::sync::oneshot;

use super::{
    clock::{Micros, micros},
    envelope::{Envelope, VALUE_BYTES_MAX},
    log::Validity,
    state::RedisState,
    wire::encode_outcome,
};
use crate::tier::{Lease, RemoteLoad, TierFuture, TierValue};

/// A request for the lock of a key. Its token ends with the time of the request: invalidations before that do not
/// concern its load.
pub(super) struct LockRequest {
    inner: Arc<RedisState>,
    key: Bytes,
    number: u64,
    token: String,
    /// The time of the request: a lower bound on the server's clock.
    requested: Micros,
}

/// A lock that this node holds. Its lease is renewed until it is dropped.
pub(super) struct HeldLock {
    /// `None`: completed.
    request: Option<LockRequest>,
    /// Dropping it ends the renewals.
    _renewals: Option<oneshot::Sender<()>>,
}

impl LockRequest {
    pub(super) fn new(inner: &Arc<RedisState>, key: &Bytes, requested: Micros) -> Self {
        static TAKEN: AtomicU64 = AtomicU64::new(0);
        let number = TAKEN.fetch_add(1, Relaxed);
        let token = format!("{}-{number}-{requested}", inner.node);
        Self { inner: Arc::clone(inner), key: key.clone(), number, token, requested }
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Cancels a request that did not take the lock.
    pub(super) fn cancel(self) {
        self.inner.remove_waiter(&self.key, self.number);
    }

    /// Cancels a request with an unknown outcome.
    pub(super) fn release_later(self) {
        self.inner.remove_waiter(&self.key, self.number);
        self.inner.release_later(&self.key, self.token);
    }

    /// The lock was taken.
    pub(super) fn acquired(self) -> HeldLock {
        self.inner.remove_waiter(&self.key, self.number);
        let (renewals, mut ended) = oneshot::channel();
        let (inner, key, token) = (Arc::downgrade(&self.inner), self.key.clone(), self.token.clone());
        let (live, every) = (self.inner.live.clone(), self.inner.url.lease / 3);
        let renewing = live.clone();
        live.spawn(async move {
            while before(&renewing, renewing.now() + every, &mut ended).await.is_none() {
                let Some(inner) = inner.upgrade() else { return };
                // The next renewal follows, or the lock is lost.
                if inner.renew(&key, &token).await == Some(0) {
                    return;
                }
            }
        });
        HeldLock { request: Some(self), _renewals: Some(renewals) }
    }

    /// No lock was requested.
    pub(super) fn unlocked(self) -> HeldLock {
        HeldLock { request: Some(Self { token: String::new(), ..self }), _renewals: None }
    }
}

impl Lease for HeldLock {
    fn complete(mut self: Box<Self>, result: Result<TierValue, String>) -> TierFuture<'static, ()> {
        let request = self.request.take();
        Box::pin(async move {
            if let Some(LockRequest { inner, key, token, requested, .. }) = request {
                inner.complete(&key, token, requested, Some(result)).await;
            }
        })
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        let Some(LockRequest { inner, key, token, requested, .. }) = self.request.take() else { return };
        if !token.is_empty() {
            let live = inner.live.clone();
            live.spawn(async move { inner.complete(&key, token, requested, None).await });
        }
    }
}

impl RedisState {
    /// Releases the lock and publishes the outcome; `None`: unknown.
    async fn complete(
        &self,
        key: &Bytes,
        token: String,
        requested: Micros,
        result: Option<Result<TierValue, String>>,
    ) {
        let now = self.live.now();
        let (value, lasts_ms, outcome) = match result {
            Some(Ok(kept)) => {
                let time = self.replica.lock().clock.earliest(now);
                let stamp = time.saturating_sub(micros(kept.age));
                let began = stamp.saturating_sub(micros(kept.load_duration)).max(requested);
                let envelope = Envelope::new(&kept, stamp, began);
                let is_outdated =
                    self.replica.lock().log.validity(key, &envelope.tags, envelope.began) != Validity::Valid;
                if kept.body.len() > VALUE_BYTES_MAX {
                    (Vec::new(), 0, RemoteLoad::NotShared)
                } else if is_outdated {
                    (Vec::new(), 0, RemoteLoad::Released)
                } else {
                    (envelope.write(key), envelope.lasts_ms(time), RemoteLoad::Stored)
                }
            }
            Some(Err(reason)) => (Vec::new(), 0, RemoteLoad::Failed(reason)),
            None => (Vec::new(), 0, RemoteLoad::Released),
        };
        let mut invocation = self.scripts.complete.prepare_invoke();
        for name in self.names(key) {
            invocation.key(name);
        }
        invocation.arg(&token).arg(value).arg(lasts_ms).arg(encode_outcome(key, &outcome));
        let outcome = match self.link() {
            Ok(link) => self.invoke::<i64>(&link, &invocation, self.deadline()).await.is_ok(),
            Err(_) => false,
        };
        if !outcome && !token.is_empty() {
            self.release_later(key, token);
        }
    }

    /// Renews a lease. Returns 0 if it is lost.
    async fn renew(&self, key: &Bytes, token: &str) -> Option<i64> {
        let link = self.link().ok()?;
        let [_, lock, _] = self.names(key);
        let mut invocation = self.scripts.renew.prepare_invoke();
        invocation.key(lock).arg(token).arg(self.lease_ms());
        self.invoke(&link, &invocation, self.deadline()).await.ok()
    }
}
