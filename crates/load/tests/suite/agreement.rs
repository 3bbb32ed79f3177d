//! A closed loop against a server that records its own times, compared with wrk, which corrects its times.
//!
//! wrk takes the mean time of a request as the interval in which a connection would have sent. For each response that took
//! longer it adds times of requests that were never sent, each shorter by that interval (`stats_correct` in its
//! `src/stats.c`). Its percentiles are of both.

use std::{
    io::{BufReader, Write},
    net::SocketAddr,
    process::Command,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use stockade_load::generator::{CancellationToken, LoadTest};

use super::stub::{SampleLog, closed, load, ok, read_head, server};

/// The longest responses by far, also on a slow machine.
const STALL: Duration = Duration::from_millis(400);
/// One response in this number stalls.
const STALL_EVERY: usize = 200;
/// A time that no stalled response has, and hardly another one.
const BETWEEN: Duration = Duration::from_millis(100);

/// The time of each response, from the arrival of its request, in the order of responses.
#[derive(Clone, Default)]
struct ServerRecord(Arc<Mutex<Vec<Duration>>>);

impl ServerRecord {
    fn times(&self) -> Vec<Duration> {
        self.0.lock().unwrap().clone()
    }
}

/// A server that stalls one response in [`STALL_EVERY`], the first in the middle.
fn stalling() -> (SocketAddr, ServerRecord) {
    let record = ServerRecord::default();
    let log = record.clone();
    let address = server(move |mut connection| {
        let mut requests = BufReader::new(connection.try_clone().expect("a second handle"));
        while let Ok(Some(_)) = read_head(&mut requests) {
            let arrived = Instant::now();
            if log.0.lock().unwrap().len() % STALL_EVERY == STALL_EVERY / 2 {
                thread::sleep(STALL);
            }
            log.0.lock().unwrap().push(arrived.elapsed());
            if connection.write_all(&ok("hello")).is_err() {
                return;
            }
        }
    });
    (address, record)
}

/// wrk's percentile of sorted times.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    // Rounds `percent / 100 * count + 1/2`.
    let rank = (percent * sorted.len() + 100) / 100;
    sorted[rank.min(sorted.len()) - 1]
}

fn sorted(times: impl IntoIterator<Item = Duration>) -> Vec<Duration> {
    let mut times: Vec<_> = times.into_iter().collect();
    times.sort_unstable();
    times
}

/// The sorted times after wrk's correction. `runtime / (requests / connections)` is its interval.
fn corrected(times: &[Duration], interval: Duration) -> Vec<Duration> {
    let invented = times.iter().flat_map(|time| {
        let shorter = |time: &Duration| time.checked_sub(interval).filter(|time| *time > interval);
        std::iter::successors(shorter(time), shorter)
    });
    sorted(times.iter().copied().chain(invented))
}

#[test]
fn correction_adds_requests_that_were_not_sent() {
    let ms = Duration::from_millis;
    let times: Vec<_> = (0..199).map(|_| ms(4)).chain([ms(200)]).collect();
    assert_eq!([50, 90, 99, 100].map(|percent| percentile(&times, percent)), [ms(4), ms(4), ms(4), ms(200)]);
    // The mean: the interval of one connection, and of each of twenty.
    let corrected = corrected(&times, Duration::from_micros(4_980));
    assert_eq!(corrected.len(), 200 + 39);
    let percentiles = [50, 90, 99, 100].map(|percent| percentile(&corrected, percent).as_micros());
    assert_eq!(percentiles, [4_000, 85_460, 190_040, 200_000]);
}

#[test]
fn closed_loop_has_the_times_that_the_server_has_recorded() {
    let (address, record) = stalling();
    let requests = 5 * STALL_EVERY;
    let load = LoadTest {
        observes_samples: true,
        ..load(&format!("http://{address}/"), closed(1, requests as u64))
    };
    let mut log = SampleLog::default();
    let began = Instant::now();
    let measured = load.run(&mut log, &CancellationToken::new()).unwrap().summary.measured;
    let interval = began.elapsed() / u32::try_from(requests).unwrap();

    let served = record.times();
    let times = &measured.times.service;
    assert_eq!((measured.successes, times.count(), served.len()), (1_000, 1_000, 1_000));
    log.samples.sort_by_key(|sample| sample.number);
    let sent: Vec<_> = log.samples.iter().map(|sample| sample.timing.service_time()).collect();
    // The time on the wire contains that of the server, for each request.
    for (n, (sent, served)) in sent.iter().zip(&served).enumerate() {
        assert!(sent >= served, "request {n}: {sent:?}, at the server {served:?}");
    }

    let served = sorted(served);
    for (percent, quantile) in [(50, 0.5), (90, 0.9), (99, 0.99), (100, 1.0)] {
        let (ours, theirs) = (times.quantile(quantile).unwrap(), percentile(&served, percent));
        assert!(ours.abs_diff(theirs) < BETWEEN, "p{percent}: {ours:?}, at the server {theirs:?}");
    }
    // wrk's correction of the same times reports stalls where 99 % of the requests had none.
    let corrected = corrected(&sent, interval);
    assert!(percentile(&served, 99) < BETWEEN && percentile(&corrected, 99) > 2 * BETWEEN, "{corrected:?}");
    assert!(corrected.len() > requests + 5, "{}", corrected.len());
}

#[test]
fn wrk_prints_percentiles_of_its_correction() {
    let (address, record) = stalling();
    let output = Command::new("wrk")
        .args(["-t1", "-c1", "-d3s", "--latency", &format!("http://{address}/")])
        .output()
        .expect("wrk, which `make deps` installs");
    let output = String::from_utf8(output.stdout).expect("UTF-8");
    // `  1398 requests in 3.00s, 91.48KB read`
    let line = output.lines().find(|line| line.contains(" requests in ")).expect(&output);
    let mut words = line.trim().split(' ');
    let requests: usize = words.next().unwrap().parse().expect(line);
    let runtime = duration(words.nth(2).unwrap().trim_end_matches(','));

    // The last response may come after the end.
    let served = record.times()[..requests].to_vec();
    let corrected = corrected(&served, runtime / u32::try_from(requests).unwrap());
    let served = sorted(served);
    let line = output.lines().find_map(|line| line.trim().strip_prefix("99%")).expect(&output);
    let printed = duration(line.trim());
    assert!(percentile(&served, 99) < BETWEEN, "{:?}", percentile(&served, 99));
    assert!(printed > 2 * BETWEEN, "{output}");
    assert!(printed.abs_diff(percentile(&corrected, 99)) < BETWEEN, "{output}");
}

/// `950.00us`, `398.12ms`, `3.00s`
fn duration(text: &str) -> Duration {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (number, seconds) =
        units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds))).expect(text);
    Duration::from_secs_f64(number.parse::<f64>().expect(text) * seconds)
}
