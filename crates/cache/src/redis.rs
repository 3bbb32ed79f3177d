//! A [`Tier`] in Redis or Valkey.
//!
//! ```text
//! PREFIX:v:{:KEY}   a value, with a line before it that says what it is     (envelope.rs)
//! PREFIX:l:{:KEY}   the key's lock: the token of who loads it, for a lease
//! PREFIX:w:{:KEY}   the channels of the nodes that wait for it
//! PREFIX:log        a stream of what nodes told each other                  (log.rs)
//! PREFIX:notes      the channel on which they are told at once
//! PREFIX:node:ID    the channel of one node
//! ```
//!
//! What is there and fresh takes one GET, any other step on a key is one script. One task, the keeper, has the
//! connection: it connects, catches up with the log, sends what this node tells, and looks every quarter of a
//! second whether Redis is still there. While it is not, nobody asks it.

mod clock;
mod envelope;
mod keeper;
mod lease;
mod log;
mod url;
mod wire;

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock, atomic::AtomicU64},
    time::Duration,
};

use ::redis::{FromRedisValue, RedisError, Script, ScriptInvocation};
use bytes::Bytes;
use foldhash::quality::FixedState;
use hashbrown::HashMap;
use stockade_model::{
    seed::Seed,
    time::{Live, Runtime, Time, before},
};
use tokio::sync::{Notify, oneshot, watch};

use crate::{
    sync::Lock,
    tier::{Asked, Kept, Listener, Note, Settled, Tier, TierError, TierFuture, Turn, Want},
};
use clock::{Clock, Micros, micros};
use envelope::{Envelope, NO_STAMP, Terms};
use keeper::{Pending, Waiting};
use lease::Held;
use log::{Log, Standing};
use url::Link;
use wire::NoteId;

pub use url::{RedisUrl, RedisUrlError};

/// What is sent with others is sent in full: an unknown hash would fail them all.
const SETTLE: &str = include_str!("redis/settle.lua");
const OUTDATE: &str = include_str!("redis/outdate.lua");
const NOTE: &str = include_str!("redis/note.lua");

/// Longer keys are not shared, and larger values are not stored.
const KEY_BYTES_MOST: usize = 16 << 10;
const VALUE_BYTES_MOST: usize = 64 << 20;

/// Redis or Valkey, 6.2 or newer, alone or as a cluster.
///
/// ```no_run
/// use stockade_cache::{Cache, Redis, Shared, Strategy, tier::Plain};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::open("redis://:secret@127.0.0.1:6379/0?prefix=people&lease=2s&timeout=100ms")?;
/// redis.check().await?;
/// let people: Cache<String, String> = Cache::builder(Strategy::preset("stampede")?)
///     .shared(Shared::under(redis, Plain, Plain))
///     .build()?;
/// # Ok(())
/// # }
/// ```
///
/// | in the URL | what it is |
/// |---|---|
/// | `redis://`, `rediss://` | without and with TLS; `redis+cluster://A:1,B:2` and `rediss+cluster://` name some nodes of a cluster |
/// | `prefix` | what all its names begin with; caches of one kind have one (`stockade`) |
/// | `timeout` | how long anything may take (100 ms); what takes longer counts as Redis being gone |
/// | `lease` | how long a lock outlives its node (2 s); it is renewed while the load goes on |
/// | `ca` | a file of certificates to trust in place of the system's |
pub struct Redis(Arc<Inner>);

struct Inner {
    url: RedisUrl,
    node: String,
    live: Live,
    scripts: Scripts,
    /// None: it is not there, or may not be.
    link: Lock<Option<Link>>,
    /// Counts connections.
    generation: AtomicU64,
    known: Lock<Known>,
    pending: Lock<Pending>,
    /// How many of the pending have been sent.
    sent: watch::Sender<u64>,
    /// Something is pending, or the connection is suspect.
    nudge: Notify,
    waiting: Lock<Waiting>,
    listener: OnceLock<Listener>,
}

/// What is known of the server's time, and of what is outdated.
struct Known {
    clock: Clock,
    log: Log,
    /// All notes of the log up to this one have been heard.
    after: NoteId,
    /// And some after it.
    heard: BTreeSet<NoteId>,
    /// When this node was first there.
    began: Micros,
}

impl Known {
    /// Another server has another clock and another log.
    fn forget(&mut self, time: Micros) {
        self.clock = Clock::default();
        self.log.clear();
        self.log.forget_before(time);
        self.after = NoteId::default();
        self.heard.clear();
        self.began = time;
    }
}

struct Scripts {
    ask: Script,
    settle: Script,
    renew: Script,
    catch_up: Script,
}

impl Redis {
    /// Will be where a URL says: it is connected to as soon as it is there, and again whenever it was gone.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn open(url: &str) -> Result<Arc<Self>, RedisUrlError> {
        Ok(Self::at(url.parse()?))
    }

    /// The same of a URL that has been read.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn at(url: RedisUrl) -> Arc<Self> {
        let seed = Seed::from_entropy();
        let inner = Arc::new(Inner {
            url,
            node: format!("{:016x}", seed.0),
            live: Live::new(),
            scripts: Scripts {
                ask: Script::new(include_str!("redis/ask.lua")),
                settle: Script::new(SETTLE),
                renew: Script::new(include_str!("redis/renew.lua")),
                catch_up: Script::new(include_str!("redis/catch_up.lua")),
            },
            link: Lock::new(None),
            generation: AtomicU64::new(0),
            known: Lock::new(Known {
                clock: Clock::default(),
                log: Log::new(seed.child("log").0),
                after: NoteId::default(),
                heard: BTreeSet::new(),
                began: 0,
            }),
            pending: Lock::default(),
            sent: watch::channel(0).0,
            nudge: Notify::new(),
            waiting: Lock::new(HashMap::with_hasher(FixedState::with_seed(seed.child("waiting").0))),
            listener: OnceLock::new(),
        });
        inner.live.spawn(keeper::keep(Arc::downgrade(&inner), inner.live.clone()));
        Arc::new(Self(inner))
    }

    /// Waits until all nodes have been told what this one has told so far: what was invalidated and inserted.
    pub async fn told(&self) -> Result<(), TierError> {
        self.0.link()?;
        self.0.all_sent(self.0.deadline()).await
    }

    /// Removes everything under its prefix, but not from a cluster.
    pub async fn sweep(&self) -> Result<(), TierError> {
        keeper::sweep(&self.0).await
    }

    /// Whether it can be reached and used now; if not, why not.
    pub async fn check(&self) -> Result<(), TierError> {
        keeper::check(&self.0).await
    }

    /// Whether it is there, as far as is known without asking.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.0.link.lock().is_some()
    }
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Inner { url, pending, waiting, .. } = &*self.0;
        let waiting = waiting.lock().values().map(Vec::len).sum::<usize>();
        f.debug_struct("Redis")
            .field("url", url)
            .field("is_up", &self.is_up())
            .field("waiting", &waiting)
            .field("pending", &pending.lock().len())
            .finish()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // The keeper sees that it has nothing to keep.
        self.0.nudge.notify_one();
    }
}

impl Tier for Redis {
    fn ask<'a>(&'a self, key: &'a [u8], want: Want) -> TierFuture<'a, Result<Asked, TierError>> {
        Box::pin(self.0.ask(Bytes::copy_from_slice(key), want))
    }

    fn tell(&self, note: Note) {
        self.0.tell(note);
    }

    fn listen(&self, listener: Listener) {
        let is_first = self.0.listener.set(listener).is_ok();
        assert!(is_first, "a tier belongs to one cache: open another one for this");
    }
}

impl Inner {
    async fn ask(self: &Arc<Self>, key: Bytes, want: Want) -> Result<Asked, TierError> {
        if key.len() > KEY_BYTES_MOST {
            return Err(TierError::Failed(format!("a key of {} bytes is too long to be shared", key.len())));
        }
        let (link, deadline) = (self.link()?, self.deadline());
        self.all_sent(deadline).await?;
        // Who wants what is younger than something it knows seldom finds it.
        if want.younger_than.is_none()
            && let Some(kept) = self.glance(&link, &key, want, deadline).await?
        {
            return Ok(Asked::Found(kept));
        }
        let mut unusable = None;
        loop {
            let asked = self.ask_once(&link, &key, want, unusable, deadline).await?;
            match asked {
                Err(stamp) if unusable.is_none() => unusable = Some(stamp),
                Err(_) => return Err(TierError::Failed("it holds what it should not".to_owned())),
                Ok(asked) => return Ok(asked),
            }
        }
    }

    /// What is stored, if it will do. It costs a fraction of the script, which also says whose turn it is.
    async fn glance(
        &self,
        link: &Link,
        key: &Bytes,
        want: Want,
        deadline: Time,
    ) -> Result<Option<Kept>, TierError> {
        let terms = self.terms(want, self.live.now());
        let stored = self.within(deadline, link, link.get(&self.name("v", key))).await?;
        let envelope = stored.and_then(|stored| Envelope::read(key, &stored.into()));
        let envelope = envelope.filter(|envelope| envelope.meets(terms));
        Ok(envelope.and_then(|envelope| self.open(key, &envelope)).filter(|kept| will_do(kept, want)))
    }

    /// What will do for a node that asks now.
    fn terms(&self, want: Want, now: Time) -> Terms {
        let clock = self.known.lock().clock;
        let (earliest, latest) = (clock.earliest(now), clock.latest(now));
        Terms {
            now: latest,
            oldest: want.younger_than.map_or(0, |age| latest.saturating_sub(micros(age)) + 1),
            since: want.waited.map_or(0, |waited| earliest.saturating_sub(micros(waited)).max(1)),
        }
    }

    /// Asks for what is younger than something that turned out to be of no use; `Err`: there is nothing else.
    async fn ask_once(
        self: &Arc<Self>,
        link: &Link,
        key: &Bytes,
        want: Want,
        unusable: Option<Micros>,
        deadline: Time,
    ) -> Result<Result<Asked, Micros>, TierError> {
        let now = self.live.now();
        let (mut terms, earliest) = (self.terms(want, now), self.known.lock().clock.earliest(now));
        if let Some(stamp) = unusable {
            terms = Terms { oldest: terms.oldest.max(stamp + 1).min(NO_STAMP), since: 0, ..terms };
        }
        // Registered first: the answer to wait for may come before the answer to the question.
        let held = want.locks.then(|| Held::new(self, key, earliest));
        let settled = held.as_ref().map(|held| self.await_settled(key, held));
        let channel = self.channel();
        let mut invocation = self.scripts.ask.prepare_invoke();
        for name in self.names(key) {
            invocation.key(name);
        }
        invocation.arg(terms.now).arg(terms.oldest).arg(terms.since);
        invocation.arg(held.as_ref().map_or("", Held::token)).arg(self.lease_ms()).arg(channel);
        let answer: (String, Option<Vec<u8>>, i64) = match self.invoke(link, &invocation, deadline).await {
            Ok(answer) => answer,
            Err(error) => {
                // It may be executed yet, when nobody wants the lock any more.
                if let Some(held) = held {
                    held.abandon();
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
                if let Some(held) = held {
                    held.forget();
                }
                match (kept, envelope) {
                    (Some(kept), _) if will_do(&kept, want) => Asked::Found(kept),
                    (_, Some(Some(envelope))) => return Ok(Err(envelope.stamp)),
                    // Not even its stamp can be believed: nothing that is there will do.
                    (_, _) => return Ok(Err(NO_STAMP)),
                }
            }
            "ours" => {
                let lease = match held {
                    Some(held) => held.keep(),
                    None => Held::new(self, key, earliest).unlocked(),
                };
                Asked::Wanting { instead: kept, turn: Turn::Ours(Box::new(lease)) }
            }
            _ => {
                let lease_left = Duration::from_millis(u64::try_from(lease_left).unwrap_or(0) + 1);
                let settled: TierFuture<'static, Settled> = match settled {
                    Some(settled) => Box::pin(async { settled.await.unwrap_or(Settled::Freed) }),
                    None => Box::pin(std::future::ready(Settled::Freed)),
                };
                Asked::Wanting { instead: kept, turn: Turn::Theirs { lease_left, settled } }
            }
        }))
    }

    /// A value that was stored, unless it is outdated.
    fn open(&self, key: &Bytes, envelope: &Envelope) -> Option<Kept> {
        let known = self.known.lock();
        let kept = envelope.open(known.clock.latest(self.live.now()))?;
        match known.log.standing(key, &envelope.tags, envelope.began) {
            Standing::Sound => Some(kept),
            Standing::Expired => Some(Kept { fresh_for: Some(Duration::ZERO), ..kept }),
            Standing::Outdated => None,
        }
    }

    fn await_settled(&self, key: &Bytes, held: &Held) -> oneshot::Receiver<Settled> {
        let (tell, settled) = oneshot::channel();
        self.waiting.lock().entry(key.clone()).or_default().push((held.number(), tell));
        settled
    }

    fn link(&self) -> Result<Link, TierError> {
        self.link.lock().clone().ok_or(TierError::Down)
    }

    /// Runs a script.
    async fn invoke<T: FromRedisValue>(
        &self,
        link: &Link,
        invocation: &ScriptInvocation<'_>,
        deadline: Time,
    ) -> Result<T, TierError> {
        self.within(deadline, link, link.invoke(invocation)).await
    }

    /// An answer on a connection.
    async fn within<T>(
        &self,
        deadline: Time,
        link: &Link,
        answer: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, TierError> {
        match before(&self.live, deadline, answer).await {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(error)) => Err(self.failed(link.generation, &error)),
            None => {
                if !self.url.is_cluster() {
                    self.suspect(link.generation);
                }
                Err(TierError::TimedOut)
            }
        }
    }

    /// What an error comes to. One that another connection might not have ends this one; in a cluster it may be
    /// that of one server, and the keeper looks whether the others are there.
    fn failed(&self, generation: u64, error: &RedisError) -> TierError {
        let is_broken = error.is_io_error() || error.is_unrecoverable_error();
        if !self.url.is_cluster() && (is_broken || error.code() == Some("READONLY")) {
            self.suspect(generation);
        }
        if error.is_timeout() {
            return TierError::TimedOut;
        }
        TierError::Failed(keeper::explain(error))
    }

    /// Nobody asks it any more, until the keeper has found that it is there; unless it already has.
    fn suspect(&self, generation: u64) {
        let suspect = self.link.lock().take_if(|link| link.generation == generation);
        if suspect.is_some() {
            self.nudge.notify_one();
        }
    }

    fn names(&self, key: &[u8]) -> [Vec<u8>; 3] {
        ["v", "l", "w"].map(|kind| self.name(kind, key))
    }

    fn name(&self, kind: &str, key: &[u8]) -> Vec<u8> {
        [self.url.prefix.as_bytes(), b":", kind.as_bytes(), b":{:", key, b"}"].concat()
    }

    fn channel(&self) -> String {
        format!("{}:node:{}", self.url.prefix, self.node)
    }

    fn lease_ms(&self) -> u64 {
        u64::try_from(self.url.lease.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Whether what was found may answer. What was waited for may, however short it is fresh.
fn will_do(kept: &Kept, want: Want) -> bool {
    kept.fresh_for != Some(Duration::ZERO) || want.waited.is_some()
}
