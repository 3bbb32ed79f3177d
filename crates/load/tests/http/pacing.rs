//! When requests are sent, and what is said of those that were not.

use std::time::Duration;

use stockade_load::{
    drive::{Load, Stop},
    plan::Plan,
};

use super::stub::{Kept, answering, closed, load, ok, run};

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
    }
}

#[test]
fn who_may_have_one_under_way_waits_for_it_and_says_so() {
    // Every answer waits for a timer of the server's own, so that requests come faster than they are answered.
    let address = answering(|_| {
        let clock = std::time::Instant::now();
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
    // Who waits for the one under way has been waiting since it was due.
    let last = kept.samples.iter().max_by_key(|sample| sample.number).unwrap();
    assert!(last.response_time() > Duration::from_millis(150), "{last:?}");
    assert!(last.service_time() < Duration::from_millis(100), "{last:?}");
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
