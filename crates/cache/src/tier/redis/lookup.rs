//! Lookups of keys, and requests for the locks of missing ones.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use stockade_model::time::{Runtime, Time};

use super::{
    clock::{Micros, micros},
    connection::RedisConnection,
    envelope::{Envelope, KEY_BYTES_MAX, NO_STAMP, QueryBounds},
    lease::LockRequest,
    state::RedisState,
};
use crate::tier::{LoadRight, RemoteLoad, TierError, TierFuture, TierQuery, TierReply, TierValue};

impl RedisState {
    pub(super) async fn lookup(
        self: &Arc<Self>,
        key: Bytes,
        query: TierQuery,
    ) -> Result<TierReply, TierError> {
        if key.len() > KEY_BYTES_MAX {
            return Err(TierError::Failed(format!("a key of {} bytes is too long to be shared", key.len())));
        }
        let (link, deadline) = (self.link()?, self.deadline());
        self.wait_sent(deadline).await?;
        // With `younger_than` a value is rarely found: skip the GET.
        if query.younger_than.is_none()
            && let Some(kept) = self.get_fresh(&link, &key, query, deadline).await?
        {
            return Ok(TierReply::Found(kept));
        }
        let mut unusable = None;
        loop {
            let reply = self.lookup_once(&link, &key, query, unusable, deadline).await?;
            match reply {
                Err(stamp) if unusable.is_none() => unusable = Some(stamp),
                Err(_) => return Err(TierError::Failed("it returns invalid values".to_owned())),
                Ok(reply) => return Ok(reply),
            }
        }
    }

    /// Looks up with a GET, which costs a fraction of the script.
    async fn get_fresh(
        &self,
        link: &RedisConnection,
        key: &Bytes,
        query: TierQuery,
        deadline: Time,
    ) -> Result<Option<TierValue>, TierError> {
        let query_bounds = self.query_bounds(query, self.live.now());
        let stored = self.within(deadline, link, link.get(&self.name("v", key))).await?;
        let envelope = stored.and_then(|stored| Envelope::read(key, &stored.into()));
        let envelope = envelope.filter(|envelope| envelope.satisfies(query_bounds));
        Ok(envelope.and_then(|envelope| self.open(key, &envelope)).filter(|kept| is_acceptable(kept, query)))
    }

    /// The times that satisfy a lookup at this moment.
    fn query_bounds(&self, query: TierQuery, now: Time) -> QueryBounds {
        let clock = self.replica.lock().clock;
        let (earliest, latest) = (clock.earliest(now), clock.latest(now));
        QueryBounds {
            now: latest,
            oldest: query.younger_than.map_or(0, |age| latest.saturating_sub(micros(age)) + 1),
            since: query.waited.map_or(0, |waited| earliest.saturating_sub(micros(waited)).max(1)),
        }
    }

    /// Looks up once. `unusable` excludes values up to this stamp; `Err` returns the stamp of another unusable
    /// value.
    async fn lookup_once(
        self: &Arc<Self>,
        link: &RedisConnection,
        key: &Bytes,
        query: TierQuery,
        unusable: Option<Micros>,
        deadline: Time,
    ) -> Result<Result<TierReply, Micros>, TierError> {
        let now = self.live.now();
        let (mut query_bounds, earliest) =
            (self.query_bounds(query, now), self.replica.lock().clock.earliest(now));
        if let Some(stamp) = unusable {
            query_bounds = QueryBounds {
                oldest: query_bounds.oldest.max(stamp + 1).min(NO_STAMP),
                since: 0,
                ..query_bounds
            };
        }
        // Register first: the outcome may arrive before the script's reply.
        let request = query.wants_lock.then(|| LockRequest::new(self, key, earliest));
        let outcome = request.as_ref().map(|request| self.wait_for_outcome(key, request.number()));
        let channel = self.channel();
        let mut invocation = self.scripts.lookup.prepare_invoke();
        for name in self.names(key) {
            invocation.key(name);
        }
        invocation.arg(query_bounds.now).arg(query_bounds.oldest).arg(query_bounds.since);
        invocation.arg(request.as_ref().map_or("", LockRequest::token)).arg(self.lease_ms()).arg(channel);
        let answer: (String, Option<Vec<u8>>, i64) = match self.invoke(link, &invocation, deadline).await {
            Ok(answer) => answer,
            Err(error) => {
                // The script may still run and take the lock.
                if let Some(request) = request {
                    request.release_later();
                }
                return Err(error);
            }
        };
        let (verdict, stored, lease_left) = answer;
        let stored = stored.map(Bytes::from);
        let envelope = stored.as_ref().map(|stored| Envelope::read(key, stored));
        let kept = envelope.as_ref().and_then(|envelope| self.open(key, envelope.as_ref()?));
        Ok(Ok(match verdict.as_str() {
            "found" => {
                if let Some(request) = request {
                    request.cancel();
                }
                match (kept, envelope) {
                    (Some(kept), _) if is_acceptable(&kept, query) => TierReply::Found(kept),
                    (_, Some(Some(envelope))) => return Ok(Err(envelope.stamp)),
                    // Its stamp is invalid too: no stored value is usable.
                    (_, _) => return Ok(Err(NO_STAMP)),
                }
            }
            "ours" => {
                let lease = match request {
                    Some(request) => request.acquired(),
                    None => LockRequest::new(self, key, earliest).unlocked(),
                };
                TierReply::NotFound { stale: kept, right: LoadRight::Granted(Box::new(lease)) }
            }
            _ => {
                let lease_remaining = Duration::from_millis(u64::try_from(lease_left).unwrap_or(0) + 1);
                let outcome: TierFuture<'static, RemoteLoad> = match outcome {
                    Some(outcome) => Box::pin(async { outcome.await.unwrap_or(RemoteLoad::Released) }),
                    None => Box::pin(std::future::ready(RemoteLoad::Released)),
                };
                TierReply::NotFound {
                    stale: kept,
                    right: LoadRight::HeldElsewhere { lease_remaining, outcome },
                }
            }
        }))
    }
}

/// True if a found value may be served. After a wait it may have expired.
fn is_acceptable(kept: &TierValue, query: TierQuery) -> bool {
    kept.fresh_for != Some(Duration::ZERO) || query.waited.is_some()
}
