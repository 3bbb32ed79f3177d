//! Lines on their way from those who serve to the one who writes.

use std::{
    cell::Cell,
    mem,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, Thread},
};

use super::{
    GATHER, combined,
    entry::Entry,
    json,
    sink::{Sink, Target},
    stamp::Stamp,
};
use crate::config::Format;

/// How many threads have a buffer for themselves.
const BUFFERS: usize = 64;
/// How much a buffer holds.
pub(super) const BUFFER_BYTES_MAX: usize = 1 << 20;
/// When the writer is woken before it has gathered long enough.
const PRESSING_BYTES: usize = 128 << 10;

/// Lines that are to be written.
pub(super) struct Lines {
    buffers: [Mutex<Buffer>; BUFFERS],
    format: AtomicU8,
    /// Whether the writer knows that there are lines.
    is_told: AtomicBool,
    /// Whether there are so many of them that it is not to gather more.
    is_pressing: AtomicBool,
    is_ending: AtomicBool,
    orders: Mutex<Vec<Order>>,
    dropped: AtomicU64,
    writer: OnceLock<Thread>,
}

#[derive(Debug)]
struct Buffer {
    lines: Vec<u8>,
    stamp: Stamp,
}

/// Where to go on.
enum Order {
    /// The same file, opened anew.
    Reopen,
    /// Another one, in this format.
    Turn(Target, Format),
}

thread_local! {
    /// The number of this thread's buffer.
    static BUFFER: Cell<Option<usize>> = const { Cell::new(None) };
}

fn buffer_of_this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    BUFFER.get().unwrap_or_else(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed) % BUFFERS;
        BUFFER.set(Some(number));
        number
    })
}

/// A lock whose holder panicked holds a line less, at worst.
fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lines {
    pub(super) fn new(format: Format) -> Self {
        let lines = Self {
            buffers: [const { Mutex::new(Buffer { lines: Vec::new(), stamp: Stamp::NEW }) }; BUFFERS],
            format: AtomicU8::new(0),
            is_told: AtomicBool::new(false),
            is_pressing: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            orders: Mutex::new(Vec::new()),
            dropped: AtomicU64::new(0),
            writer: OnceLock::new(),
        };
        lines.set_format(format);
        lines
    }

    pub(super) fn set_writer(&self, writer: Thread) {
        // It is set once. What was recorded before is found at the first wake.
        let _ = self.writer.set(writer);
        self.wake();
    }

    fn set_format(&self, format: Format) {
        self.format.store(u8::from(format == Format::Combined), Ordering::Relaxed);
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn record(&self, entry: &Entry<'_>) {
        let mut buffer = locked(&self.buffers[buffer_of_this_thread()]);
        let Buffer { lines, stamp } = &mut *buffer;
        let before = lines.len();
        if before >= BUFFER_BYTES_MAX {
            drop(buffer);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        match self.format.load(Ordering::Relaxed) {
            0 => json::line(lines, stamp, entry),
            _ => combined::line(lines, stamp, entry),
        }
        let is_pressing = before < PRESSING_BYTES && lines.len() >= PRESSING_BYTES;
        drop(buffer);
        if is_pressing {
            self.is_pressing.store(true, Ordering::Release);
        }
        // A buffer that is not empty was told of, unless it is being taken just now.
        let is_news = !self.is_told.load(Ordering::Acquire) && !self.is_told.swap(true, Ordering::AcqRel);
        if is_news || is_pressing {
            self.wake();
        }
    }

    pub(super) fn reopen(&self) {
        self.order(Order::Reopen);
    }

    pub(super) fn turn_to(&self, target: Target, format: Format) {
        self.order(Order::Turn(target, format));
    }

    fn order(&self, order: Order) {
        locked(&self.orders).push(order);
        self.is_told.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    /// Writes whatever there is, until it is to end.
    pub(super) fn write(&self, mut sink: Sink) {
        let mut batch = Vec::new();
        loop {
            // Asked before the buffers are emptied: what was recorded before the end is among them.
            let is_ending = self.is_ending.load(Ordering::Acquire);
            if !is_ending && !self.is_told.load(Ordering::Acquire) {
                thread::park();
                continue;
            }
            // To be woken twice is to be woken once: what pressed before it slept is not told again.
            if !is_ending && !self.is_pressing.load(Ordering::Acquire) {
                thread::park_timeout(GATHER);
            }
            // From here on whoever records tells of it again.
            self.is_told.store(false, Ordering::Release);
            self.is_pressing.store(false, Ordering::Release);
            let orders = mem::take(&mut *locked(&self.orders));
            for buffer in &self.buffers {
                let mut buffer = locked(buffer);
                if buffer.lines.is_empty() {
                    // It keeps what memory it has; one that was never used has none.
                    continue;
                }
                mem::swap(&mut buffer.lines, &mut batch);
                drop(buffer);
                let lost = sink.write(&batch);
                self.dropped.fetch_add(lost, Ordering::Relaxed);
                batch.clear();
            }
            for order in orders {
                match order {
                    Order::Reopen => sink.reopen(),
                    Order::Turn(target, format) => {
                        if sink.turn_to(target) {
                            self.set_format(format);
                        }
                    }
                }
            }
            sink.warn(self.dropped());
            if is_ending {
                return;
            }
        }
    }
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").field("dropped", &self.dropped()).finish_non_exhaustive()
    }
}
