//! The state that all parts of the tier share: the connection, the server's clock, the log and the waiters.

use std::{
    collections::BTreeSet,
    sync::{OnceLock, atomic::AtomicU64},
    time::Duration,
};

use ::redis::{ErrorKind, FromRedisValue, RedisError, Script, ScriptInvocation};
use bytes::Bytes;
use foldhash::quality::FixedState;
use hashbrown::HashMap;
use stockade_model::{
    seed::Seed,
    time::{Live, Runtime, Time, before},
};
use tokio::sync::{Notify, oneshot};

use super::{
    clock::{Micros, ServerClock},
    connection::RedisConnection,
    envelope::Envelope,
    log::{InvalidationTimes, Validity},
    outbox::Outbox,
    url::RedisUrl,
    wire::EventId,
};
use crate::{
    locks::Lock,
    tier::{EventListener, RemoteLoad, TierError, TierEvent, TierValue},
};

/// Scripts that are sent together with other commands. They are sent in full: a hash that the server does not know
/// would fail all of the commands.
pub(super) const COMPLETE: &str = include_str!("complete.lua");
pub(super) const INVALIDATE: &str = include_str!("invalidate.lua");
pub(super) const PUBLISH: &str = include_str!("publish.lua");

/// Waiters for the loads of other nodes, by key.
pub(super) type WaitersByKey = HashMap<Bytes, Vec<(u64, oneshot::Sender<RemoteLoad>)>, FixedState>;

pub(super) struct RedisState {
    pub(super) url: RedisUrl,
    pub(super) node: String,
    pub(super) live: Live,
    pub(super) scripts: Scripts,
    /// `None`: the connection is down, or may be.
    pub(super) link: Lock<Option<RedisConnection>>,
    /// Counts connections.
    pub(super) generation: AtomicU64,
    pub(super) replica: Lock<LogReplica>,
    pub(super) outbox: Outbox,
    /// Notified when the outbox has something to send, or the connection may be broken.
    pub(super) wake_up: Notify,
    pub(super) waiters: Lock<WaitersByKey>,
    pub(super) listener: OnceLock<EventListener>,
}

/// This node's copy of the log, and of the server's clock.
pub(super) struct LogReplica {
    pub(super) clock: ServerClock,
    pub(super) log: InvalidationTimes,
    /// All events of the log up to this one have been applied.
    pub(super) after: EventId,
    /// Events after `after` that have been applied.
    pub(super) received_ahead: BTreeSet<EventId>,
    /// When this node joined.
    pub(super) began: Micros,
}

impl LogReplica {
    /// Starts anew on another server, which has another clock and another log.
    pub(super) fn cancel(&mut self, time: Micros) {
        self.clock = ServerClock::default();
        self.log.clear();
        self.log.forget_before(time);
        self.after = EventId::default();
        self.received_ahead.clear();
        self.began = time;
    }
}

pub(super) struct Scripts {
    pub(super) lookup: Script,
    pub(super) complete: Script,
    pub(super) renew: Script,
    pub(super) catch_up: Script,
}

impl RedisState {
    pub(super) fn new(url: RedisUrl) -> Self {
        let seed = Seed::from_entropy();
        Self {
            url,
            node: format!("{:016x}", seed.0),
            live: Live::new(),
            scripts: Scripts {
                lookup: Script::new(include_str!("lookup.lua")),
                complete: Script::new(COMPLETE),
                renew: Script::new(include_str!("renew.lua")),
                catch_up: Script::new(include_str!("catch_up.lua")),
            },
            link: Lock::new(None),
            generation: AtomicU64::new(0),
            replica: Lock::new(LogReplica {
                clock: ServerClock::default(),
                log: InvalidationTimes::new(seed.child("log").0),
                after: EventId::default(),
                received_ahead: BTreeSet::new(),
                began: 0,
            }),
            outbox: Outbox::new(),
            wake_up: Notify::new(),
            waiters: Lock::new(HashMap::with_hasher(FixedState::with_seed(seed.child("waiting").0))),
            listener: OnceLock::new(),
        }
    }

    /// Decodes a stored value; `None`: it is outdated.
    pub(super) fn open(&self, key: &Bytes, envelope: &Envelope) -> Option<TierValue> {
        let replica = self.replica.lock();
        let kept = envelope.open(replica.clock.latest(self.live.now()))?;
        match replica.log.validity(key, &envelope.tags, envelope.began) {
            Validity::Valid => Some(kept),
            Validity::Expired => Some(TierValue { fresh_for: Some(Duration::ZERO), ..kept }),
            Validity::Outdated => None,
        }
    }

    /// Registers a waiter for the outcome of another node's load.
    pub(super) fn wait_for_outcome(&self, key: &Bytes, number: u64) -> oneshot::Receiver<RemoteLoad> {
        let (sender, outcome) = oneshot::channel();
        self.waiters.lock().entry(key.clone()).or_default().push((number, sender));
        outcome
    }

    pub(super) fn link(&self) -> Result<RedisConnection, TierError> {
        self.link.lock().clone().ok_or(TierError::Down)
    }

    pub(super) async fn invoke<T: FromRedisValue>(
        &self,
        link: &RedisConnection,
        invocation: &ScriptInvocation<'_>,
        deadline: Time,
    ) -> Result<T, TierError> {
        self.within(deadline, link, link.invoke(invocation)).await
    }

    /// Awaits a reply until the deadline.
    pub(super) async fn within<T>(
        &self,
        deadline: Time,
        link: &RedisConnection,
        answer: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, TierError> {
        match before(&self.live, deadline, answer).await {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(error)) => Err(self.failed(link.generation, &error)),
            None => {
                if !self.url.is_cluster() {
                    self.mark_broken(link.generation);
                }
                Err(TierError::TimedOut)
            }
        }
    }

    /// Converts an error. One that concerns the connection closes it. In a cluster it may concern one server, and
    /// the session checks the others.
    pub(super) fn failed(&self, generation: u64, error: &RedisError) -> TierError {
        let is_broken = error.is_io_error() || error.is_unrecoverable_error();
        if !self.url.is_cluster() && (is_broken || error.code() == Some("READONLY")) {
            self.mark_broken(generation);
        }
        if error.is_timeout() {
            return TierError::TimedOut;
        }
        TierError::Failed(explain(error))
    }

    /// Closes the connection if it is still this one. The session then reconnects.
    pub(super) fn mark_broken(&self, generation: u64) {
        let broken = self.link.lock().take_if(|link| link.generation == generation);
        if broken.is_some() {
            self.wake_up.notify_one();
        }
    }

    pub(super) fn publish(&self, event: TierEvent) {
        self.outbox.publish(event, self.live.now());
        self.wake_up.notify_one();
    }

    /// Releases the lock of a key soon, if this token holds it.
    pub(super) fn release_later(&self, key: &Bytes, token: String) {
        self.outbox.release(key.clone(), token, self.live.now());
        self.wake_up.notify_one();
    }

    /// Waits until everything has been sent that is queued by now.
    pub(super) async fn wait_sent(&self, deadline: Time) -> Result<(), TierError> {
        self.outbox.wait_sent(&self.live, deadline).await
    }

    pub(super) fn names(&self, key: &[u8]) -> [Vec<u8>; 3] {
        ["v", "l", "w"].map(|kind| self.name(kind, key))
    }

    pub(super) fn name(&self, kind: &str, key: &[u8]) -> Vec<u8> {
        [self.url.prefix.as_bytes(), b":", kind.as_bytes(), b":{:", key, b"}"].concat()
    }

    pub(super) fn channel(&self) -> String {
        format!("{}:node:{}", self.url.prefix, self.node)
    }

    pub(super) fn lease_ms(&self) -> u64 {
        u64::try_from(self.url.lease.as_millis()).unwrap_or(u64::MAX)
    }

    /// Wakes the waiters of a key.
    pub(super) fn wake(&self, key: &[u8], outcome: &RemoteLoad) {
        let waiters = self.waiters.lock().remove(key);
        for (_, sender) in waiters.into_iter().flatten() {
            let _ = sender.send(outcome.clone());
        }
    }

    /// Removes a waiter.
    pub(super) fn remove_waiter(&self, key: &Bytes, number: u64) {
        let mut all = self.waiters.lock();
        if let Some(waiters) = all.get_mut(key) {
            waiters.retain(|(waiter, _)| *waiter != number);
            if waiters.is_empty() {
                all.remove(key);
            }
        }
    }

    pub(super) fn deadline(&self) -> Time {
        self.live.now() + self.url.timeout
    }

    pub(super) fn log_name(&self) -> String {
        format!("{}:log", self.url.prefix)
    }

    pub(super) fn events_channel(&self) -> String {
        format!("{}:events", self.url.prefix)
    }
}

/// The message of an error, with advice.
pub(super) fn explain(error: &RedisError) -> String {
    let what = match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS")) => {
            "it refuses the user or the password: check the URL"
        }
        (_, Some("NOAUTH")) => "it asks for a password: write redis://:PASSWORD@HOST",
        (_, Some("NOPERM")) => {
            "its user lacks permissions: add +@scripting +@pubsub +@read +@write ~PREFIX:* &PREFIX:*"
        }
        (_, Some("OOM")) => "it is out of memory: set a `maxmemory-policy` that evicts",
        (ErrorKind::Io, _) => {
            return format!("{error}; check the host and the port, and that it runs and speaks TLS");
        }
        _ => return format!("{error}; check the URL, and that it is Redis 6.2 or newer"),
    };
    what.to_owned()
}
