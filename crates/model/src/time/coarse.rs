//! The time with a resolution of a millisecond, at the cost of a memory read.
#![expect(clippy::disallowed_methods, reason = "it is the clock of `Live`")]

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

const TICK: Duration = Duration::from_millis(1);
/// Number of unread ticks after which the ticker thread parks.
const TICKS_UNREAD_MAX: u32 = 128;

/// The clock of the process: a thread stores the time once a millisecond, as long as readers
/// exist.
#[repr(align(64))]
pub(super) struct Coarse {
    /// Nanoseconds since the epoch, or [`RESTING`].
    now: AtomicU64,
    is_read: AtomicBool,
}

const RESTING: u64 = 0;

/// True once a runtime's clock was another one than the machine's, as [`tokio::time::pause`] makes it. From then on the ticker rests
/// and the coarse time is the precise one: it is read by tests only.
static IS_DISTRUSTED: AtomicBool = AtomicBool::new(false);

static COARSE: Coarse = Coarse { now: AtomicU64::new(RESTING), is_read: AtomicBool::new(false) };

/// A moment before the first reading in this process, so that no time is 0.
static EPOCH: OnceLock<Instant> = OnceLock::new();

/// `None`: the thread could not be started, so readers get the precise time.
static TICKER: OnceLock<Option<Thread>> = OnceLock::new();

/// The time of the caller's runtime.
pub(super) fn runtime_now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The precise time, in nanoseconds since the epoch.
pub(super) fn precise_nanos() -> u64 {
    let epoch = EPOCH.get_or_init(|| {
        let now = Instant::now();
        now.checked_sub(TICK).unwrap_or(now)
    });
    u64::try_from(runtime_now().saturating_duration_since(*epoch).as_nanos()).unwrap_or(u64::MAX)
}

/// Notices a runtime whose clock is not the machine's: its time, in nanoseconds since the epoch, differs from that of the ticker.
#[inline]
pub(super) fn examine_clock_if_apart(precise_nanos: u64) {
    const LATE_NANOS_MAX: u64 = 100_000_000;
    let ticked = COARSE.now.load(Ordering::Relaxed);
    // Wraps for a time before the tick.
    if precise_nanos.wrapping_sub(ticked) > LATE_NANOS_MAX && ticked != RESTING {
        examine_clock();
    }
}

/// The machine's clock lies between two readings of it.
#[cold]
pub(super) fn examine_clock() {
    let before = Instant::now();
    let now = runtime_now();
    if !(before..=Instant::now()).contains(&now) {
        IS_DISTRUSTED.store(true, Ordering::SeqCst);
        COARSE.now.store(RESTING, Ordering::SeqCst);
    }
}

/// The time of the last tick, in nanoseconds since the epoch.
#[inline]
pub(super) fn coarse_nanos() -> u64 {
    let now = COARSE.now.load(Ordering::Relaxed);
    if now == RESTING {
        return wake();
    }
    // Writes only if needed: a write would take the cache line from the other cores.
    if !COARSE.is_read.load(Ordering::Relaxed) {
        COARSE.is_read.store(true, Ordering::Relaxed);
    }
    now
}

#[cold]
fn wake() -> u64 {
    if IS_DISTRUSTED.load(Ordering::Relaxed) {
        return precise_nanos();
    }
    let start = || thread::Builder::new().name("coarse-clock".to_owned()).spawn(tick).ok();
    if let Some(ticker) = TICKER.get_or_init(|| start().map(|handle| handle.thread().clone())) {
        ticker.unpark();
    }
    precise_nanos()
}

fn tick() {
    let mut unread = 0;
    loop {
        while IS_DISTRUSTED.load(Ordering::SeqCst) {
            COARSE.now.store(RESTING, Ordering::SeqCst);
            thread::park();
        }
        COARSE.now.store(precise_nanos().max(1), Ordering::Relaxed);
        thread::park_timeout(TICK);
        unread = if COARSE.is_read.swap(false, Ordering::Relaxed) { 0 } else { unread + 1 };
        if unread > TICKS_UNREAD_MAX {
            COARSE.now.store(RESTING, Ordering::Relaxed);
            thread::park();
            unread = 0;
        }
    }
}
