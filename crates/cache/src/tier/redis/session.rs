//! The task that owns the connection.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
    time::Duration,
};

use ::redis::{Cmd, FromRedisValue, PushInfo, PushKind, RedisError, Value, cmd};
use bytes::Bytes;
use stockade_model::{
    time::{Live, Runtime, Time, before},
    units::format_duration,
};

use super::{
    clock::{Micros, SLACK, micros},
    connection::RedisConnection,
    envelope::Envelope,
    log::EVENTS_MAX,
    outbox::{BATCH_MAX, OutboxCommand},
    state::{COMPLETE, INVALIDATE, PUBLISH, RedisState, explain},
    wire::{EventId, ReceivedEvent, decode_outcome, encode_event, encode_outcome},
};
use crate::{
    invalidation::Invalidation,
    tier::{InvalidationTarget, RemoteLoad, TierError, TierEvent},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The interval of checks, which also read events that were missed.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The pause before reconnecting: initial, and maximum.
const RECONNECT_AFTER: Duration = Duration::from_millis(20);
const RECONNECT_AFTER_MAX: Duration = Duration::from_millis(250);

/// Runs until the tier is dropped.
pub(super) async fn run(inner: Weak<RedisState>, live: Live) {
    let mut reconnect_after = RECONNECT_AFTER;
    loop {
        let Some(strong) = inner.upgrade() else { return };
        if let Ok(link) = strong.connect().await {
            reconnect_after = RECONNECT_AFTER;
            *strong.link.lock() = Some(link.clone());
            drop(strong);
            let mut checked_at = live.now();
            while let Some(strong) = inner.upgrade() {
                // An event published since the last turn has left a permit.
                let _ = before(&live, checked_at + CHECK_INTERVAL, strong.wake_up.notified()).await;
                let mut is_well = strong.send_some(&link).await.is_ok();
                if live.now() >= checked_at + CHECK_INTERVAL {
                    checked_at = live.now();
                    is_well = is_well && strong.check_up(&link).await.is_ok();
                }
                let is_kept = strong.link.lock().is_some() && Arc::strong_count(&strong) > 1;
                if !is_kept || !is_well {
                    strong.disconnect();
                    break;
                }
            }
        } else {
            drop(strong);
        }
        // Jitter, so that nodes do not reconnect at the same moment.
        let jitter = live.now().as_nanos() % 1_024;
        let pause = reconnect_after + reconnect_after.mul_f64(jitter as f64 / 4_096.0);
        live.sleep_until(live.now() + pause).await;
        reconnect_after = (reconnect_after * 2).min(RECONNECT_AFTER_MAX);
    }
}

/// Checks whether Redis can be used.
pub(super) async fn check(inner: &Arc<RedisState>) -> Result<(), TierError> {
    let deadline = inner.live.now() + CONNECT_TIMEOUT;
    let failed = |error: RedisError| TierError::Failed(explain(&error));
    let silent = || {
        let within = format_duration(CONNECT_TIMEOUT);
        TierError::Failed(format!(
            "no answer within {within}; check the host and the port, and that it speaks TLS"
        ))
    };
    let connecting = RedisConnection::connect(&inner.url, 0, |_| Ok(()));
    let link = before(&inner.live, deadline, connecting).await.ok_or_else(silent)?.map_err(failed)?;
    let channels = [inner.events_channel(), inner.channel()];
    let subscribed = before(&inner.live, deadline, link.subscribe(&channels)).await;
    subscribed.ok_or_else(silent)?.map_err(failed)?;
    inner.catch_up_some(&link, deadline).await.map(drop)
}

/// Removes everything under the prefix, in batches.
pub(super) async fn remove_all(inner: &Arc<RedisState>) -> Result<(), TierError> {
    let (link, mut cursor) = (inner.link()?, 0_u64);
    // Escape the wildcards of patterns.
    let literal = |c: char| if "*?[]\\".contains(c) { format!("\\{c}") } else { c.to_string() };
    let pattern: String = inner.url.prefix.chars().map(literal).collect();
    loop {
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(format!("{pattern}:*")).arg("COUNT").arg(BATCH_MAX);
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

impl RedisState {
    /// Connects, subscribes, catches up with the log and sends the outbox.
    async fn connect(self: &Arc<Self>) -> Result<RedisConnection, TierError> {
        let deadline = self.live.now() + CONNECT_TIMEOUT;
        let generation = self.generation.fetch_add(1, Relaxed) + 1;
        let hearing = Arc::downgrade(self);
        let connecting = RedisConnection::connect(&self.url, generation, move |info| {
            hearing.upgrade().map(|inner| inner.receive(generation, info)).ok_or(())
        });
        let link = before(&self.live, deadline, connecting).await.ok_or(TierError::TimedOut)?;
        let link = link.map_err(|error| self.failed(generation, &error))?;
        let channels = [self.events_channel(), self.channel()];
        let subscribing = link.subscribe(&channels);
        let subscribed = before(&self.live, deadline, subscribing).await.ok_or(TierError::TimedOut)?;
        subscribed.map_err(|error| self.failed(generation, &error))?;
        self.check_up(&link).await?;
        while self.send_some(&link).await? {}
        Ok(link)
    }

    /// Checks the connection, reads missed events, and removes waiters that were dropped.
    async fn check_up(&self, link: &RedisConnection) -> Result<(), TierError> {
        while self.catch_up_some(link, self.deadline()).await? {}
        self.waiters.lock().retain(|_, waiters| {
            waiters.retain(|(_, sender)| !sender.is_closed());
            !waiters.is_empty()
        });
        Ok(())
    }

    /// Reads a batch of missed events. Returns whether there are more.
    async fn catch_up_some(&self, link: &RedisConnection, deadline: Time) -> Result<bool, TierError> {
        type Missed = (Micros, usize, usize, Vec<(String, Vec<(String, Vec<u8>)>)>);
        let sent = self.live.now();
        let after = self.replica.lock().after.to_string();
        let mut invocation = self.scripts.catch_up.prepare_invoke();
        invocation.key(self.log_name()).arg(after).arg(BATCH_MAX);
        let (time, length, is_there, missed): Missed = self.invoke(link, &invocation, deadline).await?;
        let is_more = missed.len() == BATCH_MAX;
        let missed: Vec<_> = missed.into_iter().filter_map(ReceivedEvent::from_stream_entry).collect();
        {
            let mut replica = self.replica.lock();
            if time + SLACK < replica.clock.earliest(sent) {
                // Another server, or a clock that was set back: nothing known holds.
                replica.cancel(time);
                return Ok(true);
            }
            replica.clock.set(time, sent, self.live.now());
            if replica.began == 0 {
                replica.began = time;
            }
        }
        if length >= EVENTS_MAX && is_there == 0 {
            self.skip_lost_events(&missed);
        }
        for event in missed {
            self.apply(event, true);
        }
        Ok(is_more)
    }

    /// Invalidates softly if events were dropped from the log before they were read.
    fn skip_lost_events(&self, missed: &[ReceivedEvent]) {
        let Some(first) = missed.first() else { return };
        let is_first_look = {
            let mut replica = self.replica.lock();
            replica.log.forget_before(first.at);
            replica.after == EventId::default()
        };
        if !is_first_look {
            self.notify_listener(TierEvent::Invalidated(InvalidationTarget::All, Invalidation::Soft));
        }
    }

    /// Handles a message that the server pushed.
    fn receive(&self, generation: u64, info: PushInfo) {
        match (info.kind, info.data.as_slice()) {
            (PushKind::Disconnection, _) => self.mark_broken(generation),
            (PushKind::Message, [channel, message]) => {
                let (Some(channel), Some(message)) = (bytes(channel), bytes(message)) else {
                    return;
                };
                if channel == self.events_channel().as_bytes() {
                    if let Some(event) = ReceivedEvent::from_message(message) {
                        self.apply(event, false);
                    }
                } else if let Some((key, outcome)) = decode_outcome(message) {
                    self.wake(key, &outcome);
                }
            }
            _ => {}
        }
    }

    /// Applies an event once, unless this node published it. In log order no earlier event is missing.
    fn apply(&self, received: ReceivedEvent, is_in_order: bool) {
        let ReceivedEvent { id, at, node, event } = received;
        {
            let mut replica = self.replica.lock();
            if at > replica.clock.latest(self.live.now()) + SLACK {
                // An event from the future is invalid.
                return;
            }
            replica.clock.raise_to(at);
            if let Some(event) = &event {
                replica.log.add(event, at);
            }
            if is_in_order {
                replica.after = replica.after.max(id);
                let after = replica.after;
                let is_applied = replica.received_ahead.contains(&id);
                while replica.received_ahead.first().is_some_and(|received_ahead| *received_ahead <= after) {
                    replica.received_ahead.pop_first();
                }
                // Events before this node joined do not concern its memory.
                if is_applied || at < replica.began {
                    return;
                }
            } else if id <= replica.after || !replica.received_ahead.insert(id) {
                return;
            }
        }
        if let Some(event) = event.filter(|_| node != self.node) {
            self.notify_listener(event);
        }
    }

    /// Notifies the cache. The user's key code may panic.
    fn notify_listener(&self, event: TierEvent) {
        let Some(listener) = self.listener.get() else { return };
        let _ = panic::catch_unwind(AssertUnwindSafe(|| listener(event)));
    }

    /// Drops the connection and wakes all waiters.
    fn disconnect(&self) {
        drop(self.link.lock().take());
        let waiters: Vec<_> = self.waiters.lock().drain().collect();
        for (_, sender) in waiters.into_iter().flat_map(|(_, waiters)| waiters) {
            let _ = sender.send(RemoteLoad::Released);
        }
    }

    /// Sends a batch of the outbox. Returns whether there are more. A failed batch stays queued.
    async fn send_some(&self, link: &RedisConnection) -> Result<bool, TierError> {
        let Some(batch) = self.outbox.next_batch() else { return Ok(false) };
        let events = batch.commands.iter().filter_map(|(command, _)| match command {
            OutboxCommand::Publish(event) => Some(self.event_command(event)),
            OutboxCommand::Release(..) => None,
        });
        // The log first: values read from Redis after this are known to be outdated.
        let ats: Vec<String> = self.run(link, events.collect()).await?;
        let mut ats = ats.into_iter();
        let mut rest = Vec::new();
        for (command, queued_at) in &batch.commands {
            match command {
                OutboxCommand::Publish(event) => {
                    let at = ats.next().and_then(|at| at.parse().ok());
                    let at = at.ok_or_else(|| TierError::Failed("its time is not a number".to_owned()))?;
                    {
                        let mut replica = self.replica.lock();
                        replica.clock.raise_to(at);
                        replica.log.add(event, at);
                    }
                    rest.extend(self.invalidate(event, *queued_at, at));
                }
                OutboxCommand::Release(key, token) => rest.push(self.free(key, token)),
            }
        }
        // Commands may fail one by one, on a server that is down or refuses them: the log has the events.
        match before(&self.live, self.deadline(), link.run_each(rest)).await {
            Some(done) => done.map_err(|error| self.failed(link.generation, &error))?,
            None if self.url.is_cluster() => {}
            None => return Err(TierError::TimedOut),
        }
        let is_more = self.outbox.confirm(&batch);
        if is_more {
            self.wake_up.notify_one();
        }
        Ok(is_more)
    }

    fn event_command(&self, event: &TierEvent) -> Cmd {
        let mut command = eval(PUBLISH, &[self.log_name().into_bytes()]);
        command.arg(self.events_channel()).arg(EVENTS_MAX).arg(&self.node).arg(encode_event(event));
        command
    }

    /// The command that applies an event to its key; `at` is the event's time in the log.
    fn invalidate(&self, event: &TierEvent, queued_at: Time, at: Micros) -> Option<Cmd> {
        let waited = self.live.now() - queued_at;
        let (key, how, outcome, value, lasts_ms) = match event {
            TierEvent::Invalidated(InvalidationTarget::Key(key), how) => {
                let how = if *how == Invalidation::Soft { "soft" } else { "hard" };
                (key, how, RemoteLoad::Released, Vec::new(), 0)
            }
            // Another node may have written since.
            TierEvent::Written(key, _) if waited > self.url.timeout => {
                (key, "hard", RemoteLoad::Released, Vec::new(), 0)
            }
            TierEvent::Written(key, kept) => {
                let stamp = at.saturating_sub(micros(kept.age + waited));
                let envelope = Envelope::new(kept, stamp, at);
                (key, "written", RemoteLoad::Stored, envelope.write(key), envelope.lasts_ms(at))
            }
            TierEvent::Invalidated(InvalidationTarget::Tag(_) | InvalidationTarget::All, _) => return None,
        };
        let mut command = eval(INVALIDATE, &self.names(key));
        command.arg(how).arg(encode_outcome(key, &outcome)).arg(value).arg(lasts_ms).arg(at);
        Some(command)
    }

    fn free(&self, key: &Bytes, token: &str) -> Cmd {
        let mut command = eval(COMPLETE, &self.names(key));
        command.arg(token).arg("").arg(0).arg(encode_outcome(key, &RemoteLoad::Released));
        command
    }

    /// Runs commands in one pipeline. All names have to be on one server.
    async fn run<T: FromRedisValue>(
        &self,
        link: &RedisConnection,
        commands: Vec<Cmd>,
    ) -> Result<Vec<T>, TierError> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        match before(&self.live, self.deadline(), link.run(commands)).await {
            Some(Ok(answers)) => Ok(answers),
            Some(Err(error)) => Err(self.failed(link.generation, &error)),
            None => Err(TierError::TimedOut),
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
