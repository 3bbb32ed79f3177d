//! What a connection is doing, and when it is to end unless it goes on.
//!
//! No timer is set for a request. A connection looks at what it does when the shortest of its bounds may have passed at
//! the earliest; between two looks its parts note the time (some 20 ns, once a request).

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{
            AtomicBool, AtomicU8, AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    task::Waker,
    time::Duration,
};

use stockade_model::time::{Live, Runtime, Time};

use super::{
    Peer, Settings,
    counts::{Cut, Tallies, bump},
    head::Refusal,
    room::House,
    scan::Scan,
    streams::Stream,
    tls::Tls,
};

/// So many requests of a connection of HTTP/2 may be given up before it matters how many were not.
const RESETS_FREE: u64 = 100;
/// A moment that is not.
const NONE: u64 = u64::MAX;

/// What the connections of a thread have in common.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) number: usize,
    pub(super) settings: Arc<Settings>,
    pub(super) time: Live,
    pub(super) tallies: Arc<Tallies>,
    pub(super) house: Arc<House>,
    pub(super) tls: Option<Arc<Tls>>,
    /// Connections that were turned away and have not left.
    pub(super) lingering: AtomicUsize,
}

/// One connection and who answers it.
pub(super) struct Session<H> {
    pub(super) handler: H,
    pub(super) peer: Peer,
    pub(super) progress: Arc<Progress>,
}

/// What a connection is doing. All of it is written by the connection's thread but what it is asked for.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) thread: Arc<Thread>,
    /// Where it sits in its room.
    pub(super) seat: AtomicUsize,
    /// When it was taken in, or answered last, in ns.
    waiting: AtomicU64,
    /// When a head began that is not whole.
    head: AtomicU64,
    /// When its client stopped taking what is sent.
    blocked: AtomicU64,
    /// When the request of HTTP/1 began that is being answered.
    began: AtomicU64,
    requests: AtomicU64,
    finished: AtomicU64,
    given_up: AtomicU64,
    /// How many heads were scanned, and above suspicion.
    heads: AtomicU64,
    wrong: OnceLock<Refusal>,
    is_in_body: AtomicBool,
    asked: AtomicU8,
    waker: OnceLock<Waker>,
    /// The stream of HTTP/2 that was opened last, until a task takes it.
    newest: Mutex<Option<Arc<Stream>>>,
}

/// What a connection is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asked {
    Nothing,
    /// To answer what has been asked of it, and end.
    Finish,
    /// To end.
    Leave,
}

/// A request, until its answer has left or nobody wants it any more.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) progress: Arc<Progress>,
    pub(super) stream: Option<Arc<Stream>>,
    pub(super) is_finished: bool,
}

/// The moments that deadlines are counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moments {
    /// Set while nothing is being answered.
    waiting: Option<Time>,
    has_answered: bool,
    head: Option<Time>,
    blocked: Option<Time>,
    began: Option<Time>,
}

impl Progress {
    pub(super) fn new(thread: Arc<Thread>) -> Arc<Self> {
        let now = AtomicU64::new(thread.time.now().as_nanos());
        let none = || AtomicU64::new(NONE);
        let zero = || AtomicU64::new(0);
        Arc::new(Self {
            thread,
            seat: AtomicUsize::new(0),
            waiting: now,
            head: none(),
            blocked: none(),
            began: none(),
            requests: zero(),
            finished: zero(),
            given_up: zero(),
            heads: zero(),
            wrong: OnceLock::new(),
            is_in_body: AtomicBool::new(false),
            asked: AtomicU8::new(Asked::Nothing as u8),
            waker: OnceLock::new(),
            newest: Mutex::default(),
        })
    }

    /// Once a request, and when somebody has to wait. The coarse clock would cost more: a thread of its own, a
    /// thousand times a second.
    fn now(&self) -> u64 {
        self.thread.time.now().as_nanos()
    }

    /// A handshake is a head of sorts.
    pub(super) fn shakes_hands(&self, is_begun: bool) {
        self.head.store(if is_begun { self.now() } else { NONE }, Relaxed);
    }

    /// Notes what the bytes that came have said.
    pub(super) fn heed(&self, scan: &Scan) {
        self.heads.store(scan.heads(), Relaxed);
        self.is_in_body.store(scan.is_in_body(), Relaxed);
        if !scan.is_in_head() {
            self.head.store(NONE, Relaxed);
        } else if self.head.load(Relaxed) == NONE {
            self.head.store(self.now(), Relaxed);
        }
        if let Some(wrong) = scan.wrong() {
            let _ = self.wrong.set(wrong);
        }
    }

    /// The client takes nothing.
    pub(super) fn blocked(&self) {
        if self.blocked.load(Relaxed) == NONE {
            self.blocked.store(self.now(), Relaxed);
        }
    }

    /// The client has taken something.
    pub(super) fn unblocked(&self) {
        if self.blocked.load(Relaxed) != NONE {
            self.blocked.store(NONE, Relaxed);
        }
    }

    /// A request has come: which one it is.
    pub(super) fn enter(self: &Arc<Self>, stream: Option<Arc<Stream>>) -> (u64, Visit) {
        bump(&self.thread.tallies.requests);
        let number = self.requests.load(Relaxed);
        self.requests.store(number + 1, Relaxed);
        if stream.is_none() && self.thread.settings.total_timeout.is_some() {
            self.began.store(self.now(), Relaxed);
        }
        (number, Visit { progress: Arc::clone(self), stream, is_finished: false })
    }

    /// Whether the bytes of a head of HTTP/1 may be believed.
    pub(super) fn judge(&self, number: u64) -> Result<(), Refusal> {
        if number < self.heads.load(Relaxed) {
            return Ok(());
        }
        let astray = Refusal::bad("the request does not begin where it should");
        Err(self.wrong.get().copied().unwrap_or(astray))
    }

    /// Whether the body of a request of HTTP/1 has not come to its end.
    pub(super) fn is_in_body(&self) -> bool {
        self.is_in_body.load(Relaxed)
    }

    /// How many requests are being answered.
    fn open(&self) -> u64 {
        let ended = self.finished.load(Relaxed) + self.given_up.load(Relaxed);
        self.requests.load(Relaxed).saturating_sub(ended)
    }

    pub(super) fn is_answering(&self) -> bool {
        self.open() > 0
    }

    /// Since when nothing has been going on, if nothing is.
    pub(super) fn quiet_since(&self) -> Option<Time> {
        let is_quiet = self.open() == 0 && self.head.load(Relaxed) == NONE;
        is_quiet.then(|| Time::from_nanos(self.waiting.load(Relaxed)))
    }

    /// The same of those that may still be asked to leave.
    pub(super) fn idle_since(&self) -> Option<Time> {
        self.quiet_since().filter(|_| self.asked() == Asked::Nothing)
    }

    /// When the connection is to end unless something happens, and what for.
    pub(super) fn deadline(&self) -> (Time, Cut) {
        let moment =
            |moment: &AtomicU64| Some(moment.load(Relaxed)).filter(|it| *it != NONE).map(Time::from_nanos);
        let is_open = self.open() > 0;
        let moments = Moments {
            waiting: moment(&self.waiting).filter(|_| !is_open),
            has_answered: self.requests.load(Relaxed) > 0,
            head: moment(&self.head),
            blocked: moment(&self.blocked),
            began: moment(&self.began).filter(|_| is_open),
        };
        deadline(moments, &self.thread.settings)
    }

    /// The earliest moment at which a look is worth while.
    pub(super) fn next_look(&self, deadline: Time) -> Time {
        deadline.min(self.thread.time.now() + shortest(&self.thread.settings))
    }

    pub(super) fn asked(&self) -> Asked {
        match self.asked.load(Acquire) {
            0 => Asked::Nothing,
            1 => Asked::Finish,
            _ => Asked::Leave,
        }
    }

    /// Asks the connection for something, from whichever thread. What it is asked for never becomes less.
    pub(super) fn ask(&self, asked: Asked) {
        self.asked.fetch_max(asked as u8, Release);
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    /// Tells how the connection's task is woken; of a task every waker does.
    pub(super) fn wakes(&self, waker: &Waker) {
        if self.waker.get().is_none() {
            let _ = self.waker.set(waker.clone());
        }
    }

    pub(super) fn put_newest(&self, stream: Arc<Stream>) {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
    }

    pub(super) fn take_newest(&self) -> Option<Arc<Stream>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let progress = &self.progress;
        bump(&progress.thread.tallies.ended);
        progress.waiting.store(progress.now(), Relaxed);
        if self.is_finished || self.stream.is_none() {
            return bump(&progress.finished);
        }
        bump(&progress.given_up);
        // Whoever gives up more than it takes is after the work (CVE-2023-44487).
        if progress.given_up.load(Relaxed) > RESETS_FREE + progress.finished.load(Relaxed)
            && progress.asked() != Asked::Leave
        {
            progress.thread.tallies.cut(Cut::Resets);
            progress.ask(Asked::Leave);
        }
    }
}

/// The first bound that is met: pure.
fn deadline(moments: Moments, settings: &Settings) -> (Time, Cut) {
    let Moments { waiting, has_answered, head, blocked, began } = moments;
    let never = (Time::NEVER, Cut::Idle);
    let idle = match (waiting, head) {
        (None, _) => never,
        // A head that came while another request was being answered has its time from the end of that.
        (Some(waiting), Some(head)) => (head.max(waiting) + settings.head_timeout, Cut::Head),
        (Some(waiting), None) if has_answered => (waiting + settings.keep_alive, Cut::Idle),
        (Some(waiting), None) => (waiting + settings.head_timeout, Cut::Head),
    };
    let stall = blocked.map_or(never, |blocked| (blocked + settings.write_stall_timeout, Cut::Stall));
    let total = began.zip(settings.total_timeout);
    let total = total.map_or(never, |(began, timeout)| (began + timeout, Cut::Total));
    [idle, stall, total].into_iter().min_by_key(|(deadline, _)| *deadline).unwrap_or(never)
}

/// However a deadline moves, it is not earlier than this from now on; so a connection that looks as often misses none.
fn shortest(settings: &Settings) -> Duration {
    let Settings { head_timeout, keep_alive, write_stall_timeout, total_timeout, .. } = settings;
    let shortest = (*head_timeout).min(*keep_alive).min(*write_stall_timeout);
    total_timeout.map_or(shortest, |total| total.min(shortest)).max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests;
