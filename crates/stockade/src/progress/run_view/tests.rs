//! Lines of runs in virtual time.

use std::time::Duration;

use console::measure_text_width;
use stockade_model::outcome::Outcomes;
use stockade_record::{
    metrics::Results,
    progress::{Measuring, RunProgress},
    record::{Disturbance, Interval, OriginStage, Record, SCHEMA, Times},
};

use super::*;

const PLAIN: Paint = Paint { has_colors: false };
const SECOND: Duration = Duration::from_secs(1);

fn time(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn view(lasts: Option<Duration>, is_virtual: bool) -> RunView {
    let cells = ["none", "breaker"].map(|arm| (("outage".to_owned(), arm.to_owned()), lasts));
    let mut view = RunView::titled("The cost of an outage", TimeLeft::of(cells.into_iter(), is_virtual));
    view.apply(&RunProgress::Begin { steps: 4 }, Duration::ZERO);
    view
}

fn measure(view: &mut RunView, arm: &str, lasts: Option<Duration>, stages: &[OriginStage], now: Duration) {
    let measuring = Measuring { test: "outage", arm, repeat: 1, lasts, requests: None, stages };
    let (record, results) = (record(&[]), Results::default());
    view.apply(&RunProgress::Measuring { measuring, record: &record, results: &results }, now);
}

fn times(milliseconds: u64, lag: Duration) -> Times {
    let mut times = Times::default();
    (1..=100).for_each(|n| times.response.record(Duration::from_micros(milliseconds * 10 * n)));
    times.send_lag.record(lag);
    times
}

fn interval(second: u64, outcomes: Outcomes, loads: u64) -> Interval {
    let times = times(12, Duration::ZERO);
    Interval { second, outcomes, source_loads: Some(loads), times, ..Interval::default() }
}

fn stage(at: f64, behavior: &str) -> OriginStage {
    OriginStage { at_ms: at * 1e3, behavior: behavior.to_owned() }
}

fn record(verdicts: &[(&str, &str)]) -> Record {
    let hypotheses: Vec<_> = verdicts
        .iter()
        .map(|(verdict, text)| serde_json::json!({ "text": text, "verdict": verdict, "expect": [] }))
        .collect();
    let run = serde_json::json!({
        "test": "", "arm": "none", "repeat": 1, "outcomes": {}, "bytes_in": 0, "service_ms_sum": 0.0, "stores_skipped": 0,
        "stores_dropped": 0, "episodes": 0, "burst": { "strategy": "none", "workers": 1, "documents": 1, "distinct_keys": 1,
            "finished_ms": 1.0, "calls": { "fetch_doc": 1, "store_local": 1, "store_local_async": 0 }, "failed": 0,
            "waiters": 0, "start_skew_ms": 0.0 },
    });
    let record = serde_json::json!({
        "schema": SCHEMA, "experiment": "", "spec": "", "seed": 1, "scale": 1.0, "repeats": 1, "clock": "live",
        "started_at": "", "stockade": "", "host": { "cpu": "", "cores": 1, "memory_mib": 1, "os": "" }, "planned": 4,
        "interrupted": true, "tests": [], "arms": [], "runs": [run], "hypotheses": hypotheses, "verdict": "inconclusive",
    });
    serde_json::from_value(record).expect("a record")
}

/// An open load in its 34th second: the origin fails since second 22, one second is disturbed.
fn outage() -> RunView {
    let lasts = Some(60 * SECOND);
    let mut view = view(lasts, false);
    let stages =
        [stage(0.0, "latency 20ms"), stage(22.0, "latency 500ms, status 503"), stage(42.0, "latency 20ms")];
    measure(&mut view, "breaker", lasts, &stages, SECOND);
    for second in 0..34 {
        let fails = second >= 22;
        let hit = if fails { 300 } else { 400 };
        let (fallback, error) = if fails { (100, 12) } else { (0, 0) };
        let outcomes =
            Outcomes { hit, miss: 20, stale: 3, coalesced: 2, fallback, error, ..Outcomes::default() };
        let mut interval = interval(second, outcomes, if fails { 60 + second } else { 20 });
        if second == 30 {
            interval.disturbance = Some(Disturbance { stolen: 0.2, ..Disturbance::default() });
        }
        interval.times.send_lag.record(Duration::from_millis(7));
        let share = (second + 1) as f64 / 60.0;
        view.apply(
            &RunProgress::Second { interval: &interval, share, asked: None },
            time(second as f64 + 3.0),
        );
    }
    view
}

fn lines(view: &RunView, width: usize, now: Duration) -> String {
    view.lines(width, now, PLAIN).join("\n")
}

#[test]
fn open_load_at_80_columns() {
    let mut view = outage();
    let results = Results::default();
    let record = record(&[
        ("inconclusive", "the breaker costs no time"),
        ("supported", "nothing was served beyond its limit"),
        ("refuted", "while the breaker is open no request waits, not even for a probe that takes long"),
    ]);
    view.apply(&RunProgress::Record { record: &record, results: &results }, 36 * SECOND);
    insta::assert_snapshot!(lines(&view, 79, time(36.4)), @r"
    The cost of an outage                                  1 of 4, about 3m25s left
    outage/breaker, repeat 1  [################.............]  34s of 60s, 26s left
    requests               ██████████████████████████████!███ 437/s
    loads                  ▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂████████████ 93/s
    response p50 6ms  p99 11.9ms  max 12ms
    outcomes ███████████████████████████▓░░░░░░░░░▒mE
             █ hit 300  ▓ stale 3  ░ fallback 100  ▒ coalesced 2  m miss 20  E err…
    origin   latency 500ms, status 503 since 12s; in 8s: latency 20ms
    problems 12 failed, 144 in all; send lag p99 7ms; 1 second disturbed, last 30:…
    so far   ✗ refuted      while the breaker is open no request waits, not even f…
             ✓ supported    nothing was served beyond its limit
             ? inconclusive the breaker costs no time
    ");
}

#[test]
fn open_load_at_40_columns() {
    insta::assert_snapshot!(lines(&outage(), 39, time(36.4)), @r"
    The cost of …  1 of 4, about 3m25s left
    outage/breaker, …  34s of 60s, 26s left
    requests ████!███ 437/s
    loads    ████████ 93/s
    response p50 6ms  p99 11.9ms  max 12ms
    outcomes ████████████████████▓░░░░░░▒mE
             █ hit 300  ▓ stale 3  ░ fallb…
    origin   latency 500ms, status 503 sin…
    problems 12 failed, 144 in all; send l…
    ");
}

#[test]
fn open_load_at_120_columns() {
    insta::assert_snapshot!(lines(&outage(), 119, time(36.4)), @r"
    The cost of an outage                                                                          1 of 4, about 3m25s left
    outage/breaker, repeat 1                                         [#################.............]  34s of 60s, 26s left
    requests                           ██████████████████████████████!███ 437/s
    loads                              ▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂████████████ 93/s
    response p50 6ms  p99 11.9ms  max 12ms
    outcomes ███████████████████████▓░░░░░░░▒mE  █ hit 300  ▓ stale 3  ░ fallback 100  ▒ coalesced 2  m miss 20  E error 12
    origin   latency 500ms, status 503 since 12s; in 8s: latency 20ms
    problems 12 failed, 144 in all; send lag p99 7ms; 1 second disturbed, last 30: 20 % stolen
    ");
}

#[test]
fn burst_shows_the_one_before_while_it_runs() {
    let mut view = view(None, false);
    measure(&mut view, "none", None, &[], Duration::ZERO);
    let outcomes = Outcomes { miss: 700, error: 300, ..Outcomes::default() };
    for second in [0, 1] {
        view.apply(
            &RunProgress::Second { interval: &interval(second, outcomes, 0), share: 1.0, asked: None },
            2 * SECOND,
        );
    }
    measure(&mut view, "breaker", None, &[], 2 * SECOND);
    insta::assert_snapshot!(lines(&view, 79, time(2.5)), @r"
    The cost of an outage                                     2 of 4, about 6s left
    outage/breaker, repeat 1                                                  burst
    before   outage/none, repeat 1
    response p50 6ms  p99 11.9ms  max 12ms
    outcomes mmmmmmmmmmmmmmmmmmmmmmmmmmmmEEEEEEEEEEEE  m miss 1,400  E error 600
    problems 600 failed
    ");
}

#[test]
fn parts_start_before_the_first_second() {
    let mut view = view(Some(60 * SECOND), false);
    insta::assert_snapshot!(lines(&view, 39, Duration::ZERO), @r"
    The cost of an outage                  
    starting
    ");
    view.apply(&RunProgress::Begin { steps: 2 }, Duration::ZERO);
    view.apply(&RunProgress::Checking { test: "outage", arm: "none" }, Duration::ZERO);
    insta::assert_snapshot!(lines(&view, 39, Duration::ZERO), @r"
    The cost of an outage      check 1 of 2
    outage/none
    ");
    view.apply(&RunProgress::Begin { steps: 4 }, Duration::ZERO);
    measure(&mut view, "none", Some(60 * SECOND), &[], SECOND);
    insta::assert_snapshot!(lines(&view, 39, 2 * SECOND), @r"
    The cost of …  1 of 4, about 3m59s left
    outage/none, repeat 1          starting
    ");
}

#[test]
fn time_left_in_virtual_time_is_that_of_the_wait() {
    let lasts = Some(1_000 * SECOND);
    let mut view = view(lasts, true);
    measure(&mut view, "none", lasts, &[], Duration::ZERO);
    let interval = interval(249, Outcomes { hit: 5, ..Outcomes::default() }, 0);
    view.apply(&RunProgress::Second { interval: &interval, share: 0.25, asked: None }, 2 * SECOND);
    assert!(
        lines(&view, 79, 3 * SECOND).contains("4m10s of 16m40s, 5s left"),
        "{}",
        lines(&view, 79, 3 * SECOND)
    );
}

#[test]
fn at_most_five_verdicts_and_twelve_lines_the_decided_ones_first() {
    let mut view = outage();
    let results = Results::default();
    let open: Vec<_> = (0..6).map(|_| ("inconclusive", "open")).collect();
    let record =
        record(&[open.as_slice(), &[("supported", "holds"), ("refuted", "fails\u{1b}[2J")]].concat());
    view.apply(&RunProgress::Record { record: &record, results: &results }, 36 * SECOND);
    let lines = view.lines(79, time(36.4), PLAIN);
    assert_eq!(lines.len(), LINES_MAX);
    insta::assert_snapshot!(lines[9..].join("\n"), @r"
    so far   ✗ refuted      fails�[2J
             ✓ supported    holds
             and 6 more
    ");
}

#[test]
fn no_line_is_wider_than_the_terminal_and_colours_do_not_count() {
    let view = outage();
    for width in [20, 39, 79, 119, 250] {
        for has_colors in [false, true] {
            let lines = view.lines(width, 37 * SECOND, Paint { has_colors });
            let widest = lines.iter().map(|line| measure_text_width(line)).max();
            assert!(widest <= Some(width), "{widest:?} of {width}: {lines:#?}");
            assert_eq!(lines.concat().contains('\u{1b}'), has_colors);
        }
    }
}

#[cfg(feature = "http")]
mod of_load {
    use std::collections::BTreeMap;

    use stockade_record::judge::LOAD_ARM;

    use super::*;

    fn start(lasts: Option<Duration>, requests: Option<u64>) -> RunView {
        let mut view = RunView::of_load("60s at 100/s, localhost");
        view.apply(&RunProgress::Begin { steps: 1 }, Duration::ZERO);
        let (record, results) = (record(&[]), Results::default());
        let measuring = Measuring { test: "", arm: LOAD_ARM, repeat: 1, lasts, requests, stages: &[] };
        view.apply(&RunProgress::Measuring { measuring, record: &record, results: &results }, Duration::ZERO);
        view
    }

    fn seconds(view: &mut RunView, counts: &[u64]) {
        for (second, count) in (0..).zip(counts) {
            let failed = count / 10;
            let outcomes = Outcomes { error: failed, unreported: count - failed, ..Outcomes::default() };
            let interval = Interval {
                second,
                outcomes,
                status_codes: BTreeMap::from([(200, count - failed), (503, failed)]),
                errors: BTreeMap::from([("status 503".to_owned(), failed)]),
                times: times(12, Duration::from_millis(3)),
                ..Interval::default()
            };
            let share = (second + 1) as f64 / 60.0;
            let second = RunProgress::Second { interval: &interval, share, asked: Some(100.0) };
            view.apply(&second, time((interval.second + 1) as f64));
        }
    }

    #[test]
    fn load_shows_rate_times_statuses_and_failures() {
        let mut view = start(Some(60 * SECOND), None);
        seconds(&mut view, &[50, 100, 90]);
        insta::assert_snapshot!(lines(&view, 79, time(3.4)), @r"
        60s at 100/s, localhost   [##............................]  3s of 60s, 57s left
        requests                                              ▄██ 90/s, asked 100
        response p50 6ms  p99 11.9ms  max 12ms
        status   200 81  503 9
        problems 24 of 240 failed (status 503: 24); send lag p99 3ms
        ");
        insta::assert_snapshot!(lines(&view, 39, time(3.4)), @r"
        60s at 100/s, loc…  3s of 60s, 57s left
        requests      ▄██ 90/s, asked 100
        response p50 6ms  p99 11.9ms  max 12ms
        status   200 81  503 9
        problems 24 of 240 failed (status 503:…
        ");
    }

    #[test]
    fn load_of_requests_shows_their_number() {
        let mut view = start(None, Some(1_000));
        seconds(&mut view, &[50, 100]);
        insta::assert_snapshot!(lines(&view, 79, time(2.1)), @r"
        60s at 100/s, localhost          [#.............................]  150 requests
        requests                                               ▄█ 100/s, asked 100
        response p50 6ms  p99 11.9ms  max 12ms
        status   200 90  503 10
        problems 15 of 150 failed (status 503: 15); send lag p99 3ms
        ");
    }

    #[test]
    fn load_that_has_not_started_or_warms_up_says_so() {
        let mut view = start(Some(60 * SECOND), None);
        insta::assert_snapshot!(lines(&view, 39, Duration::ZERO), @"60s at 100/s, localhost        starting");
        view.apply(&RunProgress::WarmingUp { requests: 100, left: 4 * SECOND }, SECOND);
        insta::assert_snapshot!(lines(&view, 39, SECOND), @r"
        60s at 100/s, loc…  warming up, 4s left
        requests 100/s, not measured
        ");
    }
}
