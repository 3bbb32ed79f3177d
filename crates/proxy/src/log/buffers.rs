//! Lines between the serving threads and the writer thread.

use std::{
    borrow::Cow,
    cell::Cell,
    mem,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, Thread},
    time::Duration,
};

use arc_swap::ArcSwap;
use memchr::memchr;

use super::{
    format::{TimestampCache, append_combined, append_json},
    mask::mask_query,
    output::{LogDestination, LogOutput},
    record::AccessRecord,
};
use crate::config::{LogFormat, NamePattern};

/// How long the writer lets lines gather.
const GATHER_TIME: Duration = Duration::from_millis(20);
/// As many threads have a buffer of their own.
const BUFFERS: usize = 64;
pub(super) const BUFFER_BYTES_MAX: usize = 1 << 20;
/// A buffer with this many bytes wakes the writer before [`GATHER_TIME`] has passed.
const URGENT_BYTES: usize = 128 << 10;

pub(super) struct LineBuffers {
    buffers: [Mutex<LineBuffer>; BUFFERS],
    format: AtomicU8,
    /// The parameters whose values are masked.
    mask: ArcSwap<Vec<NamePattern>>,
    /// The writer has been notified of lines or commands.
    has_work: AtomicBool,
    /// The writer must not let lines gather.
    is_urgent: AtomicBool,
    is_stopping: AtomicBool,
    commands: Mutex<Vec<WriterCommand>>,
    dropped: AtomicU64,
    writer: OnceLock<Thread>,
}

#[derive(Debug)]
struct LineBuffer {
    lines: Vec<u8>,
    times: TimestampCache,
}

enum WriterCommand {
    Reopen,
    Switch(LogDestination, LogFormat),
}

thread_local! {
    /// The index of this thread's buffer.
    static BUFFER: Cell<Option<usize>> = const { Cell::new(None) };
}

fn buffer_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    BUFFER.get().unwrap_or_else(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed) % BUFFERS;
        BUFFER.set(Some(number));
        number
    })
}

/// After a panic of its holder a buffer lacks a line, at worst.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LineBuffers {
    pub(super) fn new(format: LogFormat) -> Self {
        let buffers = Self {
            buffers: [const { Mutex::new(LineBuffer { lines: Vec::new(), times: TimestampCache::EMPTY }) };
                BUFFERS],
            format: AtomicU8::new(0),
            mask: ArcSwap::default(),
            has_work: AtomicBool::new(false),
            is_urgent: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            commands: Mutex::new(Vec::new()),
            dropped: AtomicU64::new(0),
            writer: OnceLock::new(),
        };
        buffers.set_format(format);
        buffers
    }

    pub(super) fn set_writer(&self, writer: Thread) {
        // Set once. Earlier records are found at this first wake.
        let _ = self.writer.set(writer);
        self.wake();
    }

    fn set_format(&self, format: LogFormat) {
        self.format.store(u8::from(format == LogFormat::Combined), Ordering::Relaxed);
    }

    pub(super) fn set_mask(&self, names: Vec<NamePattern>) {
        self.mask.store(names.into());
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn record(&self, record: &AccessRecord<'_>) {
        let referer = record.referer.unwrap_or_default();
        if memchr(b'?', record.target.as_bytes()).or_else(|| memchr(b'?', referer)).is_none() {
            return self.append(record);
        }
        let names = self.mask.load();
        let masked = mask_query(record.target.as_bytes(), &names);
        let target = match &masked {
            Cow::Borrowed(_) => record.target.into(),
            Cow::Owned(masked) => String::from_utf8_lossy(masked),
        };
        let referer = mask_query(referer, &names);
        let referer = record.referer.map(|_| &*referer);
        self.append(&AccessRecord { target: &target, referer, ..*record });
    }

    fn append(&self, record: &AccessRecord<'_>) {
        let mut buffer = lock(&self.buffers[buffer_index()]);
        let LineBuffer { lines, times } = &mut *buffer;
        let before = lines.len();
        if before >= BUFFER_BYTES_MAX {
            drop(buffer);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        match self.format.load(Ordering::Relaxed) {
            0 => append_json(lines, times, record),
            _ => append_combined(lines, times, record),
        }
        let is_urgent = before < URGENT_BYTES && lines.len() >= URGENT_BYTES;
        drop(buffer);
        if is_urgent {
            self.is_urgent.store(true, Ordering::Release);
        }
        // The first line since the writer took the buffers wakes it.
        let is_first = !self.has_work.load(Ordering::Acquire) && !self.has_work.swap(true, Ordering::AcqRel);
        if is_first || is_urgent {
            self.wake();
        }
    }

    pub(super) fn reopen(&self) {
        self.send(WriterCommand::Reopen);
    }

    pub(super) fn switch_to(&self, destination: LogDestination, format: LogFormat) {
        self.send(WriterCommand::Switch(destination, format));
    }

    fn send(&self, command: WriterCommand) {
        lock(&self.commands).push(command);
        self.has_work.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    /// The writer thread: returns after [`Self::stop`], when all lines are written.
    pub(super) fn run_writer(&self, mut output: LogOutput) {
        let mut batch = Vec::new();
        loop {
            // Read before the buffers are emptied, so that they hold every record made before the stop.
            let is_stopping = self.is_stopping.load(Ordering::Acquire);
            if !is_stopping && !self.has_work.load(Ordering::Acquire) {
                thread::park();
                continue;
            }
            // Two unparks before a park count as one: an urgent one from before this park would be lost.
            if !is_stopping && !self.is_urgent.load(Ordering::Acquire) {
                thread::park_timeout(GATHER_TIME);
            }
            // Later records wake the writer again.
            self.has_work.store(false, Ordering::Release);
            self.is_urgent.store(false, Ordering::Release);
            let commands = mem::take(&mut *lock(&self.commands));
            for buffer in &self.buffers {
                let mut buffer = lock(buffer);
                if buffer.lines.is_empty() {
                    // Not swapped: an unused buffer has no memory, and a used one keeps its own.
                    continue;
                }
                mem::swap(&mut buffer.lines, &mut batch);
                drop(buffer);
                let dropped = output.write(&batch);
                self.dropped.fetch_add(dropped, Ordering::Relaxed);
                batch.clear();
            }
            for command in commands {
                match command {
                    WriterCommand::Reopen => output.reopen(),
                    WriterCommand::Switch(destination, format) => {
                        if output.switch_to(destination) {
                            self.set_format(format);
                        }
                    }
                }
            }
            output.warn_of_drops(self.dropped());
            if is_stopping {
                return;
            }
        }
    }
}

impl std::fmt::Debug for LineBuffers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LineBuffers").field("dropped", &self.dropped()).finish_non_exhaustive()
    }
}
