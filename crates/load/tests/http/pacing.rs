//! When requests are sent, and what is said of those that were not.

use std::{
    collections::BTreeSet,
    io::{BufReader, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use stockade_load::{
    drive::{Load, Stop},
    plan::{Closed, Plan, Until},
    sample::Class,
};

use super::stub::{Kept, answering, closed, head, load, ok, run, server};

pub fn evenly(rate: &str, lasts: Duration) -> Plan {
    Plan::constant(rate.parse().expect("a rate"), lasts).expect("somebody comes")
}

#[test]
fn requests_are_due_at_their_times_whoever_sends_them() {
    let address = answering(|_| ok("hello"));
    for threads in [1, 3] {
        let load = Load {
            threads: threads.try_into().unwrap(),
            tells_samples: true,
            ..load(&format!("http://{address}/"), evenly("1000/s", Duration::from_millis(200)))
        };
        let mut kept = Kept::default();
        let summary = load.run(&mut kept, &Stop::default()).unwrap().summary;
        assert_eq!((summary.measured.requests(), summary.measured.successes), (200, 200));
        kept.samples.sort_by_key(|sample| sample.number);
        for (n, sample) in kept.samples.iter().enumerate() {
            assert_eq!(sample.number, n as u64);
            assert_eq!(sample.scheduled - summary.began, Duration::from_millis(n as u64));
            assert!(sample.started >= sample.scheduled && sample.finished >= sample.started);
        }
        assert_eq!(summary.seconds.iter().map(|second| second.sent).sum::<u64>(), 200);
        assert!(kept.seconds >= 1, "every second is told, the last one as well");
    }
}

#[test]
fn who_may_have_one_under_way_waits_for_it_and_says_so() {
    // Every answer waits for a timer of the server's own, so that requests come faster than they are answered.
    let address = answering(|_| {
        let clock = Instant::now();
        while clock.elapsed() < Duration::from_millis(5) {
            std::hint::spin_loop();
        }
        ok("slow")
    });
    let load = Load {
        max_in_flight: 1,
        drain: Duration::from_millis(200),
        tells_samples: true,
        ..load(&format!("http://{address}/"), evenly("1000/s", Duration::from_millis(100)))
    };
    let mut kept = Kept::default();
    let summary = load.run(&mut kept, &Stop::default()).unwrap().summary;
    assert_eq!(summary.in_flight_max, 1);
    assert_eq!(summary.measured.requests() + summary.dropped, 100);
    assert!(summary.dropped >= 30, "{}", summary.dropped);
    assert!(
        summary.sent_after_end > 0 && summary.measured.requests() - summary.sent_after_end <= 30,
        "{summary:?}"
    );
    // Who waits for the one under way has been waiting since it was due.
    let last = kept.samples.iter().max_by_key(|sample| sample.number).unwrap();
    assert!(last.response_time() > Duration::from_millis(150), "{last:?}");
    assert!(last.service_time() < last.response_time() / 2, "{last:?}");
    assert!(!summary.generator.is_valid());
    assert!(
        summary.generator.reasons.iter().any(|reason| reason.contains("never sent")),
        "{:?}",
        summary.generator
    );
}

#[test]
fn the_warm_up_is_counted_apart() {
    let address = answering(|_| ok("hello"));
    let warm = evenly("1000/s", Duration::from_millis(200)).with_warmup(Duration::from_millis(100)).unwrap();
    let summary = run(&load(&format!("http://{address}/"), warm));
    assert_eq!(summary.warmup.unwrap().requests(), 100);
    assert_eq!(summary.measured.requests(), 200);
    assert_eq!(summary.measured.earliest, Some(summary.began));
}

#[test]
fn users_share_the_requests_that_there_are() {
    let address = answering(|_| ok("hello"));
    for threads in [1, 2] {
        let threads = threads.try_into().unwrap();
        let summary = run(&Load { threads, ..load(&format!("http://{address}/"), closed(7, 500)) });
        assert_eq!((summary.measured.successes, summary.connections), (500, 7));
    }
}

/// How many connections a server of `answer` has at once, at most.
fn counted(answer: impl Fn() + Send + Sync + 'static) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let (now, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let told = Arc::clone(&most);
    let address = server(move |mut connection| {
        told.fetch_max(now.fetch_add(1, Relaxed) + 1, Relaxed);
        let mut requests = BufReader::new(connection.try_clone().expect("a second handle"));
        while let Ok(Some(_)) = head(&mut requests) {
            answer();
            if connection.write_all(&ok("hello")).is_err() {
                break;
            }
        }
        now.fetch_sub(1, Relaxed);
    });
    (address, most)
}

fn busy_for(lasts: Duration) {
    let clock = Instant::now();
    while clock.elapsed() < lasts {
        std::thread::yield_now();
    }
}

#[test]
fn users_who_have_warmed_up_go_on() {
    let (address, most) = counted(|| busy_for(Duration::from_millis(30)));
    let users = Closed::new(4, Until::Duration(Duration::from_millis(150)));
    let plan = Plan::closed(users).unwrap().with_warmup(Duration::from_millis(50)).unwrap();
    let threads = 2.try_into().unwrap();
    let summary = run(&Load { threads, ..load(&format!("http://{address}/"), plan) });
    assert!(summary.warmup.is_some_and(|warmup| warmup.requests() > 0));
    assert!(summary.measured.successes > 0);
    // No second set of users came while the first was waiting for its answers.
    assert_eq!((most.load(Relaxed), summary.connections, summary.in_flight_max), (4, 4, 4));
}

#[test]
fn a_limit_is_one_over_all_parts_and_threads() {
    let address = answering(|_| ok("hello"));
    let text = "[[phase]]\nrate = \"1000/s\"\nfor = \"5ms\"\n[[phase]]\nconnections = 3\nrequests = 4\n\
                [[phase]]\nrate = \"1000/s\"\nfor = \"20ms\"\n";
    for (most, measured) in [(None, 29), (Some(12), 12), (Some(7), 7), (Some(5), 5), (Some(1), 1)] {
        let plan = Plan::parse("plan.toml", text).unwrap();
        let plan = most.map_or(plan.clone(), |most| plan.with_requests(most));
        let load = Load {
            threads: 2.try_into().unwrap(),
            tells_samples: true,
            ..load(&format!("http://{address}/"), plan)
        };
        let mut kept = Kept::default();
        let summary = load.run(&mut kept, &Stop::default()).unwrap().summary;
        assert_eq!(summary.measured.successes, measured, "at most {most:?}");
        let numbers: BTreeSet<u64> = kept.samples.iter().map(|sample| sample.number).collect();
        assert_eq!(numbers.into_iter().collect::<Vec<_>>(), (0..measured).collect::<Vec<_>>());
    }
}

#[test]
fn what_is_asked_does_not_depend_on_the_warm_up() {
    let address = answering(|_| ok("hello"));
    let plan = evenly("1000/s", Duration::from_millis(20)).with_warmup(Duration::from_millis(15)).unwrap();
    let load = Load {
        threads: 2.try_into().unwrap(),
        tells_samples: true,
        ..load(&format!("http://{address}/"), plan)
    };
    let mut kept = Kept::default();
    let summary = load.run(&mut kept, &Stop::default()).unwrap().summary;
    for sample in &kept.samples {
        assert_eq!(sample.scheduled - summary.began, Duration::from_millis(sample.number), "{sample:?}");
    }
    assert_eq!((kept.samples.len(), summary.warmup.unwrap().requests()), (20, 15));
}

#[test]
fn the_drain_begins_when_the_schedule_ends_whoever_waits_for_whom() {
    let address = server(|connection| {
        let mut requests = BufReader::new(connection);
        while let Ok(Some(_)) = head(&mut requests) {}
    });
    let load = Load {
        max_in_flight: 2,
        drain: Duration::from_millis(100),
        ..load(&format!("http://{address}/"), evenly("100/s", Duration::from_millis(100)))
    };
    let clock = Instant::now();
    let summary = run(&load);
    let took = clock.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!((summary.measured.of(Class::CutOff), summary.dropped), (2, 8));
    assert_eq!((summary.in_flight_at_end, summary.sent_after_end), (2, 0));
    assert_eq!(summary.ended - summary.began, Duration::from_millis(100), "as long as was planned");
}

#[test]
fn a_burst_is_sent_at_once_and_has_no_rate() {
    let address = answering(|_| ok("hello"));
    let load = load(&format!("http://{address}/"), Plan::burst(50).unwrap());
    let summary = run(&load);
    assert_eq!((summary.measured.successes, summary.connections, summary.ended), (50, 50, summary.began));
    assert_eq!(summary.sent_after_end, 0);
    assert_eq!(
        (summary.measured.earliest, summary.measured.latest),
        (Some(summary.began), Some(summary.began))
    );
}
