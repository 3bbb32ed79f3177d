//! Hand-made runs.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use stockade_model::{outcome::Outcome, time::Time};
use stockade_record::timing::Timing;

use crate::{
    report::RunHeader,
    sample::{FailureClass, RequestFailure, Response, Sample},
    summary::{GeneratorHealth, SecondCounts, Summary},
    tally::Tally,
    template::RequestTemplate,
    traffic::Traffic,
};

/// 2026-03-09T07:25:03.5Z
fn zero() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(1_773_041_103_500)
}

pub fn head() -> RunHeader {
    let url = "http://127.0.0.1:8080/news?a=1&b=%22".parse().unwrap();
    RunHeader {
        id: "run-1".to_owned(),
        clock_zero: zero(),
        measured_from: Time::ZERO,
        traffic: Arc::new(Traffic::single_unchecked(RequestTemplate::get(url))),
    }
}

fn sample(
    number: u64,
    due_us: u64,
    lag_us: u64,
    service_us: u64,
    ended: Result<Response, RequestFailure>,
) -> Sample {
    let at = |us: u64| Time::from_nanos(us * 1000);
    let timing = Timing {
        scheduled: at(due_us),
        started: at(due_us + lag_us),
        finished: at(due_us + lag_us + service_us),
    };
    Sample { number, timing, bytes_out: number % 3, result: ended }
}

fn answer(status: u16, bytes: u64, outcome: Option<Outcome>) -> Response {
    Response {
        status,
        bytes,
        wire_bytes: bytes / 2,
        outcome,
        may_be_stale: false,
        deviation: None,
        stated: None,
    }
}

/// Five hand-made samples if `count` is 0; else `count` samples, one every 2 ms, with all kinds of ends.
pub fn samples(count: u64) -> Vec<Sample> {
    if count == 0 {
        let refused = RequestFailure::new(FailureClass::Refused, "127.0.0.1:8080, \"<nobody>\"");
        return vec![
            sample(0, 0, 10, 990, Ok(answer(200, 1000, Some(Outcome::Miss)))),
            sample(1, 500_000, 0, 90, Ok(answer(200, 1000, Some(Outcome::Hit)))),
            sample(2, 1_000_000, 2_500, 150_000, Ok(answer(503, 12, Some(Outcome::Error)))),
            sample(3, 1_500_000, 20, 480, Err(refused)),
            sample(4, 2_000_000, 0, 1_250_000, Ok(answer(304, 0, Some(Outcome::Hit)))),
        ];
    }
    let mut chaos: u64 = 42;
    let mut below = |bound: u64| {
        chaos = chaos.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (chaos >> 33) % bound
    };
    let mut each = |number: u64| {
        let (lag_us, scale) = (below(40), below(13));
        let service_us = 80 + below(64 << scale);
        let ended = match number % 200 {
            7 => Ok(answer(503, 120, None)),
            9 => Ok(answer(404, 9, None)),
            11 => Err(RequestFailure::from(FailureClass::Timeout)),
            50 => Ok(answer(304, 0, None)),
            _ => Ok(answer(200, 1000 + below(5000), None)),
        };
        sample(number, number * 2000, lag_us, service_us, ended)
    };
    (0..count).map(&mut each).collect()
}

pub fn failures() -> Vec<Sample> {
    let refused = |number| sample(number, number * 100_000, 30, 200, Err(FailureClass::Refused.into()));
    (0..20).map(refused).collect()
}

/// The summary of samples, in a run with a planned duration of `lasts_s`.
pub fn summary(samples: &[Sample], lasts_s: u64) -> Summary {
    let mut measured = Tally::default();
    let mut seconds = vec![SecondCounts::default(); usize::try_from(lasts_s).unwrap()];
    for sample in samples {
        measured.record(sample);
        let second = usize::try_from(sample.timing.started.elapsed().as_secs()).unwrap();
        seconds.resize(seconds.len().max(second + 1), SecondCounts::default());
        seconds[second].sent += 1;
    }
    Summary {
        id: "run-1".to_owned(),
        schedule: format!("{lasts_s}s at 500/s"),
        clock_zero: zero(),
        measured_from: Time::ZERO,
        schedule_end: Time::ZERO + Duration::from_secs(lasts_s),
        measured,
        warmup: None,
        seconds,
        dropped: 0,
        held_back: 0,
        sent_after_end: 0,
        in_flight_at_end: 0,
        in_flight_max: 3,
        connections: 4,
        generator: GeneratorHealth {
            late: None,
            in_flight_limit: None,
            is_incomplete: false,
            time_reason_count: 0,
            cpu_mean: 0.125,
            cpu_max: 0.5,
            cpu_total: Duration::from_millis(375),
            resident_bytes_max: Some(3 << 20),
            resident_bytes_last: Some(2 << 20),
            steal: None,
            invalid_reasons: Vec::new(),
        },
        agents: Vec::new(),
    }
}

/// Five requests.
pub fn small() -> Summary {
    let mut warmup = Tally::default();
    samples(0)[..2].iter().for_each(|sample| warmup.record(sample));
    Summary {
        schedule: "3s at 2/s".to_owned(),
        warmup: Some(warmup),
        in_flight_at_end: 1,
        ..summary(&samples(0), 3)
    }
}

/// 100,000 requests, too many of them late.
pub fn large() -> Summary {
    let reasons = ["92 % of a core were busy".to_owned(), "250 requests were never sent".to_owned()];
    let generator = GeneratorHealth {
        cpu_mean: 0.92,
        cpu_max: 1.0,
        invalid_reasons: reasons.into(),
        ..GeneratorHealth::default()
    };
    Summary { dropped: 250, generator, ..summary(&samples(100_000), 200) }
}

/// A run without requests.
pub fn nothing() -> Summary {
    let schedule = "10s at 1/d".to_owned();
    Summary { schedule, in_flight_max: 0, connections: 0, ..summary(&[], 10) }
}

/// A run without responses.
pub fn only_failures() -> Summary {
    Summary { schedule: "2s at 10/s".to_owned(), connections: 0, ..summary(&failures(), 2) }
}
