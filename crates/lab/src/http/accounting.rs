//! Microstate accounting: a thread reads the times of all threads of a run in a window of its load.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    convert::Infallible,
    io,
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use stockade_load::generator::busy_wait;
use stockade_model::proc::{ThreadId, ThreadTimes, process_tree, thread_times};
use stockade_model::units::{milliseconds, stretched};
use stockade_record::record::{Accounting, Role, ThreadShares};

use super::sampler::CounterPage;
use stockade_record::clock::instant;

/// Between two readings. A thread counts from its first to its last one.
const INTERVAL: Duration = Duration::from_millis(250);
/// Readings between the first and the last take at most one part in this of a core: the more there is to read, the rarer they are.
const COST_MAX: u32 = 200;

/// The part of a load in which the time of threads is accounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountingWindow {
    /// Since the start of the load.
    pub at: Duration,
    pub length: Duration,
}

/// The processes of a role.
#[derive(Clone, Copy, Debug)]
pub(super) struct AccountedProcess {
    pub(super) role: Role,
    pub(super) id: u32,
    /// A server that we know nothing of: its descendants belong to it.
    pub(super) is_foreign: bool,
}

/// A thread that accounts, until the window or the load ends.
pub(super) struct AccountingThread {
    /// Nothing is sent: its end is the end of the load.
    running: Sender<Infallible>,
    thread: JoinHandle<Option<Accounting>>,
}

/// Threads from their first to their last reading.
#[derive(Default)]
struct ThreadReadings(BTreeMap<ThreadId, ThreadLife>);

struct ThreadLife {
    role: Role,
    kind: String,
    first: (Instant, ThreadTimes),
    last: (Instant, ThreadTimes),
}

/// Sums over the threads of a kind.
#[derive(Default)]
struct KindTimes {
    count: usize,
    run: Duration,
    wait: Duration,
    sleep: Duration,
    user_ticks: Duration,
    system_ticks: Duration,
}

/// The counters of the workers of a proxy's or an app's runtime, since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
struct WorkerCounters {
    workers: u64,
    worker_busy_seconds: f64,
    worker_parks: u64,
}

impl AccountingWindow {
    pub(super) fn scale(&mut self, factor: f64) {
        *self = Self { at: stretched(self.at, factor), length: stretched(self.length, factor) };
    }
}

impl AccountingThread {
    /// The load starts now. `stats`: the proxy's counters.
    pub(super) fn start(
        window: AccountingWindow,
        processes: Vec<AccountedProcess>,
        stats: Option<CounterPage>,
    ) -> io::Result<Self> {
        let (running, load) = mpsc::channel();
        let start = instant();
        let run = move || account(window, start, &processes, stats.as_ref(), &load);
        let thread = thread::Builder::new().name("sampler".to_owned()).spawn(run)?;
        Ok(Self { running, thread })
    }

    /// The load has ended. `None`: before the window began.
    pub(super) fn finish(self) -> Option<Accounting> {
        drop(self.running);
        self.thread.join().ok().flatten()
    }
}

/// True if the load still runs at that time.
fn runs_until(load: &Receiver<Infallible>, until: Instant) -> bool {
    let left = until.saturating_duration_since(instant());
    load.recv_timeout(left) == Err(RecvTimeoutError::Timeout)
}

fn account(
    window: AccountingWindow,
    start: Instant,
    processes: &[AccountedProcess],
    stats: Option<&CounterPage>,
    load: &Receiver<Infallible>,
) -> Option<Accounting> {
    if !runs_until(load, start + window.at) {
        return None;
    }
    let (mut readings, mut samples) = (ThreadReadings::default(), 0);
    let (first, cpu, polled) = (instant(), own_cpu(), busy_wait());
    let end = first + window.length;
    let workers = stats.and_then(worker_counters);
    let mut runs = true;
    loop {
        let before = own_cpu();
        readings.add(processes);
        samples += 1;
        let now = instant();
        if now >= end || !runs {
            break;
        }
        let pause = INTERVAL.max(own_cpu().saturating_sub(before) * COST_MAX);
        runs = runs_until(load, end.min(now + pause));
    }
    let counted = workers.zip(stats.and_then(worker_counters));
    let length = instant() - first;
    let seconds = length.as_secs_f64();
    let mut threads = readings.shares();
    let polled = busy_wait().saturating_sub(polled);
    for workers in threads.iter_mut().filter(|threads| threads.kind == "worker") {
        match (workers.role, counted) {
            (Role::Load, _) => {
                workers.busy_wait = Some(polled.as_secs_f64() / (workers.count as f64 * seconds));
            }
            (Role::Proxy, Some((before, after))) => {
                let whole = after.workers as f64 * seconds;
                let busy = (after.worker_busy_seconds - before.worker_busy_seconds) / whole;
                let parks = after.worker_parks.saturating_sub(before.worker_parks);
                (workers.busy, workers.parks_per_s) =
                    (Some(busy.clamp(0.0, 1.0)), Some(parks as f64 / whole));
            }
            _ => {}
        }
    }
    Some(Accounting {
        at_ms: milliseconds(first - start),
        for_ms: milliseconds(length),
        samples,
        sampler_cpu: own_cpu().saturating_sub(cpu).as_secs_f64() / seconds,
        threads,
    })
}

/// Processor time of this thread.
fn own_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn worker_counters(stats: &CounterPage) -> Option<WorkerCounters> {
    serde_json::from_str(&stats.read().ok()?).ok()
}

impl ThreadReadings {
    fn add(&mut self, processes: &[AccountedProcess]) {
        for process in processes {
            let members = if process.is_foreign { process_tree(process.id) } else { vec![process.id] };
            for times in members.into_iter().flat_map(thread_times) {
                let is_main = !process.is_foreign && times.id.number == process.id;
                let kind = if is_main { "main".to_owned() } else { kind(&times.name).to_owned() };
                self.note(process.role, kind, instant(), times);
            }
        }
    }

    fn note(&mut self, role: Role, kind: String, at: Instant, times: ThreadTimes) {
        let life = self.0.entry(times.id);
        let life = life.or_insert_with(|| ThreadLife {
            role,
            kind: String::new(),
            first: (at, times.clone()),
            last: (at, times.clone()),
        });
        // A new thread has the name of its parent at first.
        (life.kind, life.last) = (kind, (at, times));
    }

    /// A row for each role and kind.
    fn shares(&self) -> Vec<ThreadShares> {
        let mut kinds: BTreeMap<(Role, &str), KindTimes> = BTreeMap::new();
        for life in self.0.values() {
            kinds.entry((life.role, &life.kind)).or_default().add(life);
        }
        let knows_waits = self.0.values().any(|life| life.last.1.scheduler.is_some());
        let mut kinds: Vec<_> = kinds.into_iter().filter(|(_, times)| !times.whole().is_zero()).collect();
        kinds.sort_by_key(|((role, kind), times)| (*role, Reverse(times.run), *kind));
        kinds.iter().map(|((role, kind), times)| times.shares(*role, kind, knows_waits)).collect()
    }
}

impl KindTimes {
    fn add(&mut self, life: &ThreadLife) {
        let ((from, first), (to, last)) = (&life.first, &life.last);
        let ticks = [last.user.saturating_sub(first.user), last.system.saturating_sub(first.system)];
        let (run, wait) = match last.scheduler {
            Some(last) => {
                let first = first.scheduler.unwrap_or_default();
                (last.run.saturating_sub(first.run), last.wait.saturating_sub(first.wait))
            }
            None => (ticks[0] + ticks[1], Duration::ZERO),
        };
        self.count += 1;
        self.run += run;
        self.wait += wait;
        // A turn and a wait that began before the first reading may be counted whole, and be longer than the time since then.
        self.sleep += to.saturating_duration_since(*from).saturating_sub(run + wait);
        self.user_ticks += ticks[0];
        self.system_ticks += ticks[1];
    }

    /// The time in which the threads were seen.
    fn whole(&self) -> Duration {
        self.run + self.wait + self.sleep
    }

    fn shares(&self, role: Role, kind: &str, knows_waits: bool) -> ThreadShares {
        let whole = self.whole().as_secs_f64();
        let share = |time: Duration| time.as_secs_f64() / whole;
        let ticks = (self.user_ticks + self.system_ticks).as_secs_f64();
        // The time of threads that ran for less than a tick counts as user time.
        let in_kernel = if ticks > 0.0 { self.system_ticks.as_secs_f64() / ticks } else { 0.0 };
        ThreadShares {
            role,
            kind: kind.to_owned(),
            count: self.count,
            user: share(self.run) * (1.0 - in_kernel),
            system: share(self.run) * in_kernel,
            waiting: knows_waits.then(|| share(self.wait)),
            sleeping: share(self.sleep),
            busy_wait: None,
            busy: None,
            parks_per_s: None,
        }
    }
}

/// The name of a thread without its number: `worker` of `worker-12`, `ET_NET` of `[ET_NET 3]`.
fn kind(name: &str) -> &str {
    let kind = name.trim_start_matches('[');
    let kind = kind.trim_end_matches(|c: char| c.is_ascii_digit() || "-_:/# ]".contains(c));
    if kind.is_empty() { name } else { kind }
}

#[cfg(test)]
mod tests {
    use std::{process, sync::mpsc::channel};

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;

    /// A thread that runs `work` until it is dropped.
    struct Working {
        stop: Option<Sender<Infallible>>,
        thread: Option<JoinHandle<()>>,
    }

    impl Working {
        fn start(name: &str, work: impl FnOnce(Receiver<Infallible>) + Send + 'static) -> Self {
            let (stop, stopped) = channel();
            let thread = thread::Builder::new().name(name.to_owned()).spawn(move || work(stopped));
            Self { stop: Some(stop), thread: Some(thread.expect("a thread")) }
        }

        /// Computes without a pause, on one core if there is one for it.
        fn busy(name: &str, core: Option<usize>) -> Self {
            Self::start(name, move |stopped| {
                if let Some(core) = core {
                    let mut cores = CpuSet::new();
                    cores.set(core);
                    sched_setaffinity(None, &cores).expect("a core of this process");
                }
                while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    std::hint::black_box((0..10_000_u64).fold(0, u64::wrapping_add));
                }
            })
        }
    }

    impl Drop for Working {
        fn drop(&mut self) {
            drop(self.stop.take());
            self.thread.take().expect("it runs").join().expect("it ends");
        }
    }

    /// This process over a second and a half.
    fn accounted() -> Accounting {
        let window = AccountingWindow { at: Duration::ZERO, length: Duration::from_millis(1_500) };
        let own = AccountedProcess { role: Role::Load, id: process::id(), is_foreign: false };
        let (_load, running) = channel();
        let accounting = account(window, instant(), &[own], None, &running).expect("a window");
        for threads in &accounting.threads {
            let shares =
                [threads.user, threads.system, threads.waiting.unwrap_or_default(), threads.sleeping];
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 0.005, "{threads:?}");
            assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{threads:?}");
        }
        accounting
    }

    fn of<'a>(accounting: &'a Accounting, kind: &str) -> &'a ThreadShares {
        accounting
            .threads
            .iter()
            .find(|threads| threads.kind == kind)
            .unwrap_or_else(|| panic!("{accounting:?}"))
    }

    #[test]
    fn each_thread_shows_in_its_column() {
        let core = (0..CpuSet::MAX_CPU).find(|core| sched_getaffinity(None).expect("cores").is_set(*core));
        let _busy = Working::busy("busy-1", None);
        let _sleeping = Working::start("sleeping-1", |stopped| {
            let _ = stopped.recv();
        });
        // Two threads on one core: at any time one of them waits, at least.
        let _starved = ["starved-1", "starved-2"].map(|name| Working::busy(name, core));
        let accounting = accounted();
        let busy = of(&accounting, "busy");
        assert!(busy.user > 0.5 * (1.0 - busy.waiting.unwrap_or_default()), "{busy:?}");
        assert!(busy.sleeping < 0.5 && busy.system < busy.user, "{busy:?}");
        assert!(of(&accounting, "sleeping").sleeping > 0.95, "{accounting:?}");
        let starved = of(&accounting, "starved");
        assert_eq!(starved.count, 2);
        assert!(starved.waiting.is_none_or(|waiting| waiting > 0.25), "{starved:?}");
        assert!(accounting.sampler_cpu < 0.05, "{accounting:?}");
    }

    /// A reading of a thread, in milliseconds.
    fn reading(user: u64, system: u64, scheduler: Option<[u64; 2]>) -> ThreadTimes {
        let [user, system] = [user, system].map(Duration::from_millis);
        let scheduler = scheduler.map(|[run, wait]| [run, wait].map(Duration::from_millis));
        let scheduler = scheduler.map(|[run, wait]| stockade_model::proc::SchedulerTimes { run, wait });
        ThreadTimes { id: ThreadId { number: 1, started: 1 }, name: String::new(), user, system, scheduler }
    }

    /// Threads of one kind, each seen from a start to an end in milliseconds.
    fn shares(lives: &[(u64, ThreadTimes, u64, ThreadTimes)]) -> ThreadShares {
        let (zero, mut readings) = (instant(), ThreadReadings::default());
        for (number, (from, first, to, last)) in (1..).zip(lives) {
            for (at, times) in [(from, first), (to, last)] {
                let id = ThreadId { number, started: 1 };
                let at = zero + Duration::from_millis(*at);
                readings.note(Role::Proxy, "worker".to_owned(), at, ThreadTimes { id, ..times.clone() });
            }
        }
        readings.shares().remove(0)
    }

    fn rounded(shares: &ThreadShares) -> [Option<f64>; 4] {
        let all = [Some(shares.user), Some(shares.system), shares.waiting, Some(shares.sleeping)];
        all.map(|share| share.map(|share| (share * 1e4).round() / 1e4))
    }

    #[test]
    fn ticks_split_the_time_of_the_scheduler() {
        let (first, last) = (reading(100, 50, Some([160, 10])), reading(130, 60, Some([210, 20])));
        assert_eq!(rounded(&shares(&[(0, first, 100, last)])), [0.375, 0.125, 0.1, 0.4].map(Some));
        // Less than a tick.
        let (first, last) = (reading(100, 50, Some([150, 0])), reading(100, 50, Some([155, 0])));
        assert_eq!(rounded(&shares(&[(0, first, 100, last)])), [0.05, 0.0, 0.0, 0.95].map(Some));
    }

    #[test]
    fn kernel_without_scheduler_times_has_no_column_for_waiting() {
        let found = shares(&[(0, reading(100, 50, None), 100, reading(130, 60, None))]);
        assert_eq!(rounded(&found), [Some(0.3), Some(0.1), None, Some(0.6)]);
    }

    #[test]
    fn thread_counts_for_the_time_in_which_it_lived() {
        let idle = || reading(0, 0, Some([0, 0]));
        let busy = reading(50, 0, Some([50, 0]));
        let found = shares(&[(0, idle(), 150, idle()), (100, idle(), 150, busy)]);
        assert_eq!((found.count, rounded(&found)), (2, [0.25, 0.0, 0.0, 0.75].map(Some)));
        // A turn that began before the first reading is counted whole: rows still sum to 100 %.
        let long = shares(&[(0, idle(), 100, reading(90, 0, Some([100, 100])))]);
        assert_eq!(rounded(&long), [0.5, 0.0, 0.5, 0.0].map(Some));
    }

    #[test]
    fn threads_with_a_number_are_of_one_kind() {
        for (name, of) in [
            ("worker-12", "worker"),
            ("nginx", "nginx"),
            ("[ET_NET 3]", "ET_NET"),
            ("cache-timer", "cache-timer"),
            ("7", "7"),
        ] {
            assert_eq!(kind(name), of);
        }
    }

    #[test]
    fn load_that_ends_before_the_window_is_not_accounted() {
        let window = AccountingWindow { at: Duration::from_mins(10), length: Duration::from_secs(1) };
        let thread = AccountingThread::start(window, Vec::new(), None).expect("a thread");
        assert_eq!(thread.finish(), None);
    }
}
