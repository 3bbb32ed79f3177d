//! The lock of a key, held by this node.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use stockade_model::time::{Runtime, before};
use tokio::sync::oneshot;

use super::{
    Inner, VALUE_BYTES_MOST,
    clock::{Micros, micros},
    envelope::Envelope,
    log::Standing,
    wire::message,
};
use crate::tier::{Ended, Lease, Settled, TierFuture};

/// A token that may have the lock of a key. It ends with when it was asked for: what was told before does not
/// outdate its load.
pub(super) struct Held {
    inner: Arc<Inner>,
    key: Bytes,
    number: u64,
    token: String,
    /// When it was asked for, on the server's clock or a little before.
    asked: Micros,
}

/// A lock that this node has. While it is kept its lease is renewed.
pub(super) struct Locked {
    /// None: it is settled.
    held: Option<Held>,
    /// Dropped, it ends the renewals.
    _renewals: Option<oneshot::Sender<()>>,
}

impl Held {
    pub(super) fn new(inner: &Arc<Inner>, key: &Bytes, asked: Micros) -> Self {
        static TAKEN: AtomicU64 = AtomicU64::new(0);
        let number = TAKEN.fetch_add(1, Relaxed);
        let token = format!("{}-{number}-{asked}", inner.node);
        Self { inner: Arc::clone(inner), key: key.clone(), number, token, asked }
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// It was not needed.
    pub(super) fn forget(self) {
        self.inner.unwait(&self.key, self.number);
    }

    /// Nobody knows whether it was taken.
    pub(super) fn abandon(self) {
        self.inner.unwait(&self.key, self.number);
        self.inner.free_later(&self.key, self.token);
    }

    /// It was taken.
    pub(super) fn keep(self) -> Locked {
        self.inner.unwait(&self.key, self.number);
        let (renewals, mut ended) = oneshot::channel();
        let (inner, key, token) = (Arc::downgrade(&self.inner), self.key.clone(), self.token.clone());
        let (live, every) = (self.inner.live.clone(), self.inner.url.lease / 3);
        let renewing = live.clone();
        live.spawn(async move {
            while before(&renewing, renewing.now() + every, &mut ended).await.is_none() {
                let Some(inner) = inner.upgrade() else { return };
                // One that fails is made up for by the next, or the lock is lost.
                if inner.renew(&key, &token).await == Some(0) {
                    return;
                }
            }
        });
        Locked { held: Some(self), _renewals: Some(renewals) }
    }

    /// None was wanted.
    pub(super) fn unlocked(self) -> Locked {
        Locked { held: Some(Self { token: String::new(), ..self }), _renewals: None }
    }
}

impl Lease for Locked {
    fn settle(mut self: Box<Self>, ended: Ended) -> TierFuture<'static, ()> {
        let held = self.held.take();
        Box::pin(async move {
            if let Some(Held { inner, key, token, asked, .. }) = held {
                inner.settle(&key, token, asked, Some(ended)).await;
            }
        })
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let Some(Held { inner, key, token, asked, .. }) = self.held.take() else { return };
        if !token.is_empty() {
            let live = inner.live.clone();
            live.spawn(async move { inner.settle(&key, token, asked, None).await });
        }
    }
}

impl Inner {
    /// Frees a key; `None`: nobody knows what becomes of its load.
    async fn settle(&self, key: &Bytes, token: String, asked: Micros, ended: Option<Ended>) {
        let now = self.live.now();
        let (value, lasts_ms, settled) = match ended {
            Some(Ended::Loaded(kept)) => {
                let time = self.known.lock().clock.earliest(now);
                let stamp = time.saturating_sub(micros(kept.age));
                let began = stamp.saturating_sub(micros(kept.took)).max(asked);
                let envelope = Envelope::seal(&kept, stamp, began);
                let is_outdated =
                    self.known.lock().log.standing(key, &envelope.tags, envelope.began) != Standing::Sound;
                if kept.body.len() > VALUE_BYTES_MOST {
                    (Vec::new(), 0, Settled::Unshared)
                } else if is_outdated {
                    (Vec::new(), 0, Settled::Freed)
                } else {
                    (envelope.write(key), envelope.lasts_ms(time), Settled::Stored)
                }
            }
            Some(Ended::Failed(reason)) => (Vec::new(), 0, Settled::Failed(reason)),
            None => (Vec::new(), 0, Settled::Freed),
        };
        let mut invocation = self.scripts.settle.prepare_invoke();
        for name in self.names(key) {
            invocation.key(name);
        }
        invocation.arg(&token).arg(value).arg(lasts_ms).arg(message(key, &settled));
        let settled = match self.link() {
            Ok(link) => self.invoke::<i64>(&link, &invocation, self.deadline()).await.is_ok(),
            Err(_) => false,
        };
        if !settled && !token.is_empty() {
            self.free_later(key, token);
        }
    }

    /// Renews a lease; 0: it is lost.
    async fn renew(&self, key: &Bytes, token: &str) -> Option<i64> {
        let link = self.link().ok()?;
        let [_, lock, _] = self.names(key);
        let mut invocation = self.scripts.renew.prepare_invoke();
        invocation.key(lock).arg(token).arg(self.lease_ms());
        self.invoke(&link, &invocation, self.deadline()).await.ok()
    }
}
