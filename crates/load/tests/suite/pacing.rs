//! When requests are sent, and how unsent ones are counted.

use std::{
    collections::BTreeSet,
    io::{BufReader, Write},
    num::NonZeroUsize,
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use stockade_load::{
    generator::{CancellationToken, LoadTest, Share},
    plan::{ClosedLoop, EndCondition, Plan},
    sample::{FailureClass, Sample},
};

use super::stub::{HANG, SampleLog, closed, load, ok, read_head, responding, run, server};

pub fn constant(rate: &str, duration: Duration) -> Plan {
    Plan::constant(rate.parse().expect("a rate"), duration).expect("a plan with requests")
}

#[test]
fn due_times_do_not_depend_on_the_number_of_threads() {
    let address = responding(|_| ok("hello"));
    for threads in [1, 3] {
        let load = LoadTest {
            threads: NonZeroUsize::new(threads),
            observes_samples: true,
            ..load(&format!("http://{address}/"), constant("1000/s", Duration::from_millis(200)))
        };
        let mut log = SampleLog::default();
        let summary = load.run(&mut log, &CancellationToken::new()).unwrap().summary;
        assert_eq!((summary.measured.requests(), summary.measured.successes), (200, 200));
        log.samples.sort_by_key(|sample| sample.number);
        for (n, sample) in log.samples.iter().enumerate() {
            assert_eq!(sample.number, n as u64);
            assert_eq!(sample.timing.scheduled - summary.measured_from, Duration::from_millis(n as u64));
            assert!(
                sample.timing.started >= sample.timing.scheduled
                    && sample.timing.finished >= sample.timing.started
            );
        }
        assert_eq!(summary.seconds.iter().map(|second| second.sent).sum::<u64>(), 200);
        assert!(log.seconds >= 1, "the observer receives the last second as well");
    }
}

/// The requests that are sent, by number, with the time since the start at which each was due.
fn requests_of(load: &LoadTest) -> Vec<(u64, Duration)> {
    let mut log = SampleLog::default();
    let summary = load.run(&mut log, &CancellationToken::new()).unwrap().summary;
    assert_eq!(summary.dropped, 0);
    let due = |sample: &Sample| sample.timing.scheduled - summary.measured_from;
    log.samples.iter().map(|sample| (sample.number, due(sample))).collect()
}

#[test]
fn shares_of_a_load_are_the_whole() {
    let address = responding(|_| ok("hello"));
    let plan = Plan::parse(
        "plan.toml",
        r#"
        [[phase]]
        rate = "700/s"
        for = "100ms"
        [[phase]]
        burst = 30
        [[phase]]
        rate = "900/s"
        for = "100ms"
        arrivals = "poisson"
        "#,
    );
    let warm = plan.unwrap().with_warmup(Duration::from_millis(30)).expect("it begins with a rate");
    let whole = LoadTest {
        observes_samples: true,
        threads: NonZeroUsize::new(2),
        first_request: 60,
        ..load(&format!("http://{address}/"), warm)
    };
    let mut all = requests_of(&whole);
    all.sort_unstable();
    assert!(all.len() > 150 && all[0].0 == 60, "{} from {:?}", all.len(), all.first());
    for weights in [[1, 1, 1], [3, 1, 2]] {
        let shares = Share::by_weight(&weights.map(|weight: u32| weight.try_into().unwrap()));
        let parts = shares.into_iter().map(|share| requests_of(&LoadTest { share, ..whole.clone() }));
        let mut union: Vec<_> = parts.flatten().collect();
        union.sort_unstable();
        assert_eq!(union, all, "{weights:?}");
    }
}

#[test]
fn shares_of_a_closed_loop_have_its_connections_and_requests() {
    let address = responding(|_| ok("hello"));
    let whole = LoadTest {
        observes_samples: true,
        threads: NonZeroUsize::new(2),
        ..load(&format!("http://{address}/"), closed(7, 500))
    };
    let (mut numbers, mut connections) = (Vec::new(), 0);
    for share in Share::by_weight(&[1, 2].map(|weight: u32| weight.try_into().unwrap())) {
        let mut log = SampleLog::default();
        let load = LoadTest { share, ..whole.clone() };
        let summary = load.run(&mut log, &CancellationToken::new()).unwrap().summary;
        connections += summary.connections;
        numbers.extend(log.samples.iter().map(|sample| sample.number));
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..500).collect::<Vec<_>>());
    assert_eq!(connections, 7);
}

#[test]
fn requests_that_wait_for_a_slot_count_from_their_due_time() {
    // The first response takes longer than the schedule, so all other requests wait for it.
    let (schedule, delay) = (Duration::from_millis(100), Duration::from_millis(300));
    let requests = AtomicUsize::new(0);
    let address = responding(move |_| {
        if requests.fetch_add(1, Relaxed) == 0 {
            thread::sleep(delay);
        }
        ok("slow")
    });
    let load = LoadTest {
        max_in_flight: Some(1),
        observes_samples: true,
        ..load(&format!("http://{address}/"), constant("1000/s", schedule))
    };
    let mut log = SampleLog::default();
    let summary = load.run(&mut log, &CancellationToken::new()).unwrap().summary;
    assert_eq!((summary.in_flight_max, summary.in_flight_at_end), (1, 1));
    assert_eq!((summary.measured.requests(), summary.sent_after_end, summary.dropped), (100, 99, 0));
    for sample in log.samples.iter().filter(|sample| sample.number > 0) {
        assert!(sample.timing.send_lag() + schedule >= delay, "{sample:?}");
        assert!(sample.timing.response_time() >= sample.timing.send_lag(), "{sample:?}");
    }
}

#[test]
fn warmup_is_counted_separately() {
    let address = responding(|_| ok("hello"));
    let warm =
        constant("1000/s", Duration::from_millis(200)).with_warmup(Duration::from_millis(100)).unwrap();
    let summary = run(&load(&format!("http://{address}/"), warm));
    assert_eq!(summary.warmup.unwrap().requests(), 100);
    assert_eq!(summary.measured.requests(), 200);
    assert_eq!(summary.measured.earliest, Some(summary.measured_from));
}

#[test]
fn connections_share_the_number_of_requests() {
    let address = responding(|_| ok("hello"));
    for threads in [1, 2] {
        let threads = NonZeroUsize::new(threads);
        let summary = run(&LoadTest { threads, ..load(&format!("http://{address}/"), closed(7, 500)) });
        assert_eq!((summary.measured.successes, summary.connections), (500, 7));
    }
}

#[test]
fn connections_that_have_warmed_up_go_on() {
    // The first four responses wait for each other, and outlast the warm-up.
    let warmup = Duration::from_millis(50);
    let (open, open_max) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let (requests, all_in_flight, maximum) = (AtomicUsize::new(0), Barrier::new(4), Arc::clone(&open_max));
    let address = server(move |mut connection| {
        maximum.fetch_max(open.fetch_add(1, Relaxed) + 1, Relaxed);
        let mut reader = BufReader::new(connection.try_clone().expect("a second handle"));
        while let Ok(Some(_)) = read_head(&mut reader) {
            if requests.fetch_add(1, Relaxed) < 4 {
                all_in_flight.wait();
                thread::sleep(2 * warmup);
            }
            if connection.write_all(&ok("hello")).is_err() {
                break;
            }
        }
        open.fetch_sub(1, Relaxed);
    });
    let plan = Plan::closed_loop(ClosedLoop::new(4, EndCondition::Requests(20)));
    let plan = plan.unwrap().with_warmup(warmup).unwrap();
    let threads = NonZeroUsize::new(2);
    let summary = run(&LoadTest { threads, ..load(&format!("http://{address}/"), plan) });
    assert_eq!(summary.warmup.map(|warmup| warmup.requests()), Some(4));
    assert_eq!(summary.measured.successes, 20);
    // The measured part opened no connections of its own while the warm-up waited for its responses.
    assert_eq!((open_max.load(Relaxed), summary.connections, summary.in_flight_max), (4, 4, 4));
}

#[test]
fn requests_max_holds_over_all_segments_and_threads() {
    let address = responding(|_| ok("hello"));
    let text = "[[phase]]\nrate = \"1000/s\"\nfor = \"5ms\"\n[[phase]]\nconnections = 3\nrequests = 4\n\
                [[phase]]\nrate = \"1000/s\"\nfor = \"20ms\"\n";
    for (requests_max, measured) in [(None, 29), (Some(12), 12), (Some(7), 7), (Some(5), 5), (Some(1), 1)] {
        let plan = Plan::parse("plan.toml", text).unwrap();
        let plan = requests_max.map_or(plan.clone(), |max| plan.with_requests_max(max));
        let load = LoadTest {
            threads: NonZeroUsize::new(2),
            observes_samples: true,
            ..load(&format!("http://{address}/"), plan)
        };
        let mut log = SampleLog::default();
        let summary = load.run(&mut log, &CancellationToken::new()).unwrap().summary;
        assert_eq!(summary.measured.successes, measured, "at most {requests_max:?}");
        let numbers: BTreeSet<u64> = log.samples.iter().map(|sample| sample.number).collect();
        assert_eq!(numbers.into_iter().collect::<Vec<_>>(), (0..measured).collect::<Vec<_>>());
    }
}

#[test]
fn measured_requests_do_not_depend_on_the_warmup() {
    let address = responding(|_| ok("hello"));
    let plan = constant("1000/s", Duration::from_millis(20)).with_warmup(Duration::from_millis(15)).unwrap();
    let load = LoadTest {
        threads: NonZeroUsize::new(2),
        observes_samples: true,
        ..load(&format!("http://{address}/"), plan)
    };
    let mut log = SampleLog::default();
    let summary = load.run(&mut log, &CancellationToken::new()).unwrap().summary;
    for sample in &log.samples {
        assert_eq!(
            sample.timing.scheduled - summary.measured_from,
            Duration::from_millis(sample.number),
            "{sample:?}"
        );
    }
    assert_eq!((log.samples.len(), summary.warmup.unwrap().requests()), (20, 15));
}

#[test]
fn drain_starts_at_the_end_of_the_schedule_although_requests_wait() {
    let address = server(|connection| {
        let mut requests = BufReader::new(connection);
        while let Ok(Some(_)) = read_head(&mut requests) {}
    });
    let load = LoadTest {
        max_in_flight: Some(2),
        drain: Duration::from_millis(100),
        ..load(&format!("http://{address}/"), constant("100/s", Duration::from_millis(100)))
    };
    let start = Instant::now();
    let summary = run(&load);
    assert!(start.elapsed() < HANG, "{:?}", start.elapsed());
    assert_eq!((summary.measured.failures_of(FailureClass::CutOff), summary.dropped), (2, 8));
    assert_eq!((summary.in_flight_at_end, summary.sent_after_end), (2, 0));
    assert_eq!(
        summary.schedule_end - summary.measured_from,
        Duration::from_millis(100),
        "the planned duration"
    );
    let reasons = &summary.generator.invalid_reasons;
    assert!(reasons.iter().any(|reason| reason.contains("never sent")), "{reasons:?}");
}

#[test]
fn burst_is_due_at_one_moment() {
    let address = responding(|_| ok("hello"));
    let load = load(&format!("http://{address}/"), Plan::burst(50).unwrap());
    let summary = run(&load);
    assert_eq!(
        (summary.measured.successes, summary.connections, summary.schedule_end),
        (50, 50, summary.measured_from)
    );
    assert_eq!(summary.sent_after_end, 0);
    assert_eq!(
        (summary.measured.earliest, summary.measured.latest),
        (Some(summary.measured_from), Some(summary.measured_from))
    );
}
