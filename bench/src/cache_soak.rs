//! A soak test of the library: four caches that three runtimes and plain threads share, for half an hour.
//!
//! Callers ask for a mix of keys whose sources answer at once, are slow, fail, panic and hang. Meanwhile limits are resized, entries are
//! invalidated one by one, by tag and all at once, snapshots are written and read, and one of the runtimes is shut down with its
//! callers every few seconds. Each answer is checked to be of its key, each call has to end within its bound, and resident memory
//! must not grow.

use std::{
    fmt::Write as _,
    io, panic,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use stockade_cache::{
    Answer, Breaker, Cache, Error, Fetch, Invalidation, Limit, LoadBounds, RawCodec, Snapshots, Strategy,
    sync,
};
use tokio::{runtime::Builder, time::sleep};

use crate::process::resident_bytes;

/// Errors of the tool itself, shown to the user.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const DEADLINE: Duration = Duration::from_secs(1);
const WAIT_TIMEOUT: Duration = Duration::from_millis(500);
/// The wait for a place, for a turn of the breaker and for the load, and two seconds for a machine that does other work.
const CALL_BOUND: Duration = Duration::from_secs(5);
const KEYS: u64 = 60_000;
const TASKS: usize = 24;
const THREADS: usize = 4;
/// The pause of each caller between its calls.
const PAUSE: Duration = Duration::from_millis(2);

type Pages = Cache<String, Arc<str>>;

/// The calls so far.
#[derive(Default)]
struct Tally {
    calls: AtomicU64,
    errors: AtomicU64,
    /// Answers of other keys.
    wrong: AtomicU64,
    /// Calls that took longer than [`CALL_BOUND`].
    late: AtomicU64,
    longest_ms: AtomicU64,
}

impl Tally {
    fn record(&self, key: &str, began: Instant, answer: std::result::Result<Answer<Arc<str>>, Error>) {
        let took = began.elapsed();
        self.calls.fetch_add(1, Relaxed);
        self.longest_ms.fetch_max(u64::try_from(took.as_millis()).unwrap_or(u64::MAX), Relaxed);
        self.late.fetch_add(u64::from(took > CALL_BOUND), Relaxed);
        match answer {
            Ok(answer) => {
                let is_its = answer.value.split_once(' ').is_some_and(|(of, _)| of == key);
                self.wrong.fetch_add(u64::from(!is_its), Relaxed);
            }
            Err(_) => _ = self.errors.fetch_add(1, Relaxed),
        }
    }
}

/// The caches, in the order of their names.
#[derive(Clone)]
struct Caches {
    entries: Pages,
    bytes: Pages,
    stale: Pages,
    threads: sync::Cache<String, Arc<str>>,
}

impl Caches {
    fn new() -> Result<Self> {
        let fetch = Fetch::coalesce(WAIT_TIMEOUT);
        let load = LoadBounds {
            deadline: DEADLINE,
            max_concurrent: Some(200),
            queue: 1_000,
            ..Strategy::default().load
        };
        let ttl = Some(Duration::from_secs(5));
        let limit = Some(Limit::entries(20_000));
        let base = Strategy { fetch, load, ttl, limit, ..Strategy::default() };
        let bytes = Strategy { limit: Some(Limit::bytes(16 << 20)), ..base.clone() };
        let stale = Strategy {
            swr: Duration::from_secs(5),
            sie: Duration::from_mins(1),
            throttle: Duration::from_millis(200),
            breaker: Some(Breaker::DEFAULT),
            ..base.clone()
        };
        let tags = |_: &String, value: &Arc<str>, tag: &mut dyn FnMut(&str)| tag(&value[value.len() - 1..]);
        Ok(Self {
            entries: Cache::builder(base.clone()).tags(tags).build()?,
            bytes: Cache::builder(bytes)
                .weigh(|key: &String, value: &Arc<str>| key.len() + value.len())
                .build()?,
            stale: Cache::builder(stale).tags(tags).build()?,
            threads: Cache::builder(base).build_sync()?,
        })
    }

    fn pages(&self, number: u64) -> &Pages {
        [&self.entries, &self.bytes, &self.stale][usize::try_from(number % 3).expect("below 3")]
    }
}

fn value(key: &str, number: u64) -> Arc<str> {
    let length = usize::try_from(number % 1_500).expect("short");
    format!("{key} {:length$}{}", "", number % 10).into()
}

/// One source in a hundred fails, some are slow, and a few hang or panic.
async fn load(key: String, number: u64) -> io::Result<Arc<str>> {
    match number % 1_000 {
        0 => std::future::pending().await,
        1 => panic!("on purpose"),
        2..12 => Err(io::Error::other("no luck")),
        12..300 => {
            sleep(Duration::from_millis(number % 40)).await;
            Ok(value(&key, number))
        }
        _ => Ok(value(&key, number)),
    }
}

async fn call_for_ever(caches: Caches, tally: Arc<Tally>, seed: u64, ends: Arc<AtomicBool>) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    while !ends.load(Relaxed) {
        let (number, shape) =
            (rng.random_range(0..KEYS) * rng.random_range(0..KEYS) / KEYS, rng.random_range(0..20_u8));
        let (key, pages) = (format!("page{number}"), caches.pages(rng.random_range(0..3)));
        let began = Instant::now();
        let of = key.clone();
        match shape {
            0 => _ = pages.insert(key.clone(), value(&key, number)),
            1 => drop(pages.remove(&key)),
            2 => tally.record(&key, began, pages.refresh(key.clone(), move || load(of, number)).await),
            // The caller gives up.
            3 => drop(
                tokio::time::timeout(Duration::from_millis(5), pages.get_with(key, move || load(of, number)))
                    .await,
            ),
            _ => tally.record(&key, began, pages.get_with_by_ref(&key, move || load(of, number)).await),
        }
        sleep(PAUSE).await;
    }
}

fn call_from_a_thread(caches: &Caches, tally: &Tally, seed: u64, ends: &AtomicBool) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    while !ends.load(Relaxed) {
        let number = rng.random_range(0..KEYS) * rng.random_range(0..KEYS) / KEYS;
        let key = format!("page{number}");
        let (began, of) = (Instant::now(), key.clone());
        let load = move || match number % 1_000 {
            // A thread cannot be cancelled: the source has a timeout of its own.
            0 => {
                thread::sleep(2 * DEADLINE);
                Err(io::Error::other("timed out"))
            }
            2..12 => Err(io::Error::other("no luck")),
            12..40 => {
                thread::sleep(Duration::from_millis(number % 40));
                Ok(value(&of, number))
            }
            _ => Ok(value(&of, number)),
        };
        tally.record(&key, began, caches.threads.get_with_by_ref(&key, load));
        thread::sleep(PAUSE);
    }
}

/// Resizes, invalidates, and writes and reads snapshots.
fn disturb(caches: &Caches, seed: u64, ends: &AtomicBool) -> Result<()> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let snapshots = Snapshots::new("soak 1", RawCodec, RawCodec);
    while !ends.load(Relaxed) {
        thread::sleep(Duration::from_millis(250));
        let entries = rng.random_range(1_000..20_000);
        match rng.random_range(0..12_u8) {
            0 => caches.entries.resize(&Limit::entries(entries))?,
            1 => caches.bytes.resize(&Limit::bytes(rng.random_range(4 << 20..16 << 20)))?,
            2 => caches.stale.resize(&Limit::entries(entries))?,
            3 => caches.threads.as_async().resize(&Limit::entries(entries))?,
            4 => _ = caches.entries.invalidate_tag("7", Invalidation::Hard),
            5 => _ = caches.stale.invalidate_tag("7", Invalidation::Soft),
            6 => _ = caches.stale.invalidate_all(Invalidation::Soft),
            7 => _ = caches.threads.as_async().invalidate_all(Invalidation::Hard),
            8 => _ = caches.bytes.invalidate_if(|key, _| key.ends_with('3'), Invalidation::Hard),
            9 => _ = caches.entries.purge_expired(),
            _ => {
                let mut bytes = Vec::new();
                snapshots.write(&caches.stale, SystemTime::now(), &mut bytes)?;
                snapshots.read(&caches.stale, SystemTime::now(), bytes.as_slice())?;
            }
        }
    }
    Ok(())
}

/// Runs for `time`. Returns the report, and true if everything held.
///
/// # Errors
/// Threads or runtimes cannot be started, or the memory of the process cannot be read.
pub fn run(time: Duration) -> Result<(String, bool)> {
    let panics = Arc::new(AtomicU64::new(0));
    panic::set_hook(Box::new({
        let panics = Arc::clone(&panics);
        move |panic| {
            // Thousands are a part of it, and each backtrace would load more of the program's symbols into memory.
            if panic.payload_as_str() != Some("on purpose") {
                panics.fetch_add(1, Relaxed);
                eprintln!("{panic}");
            }
        }
    }));
    let (caches, tally, ends) = (Caches::new()?, Arc::<Tally>::default(), Arc::new(AtomicBool::new(false)));
    let call = |seed| call_for_ever(caches.clone(), Arc::clone(&tally), seed, Arc::clone(&ends));
    let lasting = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let single = Builder::new_current_thread().enable_all().build()?;
    let mut seeds = 0..u64::MAX;
    let mut next = || seeds.next().unwrap_or_default();
    for _ in 0..TASKS {
        lasting.spawn(call(next()));
        single.spawn(call(next()));
    }
    let began = Instant::now();
    let mut resident = Vec::new();
    let stop = Stop(&ends);
    thread::scope(|scope| -> Result<()> {
        scope.spawn(|| {
            single.block_on(async {
                while !ends.load(Relaxed) {
                    sleep(Duration::from_millis(100)).await;
                }
            });
        });
        for _ in 0..THREADS {
            let seed = next();
            scope.spawn({
                let (caches, tally, ends) = (&caches, &tally, &ends);
                move || call_from_a_thread(caches, tally, seed, ends)
            });
        }
        // Whatever happens below, the threads of the scope end.
        let _stop = stop;
        let disturbing = scope.spawn(|| disturb(&caches, 1, &ends).map_err(|error| error.to_string()));
        // A runtime that comes and goes with its callers, and takes their loads with it.
        let mut passing = None;
        while began.elapsed() < time && !disturbing.is_finished() {
            let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
            (0..TASKS).for_each(|_| drop(runtime.spawn(call(next()))));
            if let Some(old) = passing.replace(runtime) {
                old.shutdown_background();
            }
            thread::sleep(Duration::from_secs(3).min(time / 10));
            resident.push(resident_bytes()?);
            if resident.len() % 20 == 0 {
                eprintln!("{}", line(&tally, began.elapsed(), &resident));
            }
        }
        ends.store(true, Relaxed);
        disturbing.join().map_err(|_| "the disturbing thread panicked")??;
        Ok(())
    })?;
    if resident.len() < 10 {
        return Err("too short: memory was read fewer than ten times".into());
    }
    let fifth = resident.len() / 5;
    let peak = |part: &[u64]| part.iter().max().copied().unwrap_or(0);
    let (early, late) = (peak(&resident[fifth..2 * fifth]), peak(&resident[resident.len() - fifth..]));
    let is_flat = late <= early + early / 10 + (4 << 20);
    let faults = [&tally.wrong, &tally.late, &panics].map(|count| count.load(Relaxed));
    let holds = is_flat && faults == [0; 3];
    let mut report = line(&tally, began.elapsed(), &resident);
    writeln!(
        report,
        "\nresident memory: {} MiB at most in the second fifth, {} MiB in the last",
        early >> 20,
        late >> 20
    )?;
    for (name, stats) in [
        ("entries", caches.entries.stats()),
        ("bytes", caches.bytes.stats()),
        ("stale", caches.stale.stats()),
        ("threads", caches.threads.as_async().stats()),
    ] {
        writeln!(report, "{name}: {stats:?}")?;
    }
    report.push_str(if holds { "holds" } else { "DOES NOT HOLD" });
    Ok((report, holds))
}

/// Ends all callers when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn line(tally: &Tally, passed: Duration, resident: &[u64]) -> String {
    let [calls, errors, wrong, late, longest_ms] =
        [&tally.calls, &tally.errors, &tally.wrong, &tally.late, &tally.longest_ms]
            .map(|count| count.load(Relaxed));
    let mib = resident.last().copied().unwrap_or(0) >> 20;
    format!(
        "{} s: {calls} calls, {errors} errors, {wrong} wrong, {late} later than {} s, the longest {longest_ms} ms, {mib} MiB",
        passed.as_secs(),
        CALL_BOUND.as_secs()
    )
}
