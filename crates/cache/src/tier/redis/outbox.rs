//! Events and lock releases that wait to be sent, in order.

use std::collections::VecDeque;

use bytes::Bytes;
use stockade_model::time::{Live, Time, before};
use tokio::sync::watch;

use super::{
    envelope::{KEY_BYTES_MAX, VALUE_BYTES_MAX},
    log::EVENTS_MAX,
};
use crate::{
    invalidation::Invalidation,
    locks::Lock,
    tier::{InvalidationTarget, TierError, TierEvent},
};

/// Bounds of what is queued while Redis is unavailable. Beyond them one invalidation of everything replaces the queue.
const COMMANDS_MAX: usize = EVENTS_MAX;
const BYTES_MAX: usize = 64 << 20;

/// How many commands one batch has at most.
pub(super) const BATCH_MAX: usize = 1_000;

pub(super) struct Outbox {
    queue: Lock<OutboxQueue>,
    /// How many of the commands that were ever queued have been sent.
    sent: watch::Sender<u64>,
}

#[derive(Default)]
struct OutboxQueue {
    /// Each with the time at which it was queued.
    commands: VecDeque<(OutboxCommand, Time)>,
    bytes: usize,
    /// How many commands were ever queued.
    queued_total: u64,
    /// How often the queue was replaced by one invalidation of everything.
    overflows: u64,
}

#[derive(Clone, Debug)]
pub(super) enum OutboxCommand {
    Publish(TierEvent),
    /// Releases the lock of a key if this token holds it: the lookup that asked for the lock was cancelled.
    Release(Bytes, String),
}

/// Commands from the front of the queue. They stay queued until the batch is confirmed.
pub(super) struct Batch {
    pub(super) commands: Vec<(OutboxCommand, Time)>,
    overflows: u64,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self { queue: Lock::default(), sent: watch::channel(0).0 }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.lock().commands.len()
    }

    pub(super) fn publish(&self, event: TierEvent, now: Time) {
        let event = match event {
            TierEvent::Written(key, value)
                if value.body.len() > VALUE_BYTES_MAX || key.len() > KEY_BYTES_MAX =>
            {
                TierEvent::Invalidated(InvalidationTarget::Key(key), Invalidation::Hard)
            }
            event => event,
        };
        self.push(OutboxCommand::Publish(event), now);
    }

    pub(super) fn release(&self, key: Bytes, token: String, now: Time) {
        self.push(OutboxCommand::Release(key, token), now);
    }

    fn push(&self, command: OutboxCommand, now: Time) {
        let mut queue = self.queue.lock();
        let command = match command {
            OutboxCommand::Publish(TierEvent::Written(key, value))
                if queue.bytes + value.body.len() > BYTES_MAX =>
            {
                let target = InvalidationTarget::Key(key);
                OutboxCommand::Publish(TierEvent::Invalidated(target, Invalidation::Hard))
            }
            command => command,
        };
        if queue.commands.len() >= COMMANDS_MAX {
            if matches!(command, OutboxCommand::Release(..)) {
                // The lease ends without it.
                return;
            }
            queue.commands.clear();
            queue.bytes = 0;
            queue.overflows += 1;
            let all = TierEvent::Invalidated(InvalidationTarget::All, Invalidation::Hard);
            queue.commands.push_back((OutboxCommand::Publish(all), now));
        } else {
            queue.bytes += command.bytes();
            queue.commands.push_back((command, now));
        }
        queue.queued_total += 1;
    }

    /// Waits until every command has been sent that is queued by now.
    pub(super) async fn wait_sent(&self, live: &Live, deadline: Time) -> Result<(), TierError> {
        let queued = self.queue.lock().queued_total;
        if *self.sent.borrow() >= queued {
            return Ok(());
        }
        let mut sent = self.sent.subscribe();
        match before(live, deadline, sent.wait_for(|sent| *sent >= queued)).await {
            Some(_) => Ok(()),
            None => Err(TierError::TimedOut),
        }
    }

    /// The next commands to send; `None`: the queue is empty.
    pub(super) fn next_batch(&self) -> Option<Batch> {
        let queue = self.queue.lock();
        if queue.commands.is_empty() {
            self.sent.send_replace(queue.queued_total);
            return None;
        }
        let mut bytes = 0;
        let fits = |(command, _): &&(OutboxCommand, Time)| {
            bytes += command.bytes();
            bytes <= VALUE_BYTES_MAX
        };
        let commands = queue.commands.iter().take(BATCH_MAX).take_while(fits).cloned().collect();
        Some(Batch { commands, overflows: queue.overflows })
    }

    /// Removes a batch that has been sent; true if there is more to send.
    pub(super) fn confirm(&self, batch: &Batch) -> bool {
        let mut queue = self.queue.lock();
        if queue.overflows != batch.overflows {
            // The batch is not queued any more, and what replaced it has not been sent.
            return true;
        }
        for _ in 0..batch.commands.len() {
            if let Some((command, _)) = queue.commands.pop_front() {
                queue.bytes -= command.bytes();
            }
        }
        self.sent.send_replace(queue.queued_total - queue.commands.len() as u64);
        !queue.commands.is_empty()
    }
}

impl OutboxCommand {
    fn bytes(&self) -> usize {
        match self {
            Self::Publish(TierEvent::Written(_, value)) => value.body.len(),
            _ => 0,
        }
    }
}
