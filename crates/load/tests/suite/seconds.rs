//! Every request is in the second in which it ends, and the seconds sum to the whole load.

use std::{
    collections::BTreeMap,
    io,
    num::NonZeroUsize,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::Duration,
};

use stockade_load::{
    generator::{CancellationToken, LoadProgress, LoadStart, LoadTest, Observer},
    plan::{ClosedLoop, EndCondition, Plan},
    sample::Sample,
    tally::Tally,
};
use stockade_model::{seed::Seed, time::Time};

use super::{
    pacing::constant,
    stub::{load, ok, responding},
};

/// The tallies of all seconds, and the requests by the second of their end.
#[derive(Default)]
struct Seconds {
    measured_from: Time,
    tallies: Vec<Tally>,
    ended: BTreeMap<usize, u64>,
}

impl Observer for Seconds {
    fn on_start(&mut self, start: LoadStart) {
        self.measured_from = start.measured_from;
    }

    fn on_second(&mut self, progress: &LoadProgress<'_>) {
        assert_eq!(progress.elapsed().as_secs(), self.tallies.len() as u64 + 1, "no second is left out");
        self.tallies.push(progress.tally.clone());
    }

    fn on_sample(&mut self, sample: &Sample) -> io::Result<()> {
        let second = (sample.timing.finished - self.measured_from).as_secs();
        *self.ended.entry(usize::try_from(second).expect("a short load")).or_default() += 1;
        Ok(())
    }
}

fn check(plan: Plan, threads: usize, seed: u64) {
    let requests = AtomicUsize::new(0);
    let address = responding(move |_| match requests.fetch_add(1, Relaxed) % 10 {
        3 => b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec(),
        7 => b"not HTTP\r\n\r\n".to_vec(),
        _ => ok("hello"),
    });
    let name = format!("{plan}, {threads} threads");
    let load = LoadTest {
        threads: NonZeroUsize::new(threads),
        seed: Seed(seed),
        observes_samples: true,
        ..load(&format!("http://{address}/"), plan)
    };
    let mut seconds = Seconds::default();
    let summary = load.run(&mut seconds, &CancellationToken::new()).expect("it runs").summary;
    let by_second: Vec<u64> = seconds.tallies.iter().map(Tally::requests).collect();
    let expected: Vec<u64> =
        (0..by_second.len()).map(|second| seconds.ended.get(&second).copied().unwrap_or_default()).collect();
    assert_eq!(by_second, expected, "{name}");
    let mut sum = Tally::default();
    seconds.tallies.iter().for_each(|tally| sum.merge(tally));
    assert_eq!(sum.requests(), summary.measured.requests(), "{name}");
    assert_eq!(sum.status_codes, summary.measured.status_codes, "{name}");
    assert_eq!(sum.failures, summary.measured.failures, "{name}");
    assert_eq!(sum.retries, summary.measured.retries, "{name}");
    assert!(by_second.last().is_some_and(|last| *last > 0), "{name}: the last second has no request");
}

/// The final counts of a worker raced with the tick of the second that ended at the same moment.
#[test]
fn seconds_sum_to_the_load() {
    let closed = |millis| {
        let end = EndCondition::Duration(Duration::from_millis(millis));
        Plan::closed_loop(ClosedLoop::new(3, end)).expect("a plan")
    };
    thread::scope(|scope| {
        for (at, seed) in (1..=12).enumerate() {
            // Whole seconds, and random durations.
            let millis = if at % 2 == 0 {
                1_000 * (seed % 3 + 1)
            } else {
                300 + Seed(seed).child("duration").0 % 2_500
            };
            let rate = 20 + Seed(seed).child("rate").0 % 400;
            let threads = at % 3 + 1;
            scope.spawn(move || {
                check(constant(&format!("{rate}/s"), Duration::from_millis(millis)), threads, seed);
            });
        }
        for millis in [1_000, 1_700] {
            scope.spawn(move || check(closed(millis), 2, millis));
        }
    });
}
