//! The task that has the connection.

use std::{
    collections::VecDeque,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
    time::Duration,
};

use ::redis::{Cmd, ErrorKind, FromRedisValue, PushInfo, PushKind, RedisError, Value, cmd};
use bytes::Bytes;
use foldhash::quality::FixedState;
use hashbrown::HashMap;
use stockade_model::{
    time::{Live, Runtime, Time, before},
    units::format_duration,
};
use tokio::sync::oneshot;

use super::{
    Inner, KEY_BYTES_MOST, NOTE, OUTDATE, SETTLE, VALUE_BYTES_MOST,
    clock::{Micros, SLACK, micros},
    envelope::Envelope,
    log::REMEMBERED,
    url::Link,
    wire::{NoteId, Told, message, read_message, write_note},
};
use crate::{
    shard::Invalidation,
    tier::{Note, Settled, TierError, What},
};

/// How long it may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How often it is asked whether it is there, and for notes that did not arrive by themselves.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long it is left alone when it was not there: first, and at most.
const LEFT_ALONE: Duration = Duration::from_millis(20);
const LEFT_ALONE_MOST: Duration = Duration::from_millis(250);

/// How much this node keeps to be told when Redis is back. More of it, and other nodes are told to forget all.
const PENDING_MOST: usize = REMEMBERED;
const PENDING_BYTES_MOST: usize = 64 << 20;

/// How many notes are asked for, and sent, at once.
const NOTES_AT_ONCE: usize = 1_000;

/// Who waits for what other nodes load, by key.
pub(super) type Waiting = HashMap<Bytes, Vec<(u64, oneshot::Sender<Settled>)>, FixedState>;

/// What is to be sent, in this order.
#[derive(Debug, Default)]
pub(super) struct Pending {
    queue: VecDeque<(Step, Time)>,
    bytes: usize,
    /// How many there ever were.
    told: u64,
    /// How often all of it was given up for one note of everything.
    given_up: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Tell(Note),
    /// A lock that may have been taken by a question which was given up.
    Free(Bytes, String),
}

/// Keeps the connection as long as somebody holds the tier.
pub(super) async fn keep(inner: Weak<Inner>, live: Live) {
    let mut left_alone = LEFT_ALONE;
    loop {
        let Some(strong) = inner.upgrade() else { return };
        if let Ok(link) = strong.begin().await {
            left_alone = LEFT_ALONE;
            *strong.link.lock() = Some(link.clone());
            drop(strong);
            let mut looked = live.now();
            while let Some(strong) = inner.upgrade() {
                // What was told since the last turn has left a permit.
                let _ = before(&live, looked + LOOK_EVERY, strong.nudge.notified()).await;
                let mut is_well = strong.send_some(&link).await.is_ok();
                if live.now() >= looked + LOOK_EVERY {
                    looked = live.now();
                    is_well = is_well && strong.look(&link).await.is_ok();
                }
                let is_kept = strong.link.lock().is_some() && Arc::strong_count(&strong) > 1;
                if !is_kept || !is_well {
                    strong.lose();
                    break;
                }
            }
        } else {
            drop(strong);
        }
        // Not all nodes at the same moment.
        let jitter = live.now().as_nanos() % 1_024;
        let pause = left_alone + left_alone.mul_f64(jitter as f64 / 4_096.0);
        live.sleep_until(live.now() + pause).await;
        left_alone = (left_alone * 2).min(LEFT_ALONE_MOST);
    }
}

/// Whether Redis can be used now.
pub(super) async fn check(inner: &Arc<Inner>) -> Result<(), TierError> {
    let deadline = inner.live.now() + CONNECT_TIMEOUT;
    let failed = |error: RedisError| TierError::Failed(explain(&error));
    let silent = || {
        let within = format_duration(CONNECT_TIMEOUT);
        TierError::Failed(format!(
            "no answer within {within}; check the host and the port, and whether it speaks TLS"
        ))
    };
    let connecting = inner.url.connect(0, |_| Ok(()));
    let link = before(&inner.live, deadline, connecting).await.ok_or_else(silent)?.map_err(failed)?;
    let channels = [inner.notes_channel(), inner.channel()];
    let subscribed = before(&inner.live, deadline, link.subscribe(&channels)).await;
    subscribed.ok_or_else(silent)?.map_err(failed)?;
    inner.catch_up_some(&link, deadline).await.map(drop)
}

/// Removes everything under the prefix, some at a time.
pub(super) async fn sweep(inner: &Arc<Inner>) -> Result<(), TierError> {
    let (link, mut cursor) = (inner.link()?, 0_u64);
    // A star and its kin would mean something else.
    let literal = |c: char| if "*?[]\\".contains(c) { format!("\\{c}") } else { c.to_string() };
    let pattern: String = inner.url.prefix.chars().map(literal).collect();
    loop {
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(format!("{pattern}:*")).arg("COUNT").arg(NOTES_AT_ONCE);
        let mut scanned: Vec<(u64, Vec<Vec<u8>>)> = inner.run(&link, vec![scan]).await?;
        let (next, names) = scanned.pop().unwrap_or_default();
        if !names.is_empty() {
            let mut unlink = cmd("UNLINK");
            unlink.arg(names);
            inner.run::<i64>(&link, vec![unlink]).await?;
        }
        if next == 0 {
            return Ok(());
        }
        cursor = next;
    }
}

/// What an error means, for people.
pub(super) fn explain(error: &RedisError) -> String {
    let what = match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS")) => {
            "it refuses the user or the password: check the URL"
        }
        (_, Some("NOAUTH")) => "it asks for a password: write redis://:PASSWORD@HOST",
        (_, Some("NOPERM")) => {
            "its user may not do that: allow it +@scripting +@pubsub +@read +@write, ~PREFIX:* and &PREFIX:*"
        }
        (_, Some("OOM")) => "it has no room: give it a `maxmemory-policy` that evicts",
        (ErrorKind::Io, _) => {
            return format!("{error}; check the host and the port, and whether it runs and speaks TLS");
        }
        _ => return format!("{error}; check the URL, and that it is Redis 6.2 or newer"),
    };
    what.to_owned()
}

impl Inner {
    /// A connection over which this node hears what it has to, and has been told what it missed.
    async fn begin(self: &Arc<Self>) -> Result<Link, TierError> {
        let deadline = self.live.now() + CONNECT_TIMEOUT;
        let generation = self.generation.fetch_add(1, Relaxed) + 1;
        let hearing = Arc::downgrade(self);
        let connecting = self.url.connect(generation, move |info| {
            hearing.upgrade().map(|inner| inner.hear(generation, info)).ok_or(())
        });
        let link = before(&self.live, deadline, connecting).await.ok_or(TierError::TimedOut)?;
        let link = link.map_err(|error| self.failed(generation, &error))?;
        let channels = [self.notes_channel(), self.channel()];
        let subscribing = link.subscribe(&channels);
        let subscribed = before(&self.live, deadline, subscribing).await.ok_or(TierError::TimedOut)?;
        subscribed.map_err(|error| self.failed(generation, &error))?;
        self.look(&link).await?;
        while self.send_some(&link).await? {}
        Ok(link)
    }

    /// Looks whether Redis is there, hears what was missed, and forgets who waits no longer.
    async fn look(&self, link: &Link) -> Result<(), TierError> {
        while self.catch_up_some(link, self.deadline()).await? {}
        self.waiting.lock().retain(|_, waiting| {
            waiting.retain(|(_, tell)| !tell.is_closed());
            !waiting.is_empty()
        });
        Ok(())
    }

    /// Hears some of what was missed; whether there is more.
    async fn catch_up_some(&self, link: &Link, deadline: Time) -> Result<bool, TierError> {
        type Missed = (Micros, usize, usize, Vec<(String, Vec<(String, Vec<u8>)>)>);
        let sent = self.live.now();
        let after = self.known.lock().after.to_string();
        let mut invocation = self.scripts.catch_up.prepare_invoke();
        invocation.key(self.log_name()).arg(after).arg(NOTES_AT_ONCE);
        let (time, length, is_there, missed): Missed = self.invoke(link, &invocation, deadline).await?;
        let is_more = missed.len() == NOTES_AT_ONCE;
        let missed: Vec<_> = missed.into_iter().filter_map(Told::of).collect();
        {
            let mut known = self.known.lock();
            if time + SLACK < known.clock.earliest(sent) {
                // Another server, or one whose clock was put back: nothing that was known holds there.
                known.forget(time);
                return Ok(true);
            }
            known.clock.set(time, sent, self.live.now());
            if known.began == 0 {
                known.began = time;
            }
        }
        if length >= REMEMBERED && is_there == 0 {
            self.gap(&missed);
        }
        for told in missed {
            self.heed(told, true);
        }
        Ok(is_more)
    }

    /// Some notes are gone from the log that were never heard.
    fn gap(&self, missed: &[Told]) {
        let Some(first) = missed.first() else { return };
        let is_first_look = {
            let mut known = self.known.lock();
            known.log.forget_before(first.at);
            known.after == NoteId::default()
        };
        if !is_first_look {
            self.listen_to(Note::Invalidated(What::Everything, Invalidation::Soft));
        }
    }

    /// What the server says unasked.
    fn hear(&self, generation: u64, info: PushInfo) {
        match (info.kind, info.data.as_slice()) {
            (PushKind::Disconnection, _) => self.suspect(generation),
            (PushKind::Message, [channel, message]) => {
                let (Some(channel), Some(message)) = (bytes(channel), bytes(message)) else { return };
                if channel == self.notes_channel().as_bytes() {
                    if let Some(told) = Told::read(message) {
                        self.heed(told, false);
                    }
                } else if let Some((key, settled)) = read_message(message) {
                    self.wake(key, &settled);
                }
            }
            _ => {}
        }
    }

    /// Does what a note says, once, unless it is this node's own. In the log's order nothing is missing before it.
    fn heed(&self, told: Told, is_in_order: bool) {
        let Told { id, at, node, note } = told;
        {
            let mut known = self.known.lock();
            if at > known.clock.latest(self.live.now()) + SLACK {
                // No server says so.
                return;
            }
            known.clock.heard(at);
            if let Some(note) = &note {
                known.log.add(note, at);
            }
            if is_in_order {
                known.after = known.after.max(id);
                let after = known.after;
                let has_been_heard = known.heard.contains(&id);
                while known.heard.first().is_some_and(|heard| *heard <= after) {
                    known.heard.pop_first();
                }
                // What was told before this node was there is of no interest to its memory.
                if has_been_heard || at < known.began {
                    return;
                }
            } else if id <= known.after || !known.heard.insert(id) {
                return;
            }
        }
        if let Some(note) = note.filter(|_| node != self.node) {
            self.listen_to(note);
        }
    }

    /// Has the cache do what a note says. Its keys are a user's, who may panic.
    fn listen_to(&self, note: Note) {
        let Some(listener) = self.listener.get() else { return };
        let _ = panic::catch_unwind(AssertUnwindSafe(|| listener(note)));
    }

    /// Wakes those who wait for a key.
    fn wake(&self, key: &[u8], settled: &Settled) {
        let waiting = self.waiting.lock().remove(key);
        for (_, tell) in waiting.into_iter().flatten() {
            let _ = tell.send(settled.clone());
        }
    }

    /// Nobody waits under this number any more.
    pub(super) fn unwait(&self, key: &Bytes, number: u64) {
        let mut all = self.waiting.lock();
        if let Some(waiting) = all.get_mut(key) {
            waiting.retain(|(waiter, _)| *waiter != number);
            if waiting.is_empty() {
                all.remove(key);
            }
        }
    }

    /// Redis is gone: nobody waits for what it has to say.
    fn lose(&self) {
        drop(self.link.lock().take());
        let waiting: Vec<_> = self.waiting.lock().drain().collect();
        for (_, tell) in waiting.into_iter().flat_map(|(_, waiting)| waiting) {
            let _ = tell.send(Settled::Freed);
        }
    }

    pub(super) fn tell(&self, note: Note) {
        self.later(Step::Tell(match note {
            Note::Written(key, kept) if kept.body.len() > VALUE_BYTES_MOST || key.len() > KEY_BYTES_MOST => {
                Note::Invalidated(What::Key(key), Invalidation::Hard)
            }
            note => note,
        }));
    }

    pub(super) fn free_later(&self, key: &Bytes, token: String) {
        self.later(Step::Free(key.clone(), token));
    }

    fn later(&self, step: Step) {
        let mut pending = self.pending.lock();
        let step = match step {
            Step::Tell(Note::Written(key, kept)) if pending.bytes + kept.body.len() > PENDING_BYTES_MOST => {
                Step::Tell(Note::Invalidated(What::Key(key), Invalidation::Hard))
            }
            step => step,
        };
        if pending.queue.len() >= PENDING_MOST {
            if matches!(step, Step::Free(..)) {
                // Its lease ends by itself.
                return;
            }
            pending.queue.clear();
            pending.bytes = 0;
            pending.given_up += 1;
            let all = Step::Tell(Note::Invalidated(What::Everything, Invalidation::Hard));
            pending.queue.push_back((all, self.live.now()));
        } else {
            pending.bytes += step.bytes();
            pending.queue.push_back((step, self.live.now()));
        }
        pending.told += 1;
        drop(pending);
        self.nudge.notify_one();
    }

    /// Waits until everything has been sent that this node has told by now.
    pub(super) async fn all_sent(&self, deadline: Time) -> Result<(), TierError> {
        let told = self.pending.lock().told;
        if *self.sent.borrow() >= told {
            return Ok(());
        }
        let mut sent = self.sent.subscribe();
        match before(&self.live, deadline, sent.wait_for(|sent| *sent >= told)).await {
            Some(_) => Ok(()),
            None => Err(TierError::TimedOut),
        }
    }

    /// Sends some of what is pending; whether there was any. What fails stays.
    async fn send_some(&self, link: &Link) -> Result<bool, TierError> {
        let (steps, told, given_up): (Vec<_>, _, _) = {
            let pending = self.pending.lock();
            let mut bytes = 0;
            let fits = |(step, _): &&(Step, Time)| {
                bytes += step.bytes();
                bytes <= VALUE_BYTES_MOST
            };
            let steps = pending.queue.iter().take(NOTES_AT_ONCE).take_while(fits).cloned().collect();
            (steps, pending.told, pending.given_up)
        };
        if steps.is_empty() {
            self.sent.send_replace(told);
            return Ok(false);
        }
        let notes = steps.iter().filter_map(|(step, _)| match step {
            Step::Tell(note) => Some(self.note(note)),
            Step::Free(..) => None,
        });
        // The log first: what is read from Redis after that is known to be outdated.
        let ats: Vec<String> = self.run(link, notes.collect()).await?;
        let mut ats = ats.into_iter();
        let mut rest = Vec::new();
        for (step, told) in &steps {
            match step {
                Step::Tell(note) => {
                    let at = ats.next().and_then(|at| at.parse().ok());
                    let at = at.ok_or_else(|| TierError::Failed("its time is no number".to_owned()))?;
                    {
                        let mut known = self.known.lock();
                        known.clock.heard(at);
                        known.log.add(note, at);
                    }
                    rest.extend(self.outdate(note, *told, at));
                }
                Step::Free(key, token) => rest.push(self.free(key, token)),
            }
        }
        // Each may fail for itself, where a server is gone or refuses: the log says it all.
        match before(&self.live, self.deadline(), link.run_each(rest)).await {
            Some(done) => done.map_err(|error| self.failed(link.generation, &error))?,
            None if self.url.is_cluster() => {}
            None => return Err(TierError::TimedOut),
        }
        let mut pending = self.pending.lock();
        if pending.given_up != given_up {
            // None of these is there any more: what is, has not been sent.
            drop(pending);
            self.nudge.notify_one();
            return Ok(true);
        }
        // More may have been told meanwhile.
        for _ in 0..steps.len() {
            if let Some((step, _)) = pending.queue.pop_front() {
                pending.bytes -= step.bytes();
            }
        }
        let is_more = !pending.queue.is_empty();
        self.sent.send_replace(pending.told - pending.queue.len() as u64);
        drop(pending);
        if is_more {
            self.nudge.notify_one();
        }
        Ok(is_more)
    }

    fn note(&self, note: &Note) -> Cmd {
        let mut command = eval(NOTE, &[self.log_name().into_bytes()]);
        command.arg(self.notes_channel()).arg(REMEMBERED).arg(&self.node).arg(write_note(note));
        command
    }

    /// What is to be done to a key itself, of which the log said so at that time.
    fn outdate(&self, note: &Note, told: Time, at: Micros) -> Option<Cmd> {
        let waited = self.live.now() - told;
        let (key, how, settled, value, lasts_ms) = match note {
            Note::Invalidated(What::Key(key), how) => {
                let how = if *how == Invalidation::Soft { "soft" } else { "hard" };
                (key, how, Settled::Freed, Vec::new(), 0)
            }
            // Somebody else may have written meanwhile.
            Note::Written(key, _) if waited > self.url.timeout => {
                (key, "hard", Settled::Freed, Vec::new(), 0)
            }
            Note::Written(key, kept) => {
                let stamp = at.saturating_sub(micros(kept.age + waited));
                let envelope = Envelope::seal(kept, stamp, at);
                (key, "written", Settled::Stored, envelope.write(key), envelope.lasts_ms(at))
            }
            Note::Invalidated(What::Tag(_) | What::Everything, _) => return None,
        };
        let mut command = eval(OUTDATE, &self.names(key));
        command.arg(how).arg(message(key, &settled)).arg(value).arg(lasts_ms).arg(at);
        Some(command)
    }

    fn free(&self, key: &Bytes, token: &str) -> Cmd {
        let mut command = eval(SETTLE, &self.names(key));
        command.arg(token).arg("").arg(0).arg(message(key, &Settled::Freed));
        command
    }

    /// Runs commands at once and in their order. All are for names of one server.
    async fn run<T: FromRedisValue>(&self, link: &Link, commands: Vec<Cmd>) -> Result<Vec<T>, TierError> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        match before(&self.live, self.deadline(), link.run(commands)).await {
            Some(Ok(answers)) => Ok(answers),
            Some(Err(error)) => Err(self.failed(link.generation, &error)),
            None => Err(TierError::TimedOut),
        }
    }

    pub(super) fn deadline(&self) -> Time {
        self.live.now() + self.url.timeout
    }

    fn log_name(&self) -> String {
        format!("{}:log", self.url.prefix)
    }

    fn notes_channel(&self) -> String {
        format!("{}:notes", self.url.prefix)
    }
}

impl Pending {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
}

impl Step {
    fn bytes(&self) -> usize {
        match self {
            Self::Tell(Note::Written(_, kept)) => kept.body.len(),
            _ => 0,
        }
    }
}

fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        _ => None,
    }
}

fn eval(script: &str, names: &[Vec<u8>]) -> Cmd {
    let mut command = cmd("EVAL");
    command.arg(script).arg(names.len()).arg(names);
    command
}
