//! Verdicts from made-up evidence.

use std::{collections::BTreeMap, time::Duration};

use crate::record::{
    Audit, BurstFigures, CacheFigures, Calls, Disturbance, HttpFigures, Interval, LoadFigures, OpenFigures,
    Role, Run, Times,
};
use stockade_model::outcome::Outcomes;

use super::*;
use crate::{metrics::RunningFigures, statistics::FAMILY_ERROR_RATE};

/// A run with `fetches` fetches that took `finished_ms`.
fn run(test: &str, arm: &str, repeat: u32, fetches: u64, finished_ms: f64) -> Run {
    let burst = BurstFigures {
        strategy: arm.to_owned(),
        workers: 10,
        documents: 1,
        distinct_keys: 1,
        finished_ms,
        times: None,
        calls: Calls { fetch_doc: fetches, store_local: 0, store_local_async: 0 },
        failed: 0,
        waiters: 0,
        start_skew_ms: 0.0,
    };
    Run {
        test: test.to_owned(),
        arm: arm.to_owned(),
        repeat,
        load: LoadFigures::Burst(burst),
        whole_ms_sum: None,
        outcomes: Outcomes { miss: 10, ..Outcomes::default() },
        bytes_in: 0,
        service_ms_sum: 0.0,
        stores_skipped: 0,
        stores_dropped: 0,
        episodes: 1,
        counters: BTreeMap::new(),
        cache: CacheFigures::default(),
        errors: BTreeMap::new(),
        stages: Vec::new(),
        events: Vec::new(),
        http: None,
    }
}

fn open_load(duration_ms: f64, audit: Option<Audit>) -> OpenFigures {
    OpenFigures {
        strategy: "cache".to_owned(),
        schedule: "10/s".to_owned(),
        duration_ms,
        documents: Some(9),
        distinct_keys: Some(9),
        finished_ms: duration_ms,
        calls: Calls::default(),
        waiters: 0,
        response: None,
        retries: 0,
        dropped: 0,
        in_flight_max: 1,
        source_concurrent_max: Some(1),
        audit,
    }
}

fn claim(expr: &str, names: Names<'_>, min_effect: f64) -> Claim {
    let expect = vec![(expr.to_owned(), parse(expr, names).unwrap())];
    Claim { text: "claim".to_owned(), expect, min_effect, abort: false, any_scale: false, is_judged: true }
}

fn results_of(evidence: &[Run]) -> Results {
    let mut results = Results::default();
    evidence.iter().for_each(|run| results.add(run, results.fold(None)));
    results
}

/// Judges claims in real time, about the tests and arms of the results.
fn judged_at(
    claims: &[Claim],
    names: Names<'_>,
    looks: &[Look],
    noise: Option<&NoiseArm>,
    results: &Results,
) -> Judgement {
    let cells = results.runs().iter().map(|e| (e.run.test.clone(), e.run.arm.clone())).collect();
    let repeats = looks.last().unwrap().repeats;
    judge(claims, Case { names, cells: &cells, repeats, looks, noise, clock: ClockKind::Live }, results)
}

/// One look with the whole error rate.
fn one_look(repeats: u32) -> [Look; 1] {
    [Look { repeats, error_rate: FAMILY_ERROR_RATE }]
}

/// The judged claims of one comparison each, over tests `t/1`, `t/2` and arms `a`, `b`.
fn judged(
    clock: ClockKind,
    repeats: u32,
    exprs: &[&str],
    min_effect: f64,
    evidence: &[Run],
) -> Vec<Hypothesis> {
    let (tests, arms) = (["t/1", "t/2"].map(str::to_owned), ["a", "b"].map(str::to_owned));
    let names = Names { tests: &tests, arms: &arms };
    let claims: Vec<_> = exprs.iter().map(|expr| claim(expr, names, min_effect)).collect();
    let cells = evidence.iter().map(|run| (run.test.clone(), run.arm.clone())).collect();
    let looks = one_look(repeats);
    let case = Case { names, cells: &cells, repeats, looks: &looks, noise: None, clock };
    judge(&claims, case, &results_of(evidence)).hypotheses
}

fn verdict_in(clock: ClockKind, repeats: u32, expr: &str, evidence: &[Run]) -> (Verdict, String) {
    let judged = judged(clock, repeats, &[expr], CLAIM_MIN_EFFECT, evidence).remove(0);
    assert_eq!(judged.verdict, judged.expect[0].verdict);
    (judged.verdict, judged.expect[0].reason.clone())
}

fn verdict(repeats: u32, expr: &str, evidence: &[Run]) -> (Verdict, String) {
    verdict_in(ClockKind::Live, repeats, expr, evidence)
}

/// Every pair of test and arm, `repeats` times.
fn all(
    repeats: u32,
    fetches: impl Fn(&str, &str, u32) -> u64,
    finished: impl Fn(&str, &str, u32) -> f64,
) -> Vec<Run> {
    let mut evidence = Vec::new();
    for repeat in 1..=repeats {
        for (test, arm) in [("t/1", "a"), ("t/1", "b"), ("t/2", "a"), ("t/2", "b")] {
            evidence.push(run(test, arm, repeat, fetches(test, arm, repeat), finished(test, arm, repeat)));
        }
    }
    evidence
}

#[test]
fn counts_must_hold_in_every_test_arm_and_repeat() {
    let evidence = all(2, |_, arm, _| if arm == "a" { 10 } else { 1 }, |_, _, _| 1.0);
    let held = |n: u32| format!("held in {n} of {n}");
    assert_eq!(verdict(2, "a.source_loads == 10", &evidence), (Verdict::Supported, held(4)));
    assert_eq!(verdict(2, "t/2/a.source_loads == 10", &evidence), (Verdict::Supported, held(2)));
    assert_eq!(
        verdict(2, "t/a.source_loads == 10", &evidence),
        (Verdict::Supported, held(4)),
        "a prefix of paths"
    );
    assert_eq!(
        verdict(2, "source_loads <= requests", &evidence),
        (Verdict::Supported, held(8)),
        "same test, same arm"
    );
    assert_eq!(
        verdict(2, "source_loads == 10", &evidence),
        (Verdict::Refuted, "held in 4 of 8, first failed in t/1, b, repeat 1".to_owned())
    );

    let once = all(3, |test, arm, repeat| u64::from((test, arm, repeat) == ("t/2", "a", 3)), |_, _, _| 1.0);
    assert_eq!(
        verdict(3, "a.source_loads == 0", &once),
        (Verdict::Refuted, "held in 5 of 6, first failed in t/2, repeat 3".to_owned()),
        "one counterexample refutes"
    );
}

#[test]
fn held_count_names_the_repeat_that_came_closest_to_failing() {
    for (loads, closest) in [([5, 9, 7], 2), ([9, 5, 7], 1), ([5, 7, 9], 3)] {
        let evidence = all(3, |_, _, repeat| loads[repeat as usize - 1], |_, _, _| 1.0);
        let judged =
            judged(ClockKind::Live, 3, &["t/1/a.source_loads < 10"], CLAIM_MIN_EFFECT, &evidence).remove(0);
        let expect = &judged.expect[0];
        assert_eq!((expect.left, expect.right), (Some(9.0), Some(10.0)), "{loads:?}");
        assert_eq!(expect.reason, format!("held in 3 of 3, closest in t/1, repeat {closest}"));
    }
}

#[test]
fn sides_of_a_comparison_of_times_are_geometric_means() {
    let times = [("a", [4.0, 9.0]), ("b", [20.0, 80.0])];
    let finished = |_: &str, arm: &str, repeat: u32| {
        times.iter().find(|(name, _)| *name == arm).map_or(0.0, |(_, times)| times[repeat as usize - 1])
    };
    let evidence = all(2, |_, _, _| 1, finished);
    let judged =
        judged(ClockKind::Live, 2, &["t/1/a.finished < t/1/b.finished"], CLAIM_MIN_EFFECT, &evidence)
            .remove(0);
    let expect = &judged.expect[0];
    let (left, right) = expect.left.zip(expect.right).expect("both sides");
    assert!((left - 6.0).abs() < 1e-9 && (right - 40.0).abs() < 1e-9, "{left} {right}");
}

/// Times of arm `a` by repeat; those of `b` are 9 ms.
fn times_of_a(repeats: u32, of_a: impl Fn(u32) -> f64) -> Vec<Run> {
    all(repeats, |_, _, _| 1, |_, arm, repeat| if arm == "a" { of_a(repeat) } else { 9.0 })
}

#[test]
fn times_are_judged_by_the_interval_of_their_ratio() {
    let faster = times_of_a(5, |repeat| 5.0 + f64::from(repeat % 3) * 0.1);
    let (supported, reason) = verdict(5, "t/1/a.finished < t/1/b.finished", &faster);
    assert_eq!(supported, Verdict::Supported);
    assert_eq!(reason, "t/1: left / right is 0.569 (0.557 to 0.581 at 95 %), 5 repeats");
    assert_eq!(verdict(5, "a.finished > b.finished", &faster).0, Verdict::Refuted);
    assert_eq!(verdict(5, "a.finished < 0.6 * b.finished", &faster).0, Verdict::Supported);
    assert_eq!(verdict(5, "a.finished == b.finished", &faster).0, Verdict::Refuted);
    assert_eq!(verdict(5, "a.finished <= 5.2ms", &faster).0, Verdict::Inconclusive);

    let mixed = times_of_a(5, |repeat| if repeat == 2 { 30.0 } else { 8.0 + f64::from(repeat) * 0.1 });
    let (open, reason) = verdict(5, "t/1/a.finished < t/1/b.finished", &mixed);
    assert_eq!(open, Verdict::Inconclusive);
    assert!(reason.ends_with(" repeats decide it") || reason.contains("too close"), "{reason}");
    assert_eq!(
        verdict_in(ClockKind::Virtual, 1, "a.finished < b.finished", &times_of_a(1, |_| 5.0)).0,
        Verdict::Supported,
        "computed"
    );
}

#[test]
fn one_run_decides_large_differences() {
    let (supported, reason) = verdict(1, "t/1/a.finished < t/1/b.finished", &times_of_a(1, |_| 0.09));
    assert_eq!(supported, Verdict::Supported);
    let assumed = "t/1: left / right is 0.010 (0.004 to 0.026 at 95 %), 1 repeat, if times of a run are 42 % off (one \
                   standard deviation)";
    assert_eq!(reason, assumed);
    let (open, reason) = verdict(1, "t/1/a.finished < t/1/b.finished", &times_of_a(1, |_| 5.0));
    assert_eq!(open, Verdict::Inconclusive);
    assert!(reason.ends_with("; 3 repeats show how much times vary"), "{reason}");
}

#[test]
fn equal_times_are_at_most_as_long_and_not_less() {
    let equal = times_of_a(9, |repeat| 9.0 + f64::from(repeat % 2) * 0.002);
    assert_eq!(verdict(9, "t/1/a.finished <= t/1/b.finished", &equal).0, Verdict::Supported);
    assert_eq!(verdict(9, "t/1/a.finished == t/1/b.finished", &equal).0, Verdict::Supported);
    assert_eq!(verdict(9, "t/1/a.finished != t/1/b.finished", &equal).0, Verdict::Refuted);
    let (open, reason) = verdict(9, "t/1/a.finished < t/1/b.finished", &equal);
    assert_eq!(open, Verdict::Inconclusive);
    assert!(reason.ends_with("; they differ by less than the minimum effect of 1.00 %"), "{reason}");
}

/// Open claims share the level; a decided claim gives its share back (Holm).
#[test]
fn claims_of_a_file_share_the_chance_of_a_false_verdict() {
    let evidence = times_of_a(3, |repeat| 5.0 + f64::from(repeat) * 0.5);
    let level = |exprs: &[&str]| {
        let judged = judged(ClockKind::Live, 3, exprs, CLAIM_MIN_EFFECT, &evidence);
        judged[0].expect[0].effect.as_ref().unwrap().level
    };
    let open = "t/1/a.finished < 6.1ms";
    assert!((level(&[open]) - 0.95).abs() < 1e-9);
    assert!((level(&[open, "t/1/b.finished < 9.1ms"]) - 0.95).abs() < 1e-9, "the other one is decided first");
    assert!((level(&[open, "b.finished < 8.9ms"]) - 0.95).abs() < 1e-9, "refuted in both tests");
    assert!((level(&[open, "t/1/a.finished < 6.2ms"]) - 0.975).abs() < 1e-9, "both are open");
    // 3.1 % in each test (Student's t of 5.91 with 2 degrees of freedom, at 9/10 of alpha) is 6.1 % in one of two.
    assert!((level(&[open, "a.finished < 4.5ms"]) - 0.975).abs() < 1e-9, "not refuted in one of two tests");
    assert!((level(&[open, "source_loads == 1"]) - 0.95).abs() < 1e-9, "counts are exact");
}

#[test]
fn invalid_measurements_are_no_evidence_of_times() {
    let invalid = || {
        Some(HttpFigures {
            invalid: vec!["the generator was the bottleneck".to_owned()],
            ..HttpFigures::default()
        })
    };
    let mut evidence = times_of_a(5, |repeat| 5.0 + f64::from(repeat) * 0.1);
    evidence[1].http = invalid();
    assert_eq!((evidence[1].test.as_str(), evidence[1].arm.as_str()), ("t/1", "b"));
    let (supported, reason) = verdict(5, "t/1/a.finished < t/1/b.finished", &evidence);
    assert_eq!(supported, Verdict::Supported);
    assert!(reason.ends_with("4 repeats, 1 invalid"), "{reason}");
    let mut once = times_of_a(1, |_| 0.1);
    once[1].http = invalid();
    let (verdict_of_none, reason) = verdict(1, "a.finished < b.finished", &once);
    assert_eq!((verdict_of_none, reason.as_str()), (Verdict::Invalid, "t/1: 1 invalid"));
    assert_eq!(verdict(1, "b.finished < a.finished", &once).0, Verdict::Refuted, "the other test refutes it");
    assert_eq!(verdict(1, "a.finished < 6ms", &once).0, Verdict::Supported, "does not use the invalid run");
    assert_eq!(verdict(1, "source_loads == 1", &once).0, Verdict::Supported, "a count");
    assert_eq!(verdict(1, "source_loads == 2", &once).0, Verdict::Refuted, "a count");
}

#[test]
fn invalid_counts_support_and_refute_nothing() {
    let mut evidence = all(1, |_, _, _| 1, |_, _, _| 5.0);
    let cut = HttpFigures {
        invalid: vec!["ended early".to_owned()],
        has_invalid_counts: true,
        ..HttpFigures::default()
    };
    evidence[0].http = Some(cut);
    assert_eq!(verdict(1, "t/1/source_loads == 1", &evidence).0, Verdict::Invalid);
    assert_eq!(verdict(1, "t/1/a.source_loads == 2", &evidence).0, Verdict::Invalid);
    assert_eq!(
        verdict(1, "source_loads == 2", &evidence).0,
        Verdict::Refuted,
        "the other measurements refute it"
    );
}

#[test]
fn missing_figures_are_inconclusive() {
    let mut evidence = all(2, |_, _, _| 1, |_, _, _| 1.0);
    let (verdict_of_none, _) = verdict(2, "response.p99 < 1ms", &evidence);
    assert_eq!(verdict_of_none, Verdict::Inconclusive, "no request was answered, so there is no figure");
    evidence.pop();
    let (interrupted, reason) = verdict(2, "source_loads == 1", &evidence);
    assert_eq!((interrupted, reason.as_str()), (Verdict::Inconclusive, "held in 7 of 7, 1 without a figure"));
    assert_eq!(
        verdict(2, "source_loads == 2", &evidence).0,
        Verdict::Refuted,
        "a counterexample refutes despite missing runs"
    );
    assert_eq!(
        verdict(2, "source_loads / stores.sync == 1", &evidence).0,
        Verdict::Inconclusive,
        "a division by zero"
    );
}

#[test]
fn worst_verdict_wins() {
    use Verdict::{Inconclusive, Invalid, Refuted, Supported};
    assert_eq!(Verdict::worst([Supported, Inconclusive, Supported].into_iter()), Inconclusive);
    assert_eq!(Verdict::worst([Refuted, Inconclusive].into_iter()), Refuted);
    assert_eq!(Verdict::worst([Refuted, Invalid].into_iter()), Refuted);
    assert_eq!(Verdict::worst([Inconclusive, Invalid].into_iter()), Invalid);
    assert_eq!(Verdict::worst([].into_iter()), Supported);
}

/// A load of one repeat with a second for each pair of response and service time in milliseconds, by arm.
fn verdict_of_seconds(expr: &str, min_effect: f64, arms: [(&[(f64, f64)], bool); 2]) -> (Verdict, String) {
    let (tests, names) = ([String::new()], ["a", "b"].map(str::to_owned));
    let names = Names { tests: &tests, arms: &names };
    let claims = [claim(expr, names, min_effect)];
    let mut results = Results::watching(claims[0].windows().collect());
    for (arm, (seconds, is_late)) in ["a", "b"].into_iter().zip(arms) {
        let mut fold = results.fold(Some(Duration::from_secs(seconds.len() as u64)));
        for (second, (response, service)) in (0..).zip(seconds) {
            let times = |ms: f64| [Duration::from_secs_f64(ms / 1e3); 100].into_iter().collect();
            let times = Times { response: times(*response), service: times(*service), ..Times::default() };
            fold.add(&Interval { second, times, ..Interval::default() });
        }
        let late = is_late.then(|| "1 % of its requests by 9ms".to_owned());
        let http = HttpFigures { late, ..HttpFigures::default() };
        results.add(&Run { http: Some(http), ..run("", arm, 1, 1, 1.0) }, fold);
    }
    let judged = judged_at(&claims, names, &one_look(1), None, &results).hypotheses.remove(0);
    (judged.verdict, judged.expect[0].reason.clone())
}

/// Response times of 10 ms; the service took 1 ms of them if nothing else is written.
#[test]
fn lateness_makes_a_claim_invalid_only_where_it_may_be_the_difference() {
    let (late, on_time): (&[_], &[_]) = (&[(10.0, 1.0); 5], &[(10.0, 10.0); 5]);
    let verdict =
        |expr: &str, of_a: (&[(f64, f64)], bool)| verdict_of_seconds(expr, 0.01, [of_a, (on_time, false)]);
    // Without lateness the time would be even less.
    assert_eq!(verdict("a.response.p50 < 100ms", (late, true)).0, Verdict::Supported);
    // More than the bound in any case.
    assert_eq!(verdict("a.response.p50 < 0.1ms", (late, true)).0, Verdict::Refuted);
    let (invalid, reason) = verdict("a.response.p50 < 3ms", (late, true));
    assert_eq!(invalid, Verdict::Invalid);
    assert!(reason.ends_with("; this may explain it: 1 % of its requests by 9ms"), "{reason}");
    assert_eq!(verdict("a.response.p50 < 3ms", (late, false)).0, Verdict::Refuted, "the send was not late");
    assert_eq!(verdict("a.response.p50 < 9ms", (late, false)).0, Verdict::Inconclusive, "too close");
    assert_eq!(verdict("a.response.p50 > b.response.p50 * 3", (late, true)).0, Verdict::Refuted);
    assert_eq!(verdict("a.service.p50 < 3ms", (late, true)).0, Verdict::Supported, "it begins with the send");
    assert_eq!(verdict("a.response.p50(0s..2s) < 100ms", (late, true)).0, Verdict::Supported);
}

#[test]
fn seconds_that_differ_widen_the_interval_of_one_run() {
    let steady = [(10.0, 10.0); 20];
    let mut noisy = steady;
    noisy.iter_mut().step_by(2).for_each(|second| *second = (0.01, 0.01));
    let verdict = |seconds: &[(f64, f64)]| {
        verdict_of_seconds("a.response.p90 < 50ms", 0.01, [(seconds, false), (&steady, false)])
    };
    // Batches of two seconds are alike here, those of a rising load are not.
    assert_eq!(verdict(&noisy).0, Verdict::Supported);
    let rising: Vec<_> = (0..20).map(|second| 0.001 * 2.0_f64.powi(second)).map(|ms| (ms, ms)).collect();
    let (open, reason) = verdict(&rising);
    assert_eq!(open, Verdict::Inconclusive, "{reason}");
}

/// The slowest 1 % of the requests of ten seconds are due within 0.1 s.
#[test]
fn percentile_that_one_stall_decides_needs_a_larger_difference() {
    let (short, long) = ([(9.0, 9.0); 10], [(9.0, 9.0); 30]);
    let verdict = |expr: &str, seconds: &[(f64, f64)]| {
        verdict_of_seconds(expr, 0.01, [(seconds, false), (seconds, false)])
    };
    let (open, reason) = verdict("a.response.p99 < 50ms", &short);
    assert_eq!(open, Verdict::Inconclusive);
    let assumed =
        "if a figure that one stall of 0.25 s decides is off by a factor of 4 (one standard deviation)";
    assert!(reason.contains(assumed), "{reason}");
    assert_eq!(verdict("a.response.p99 < 500ms", &short).0, Verdict::Supported);
    assert_eq!(verdict("a.response.p50 < 50ms", &short).0, Verdict::Supported);
    assert_eq!(verdict("a.response.p99 < 50ms", &long).0, Verdict::Supported);
    // A part of a long load is as short.
    assert_eq!(verdict("a.response.p99(0s..10s) < 50ms", &long).0, Verdict::Inconclusive);
    assert_eq!(verdict("a.response.max < 50ms", &long).0, Verdict::Inconclusive);
    assert_eq!(verdict("a.response.mean < 50ms", &long).0, Verdict::Supported);
}

#[test]
fn differences_are_judged_as_sums_of_both_sides() {
    // 5.1 to 5.3 ms, and 9 ms.
    let evidence = times_of_a(5, |repeat| 5.0 + f64::from(repeat % 3) * 0.1);
    let verdict = |expr: &str| verdict(5, expr, &evidence);
    assert_eq!(verdict("t/1/b.finished - t/1/a.finished >= 3ms").0, Verdict::Supported);
    assert_eq!(verdict("t/1/a.finished - t/1/b.finished <= 1ms").0, Verdict::Supported);
    assert_eq!(verdict("2 * (t/1/b.finished - t/1/a.finished) <= 4ms").0, Verdict::Refuted);
    assert_eq!(verdict("t/1/a.finished / t/1/b.finished < 0.7").0, Verdict::Supported);
    let (open, reason) = verdict("t/1/a.finished / (t/1/a.finished - t/1/b.finished) < 1");
    assert_eq!((open, reason.as_str()), (Verdict::Inconclusive, "t/1: no repeat has a figure"));
    let (open, reason) = verdict("1e300 * 1e300 * t/1/a.finished > t/1/b.finished");
    assert_eq!((open, reason.as_str()), (Verdict::Inconclusive, "t/1: no repeat has a figure"), "not finite");
    // A ratio has the spread of both of its figures.
    let once = times_of_a(1, |_| 4.1);
    for expr in ["t/1/a.finished < t/1/b.finished", "t/1/a.finished / t/1/b.finished < 1"] {
        assert_eq!(verdict_in(ClockKind::Live, 1, expr, &once).0, Verdict::Inconclusive, "{expr}");
    }
    assert_eq!(verdict_in(ClockKind::Live, 1, "t/1/a.finished < 9ms", &once).0, Verdict::Supported);
}

/// An arm that answers nothing in a repeat has no times there.
#[test]
fn repeat_without_a_figure_leaves_a_time_open() {
    let mut evidence = times_of_a(5, |repeat| 5.0 + f64::from(repeat % 3) * 0.1);
    evidence.remove(0);
    let (open, reason) = verdict(5, "t/1/a.finished < 9ms", &evidence);
    assert_eq!(open, Verdict::Inconclusive);
    assert!(reason.ends_with("4 repeats, 1 without a figure"), "{reason}");
    assert_eq!(verdict(5, "t/1/a.finished > 9ms", &evidence).0, Verdict::Refuted);
}

#[test]
fn minimum_effect_is_that_of_the_hypothesis() {
    let verdict = |min_effect, slower: f64| {
        let evidence = times_of_a(5, |repeat| 9.0 * slower + f64::from(repeat % 2) * 0.01);
        judged(ClockKind::Live, 5, &["t/1/a.finished <= t/1/b.finished"], min_effect, &evidence)[0].verdict
    };
    assert_eq!(verdict(0.05, 1.04), Verdict::Supported);
    assert_eq!(verdict(0.01, 1.04), Verdict::Refuted);
    assert_eq!(verdict(0.05, 1.06), Verdict::Refuted);
}

/// The verdict, and the repeats of its effect, if times are judged after these numbers of repeats.
fn verdict_of_looks(expr: &str, looks: &[u32], evidence: &[Run]) -> (Verdict, u32, usize) {
    let (tests, arms) = (["t/1", "t/2"].map(str::to_owned), ["a", "b"].map(str::to_owned));
    let names = Names { tests: &tests, arms: &arms };
    let claims = [claim(expr, names, CLAIM_MIN_EFFECT)];
    let looks: Vec<_> = looks
        .iter()
        .map(|repeats| Look { repeats: *repeats, error_rate: FAMILY_ERROR_RATE / looks.len() as f64 })
        .collect();
    let Judgement { hypotheses, open_count } = judged_at(&claims, names, &looks, None, &results_of(evidence));
    let expectation = &hypotheses[0].expect[0];
    (expectation.verdict, expectation.effect.as_ref().unwrap().repeats, open_count)
}

#[test]
fn verdict_of_an_earlier_look_stays() {
    // The sides are far apart in one repeat, and close in the later ones.
    let finished = |_: &str, arm: &str, repeat: u32| match (arm, repeat) {
        ("a", 1) => 1.0,
        ("b", 1) => 100.0,
        _ => 10.0,
    };
    let evidence = all(5, |_, _, _| 1, finished);
    assert_eq!(
        verdict_of_looks("t/1/a.finished < t/1/b.finished", &[1, 3, 5], &evidence),
        (Verdict::Supported, 1, 0)
    );
    assert_eq!(verdict_of_looks("t/1/a.finished < t/1/b.finished", &[5], &evidence).0, Verdict::Inconclusive);
    let close = all(5, |_, _, _| 1, |_, _, repeat| 10.0 + f64::from(repeat));
    assert_eq!(
        verdict_of_looks("t/1/a.finished < t/1/b.finished", &[1, 3, 5], &close),
        (Verdict::Inconclusive, 5, 1)
    );
}

#[test]
fn figure_that_no_repeat_has_is_not_waited_for() {
    let evidence = all(2, |_, _, _| 1, |_, _, _| 10.0);
    // A burst has no response times here, and later repeats will have none either.
    let (tests, arms) = (["t/1".to_owned(), "t/2".to_owned()], ["a".to_owned(), "b".to_owned()]);
    let names = Names { tests: &tests, arms: &arms };
    let claims = [claim("a.response.p99 < 1ms", names, CLAIM_MIN_EFFECT)];
    let Judgement { hypotheses, open_count } =
        judged_at(&claims, names, &one_look(2), None, &results_of(&evidence));
    assert_eq!((hypotheses[0].verdict, open_count), (Verdict::Inconclusive, 0));
}

/// The verdict on `a.response.p99 < 50ms` in a load with these response times in its seconds; `true`: the second was disturbed.
fn verdict_of_disturbed(seconds: &[(f64, bool)]) -> (Verdict, String) {
    let stolen = Disturbance { stolen: 0.3, ..Disturbance::default() };
    let seconds: Vec<_> =
        seconds.iter().map(|(ms, is_disturbed)| (*ms, is_disturbed.then_some(stolen))).collect();
    verdict_beside(&seconds)
}

/// The same with these disturbances.
fn verdict_beside(seconds: &[(f64, Option<Disturbance>)]) -> (Verdict, String) {
    let (tests, arms) = ([String::new()], ["a".to_owned()]);
    let names = Names { tests: &tests, arms: &arms };
    let claims = [claim("a.response.p99 < 50ms", names, CLAIM_MIN_EFFECT)];
    let mut results = Results::default();
    let duration = Duration::from_secs(seconds.len() as u64);
    let mut fold = results.fold(Some(duration));
    for (second, (response_ms, disturbance)) in (0..).zip(seconds) {
        let times: crate::histogram::Histogram =
            [Duration::from_secs_f64(response_ms / 1e3); 100].into_iter().collect();
        let times = Times { response: times.clone(), service: times, ..Times::default() };
        fold.add(&Interval { second, times, disturbance: *disturbance, ..Interval::default() });
    }
    let disturbed = seconds.iter().any(|second| second.1.is_some()).then(|| "30 % stolen".to_owned());
    let open = open_load(duration.as_secs_f64() * 1e3, None);
    let http = Some(HttpFigures { disturbed, ..HttpFigures::default() });
    results.add(&Run { http, load: LoadFigures::Open(open), ..run("", "a", 1, 1, 1.0) }, fold);
    let judged = judged_at(&claims, names, &one_look(1), None, &results).hypotheses.remove(0);
    (judged.verdict, judged.expect[0].reason.clone())
}

#[test]
fn disturbed_seconds_make_a_claim_invalid_only_where_they_may_be_the_difference() {
    let calm = [(1.0, false); 30];
    let with = |at: &[(usize, f64)]| {
        let mut seconds = calm;
        at.iter().for_each(|(at, ms)| seconds[*at] = (*ms, true));
        verdict_of_disturbed(&seconds)
    };
    assert_eq!(verdict_of_disturbed(&calm).0, Verdict::Supported);
    // Without the disturbance the time would be even less.
    assert_eq!(with(&[(3, 5.0)]).0, Verdict::Supported);
    let (verdict, reason) = with(&[(3, 9_000.0)]);
    assert_eq!(verdict, Verdict::Invalid);
    assert!(reason.ends_with("; this may explain it: 30 % stolen"), "{reason}");
    // The second after it has waiting requests, and is left out as well.
    let mut seconds = calm;
    (seconds[3], seconds[4]) = ((9_000.0, true), (9_000.0, false));
    assert_eq!(verdict_of_disturbed(&seconds).0, Verdict::Invalid);
    // More than the bound without the disturbed second, too.
    let mut slow = [(9_000.0, false); 30];
    slow[3] = (90_000.0, true);
    assert_eq!(verdict_of_disturbed(&slow).0, Verdict::Refuted);
    // A machine that is disturbed all the time is how the machine is.
    assert_eq!(verdict_of_disturbed(&[(9_000.0, true); 30]).0, Verdict::Refuted);
}

#[test]
fn one_run_on_a_disturbed_machine_needs_a_larger_difference() {
    assert_eq!(verdict_of_disturbed(&[(300.0, false); 30]).0, Verdict::Refuted);
    let (verdict, reason) = verdict_of_disturbed(&[(300.0, true); 30]);
    assert_eq!(verdict, Verdict::Inconclusive);
    assert!(reason.contains("off by a factor of 4 (one standard deviation)"), "{reason}");
    // The second after the disturbed one is left out as well, and then none is left.
    assert_eq!(verdict_of_disturbed(&[(300.0, true), (300.0, false)]).0, Verdict::Inconclusive);
}

/// A stop is not a condition that arms share.
#[test]
fn stopped_process_is_left_out_on_a_disturbed_machine_too() {
    let busy = Disturbance { others: 0.9, ..Disturbance::default() };
    let stopped = Disturbance { stopped: Some(Role::Proxy), ..busy };
    let mut seconds = [(1.0, Some(busy)); 10];
    assert_eq!(verdict_beside(&seconds).0, Verdict::Supported);
    (seconds[3], seconds[4]) = ((9_000.0, Some(stopped)), (9_000.0, Some(busy)));
    assert_eq!(verdict_beside(&seconds).0, Verdict::Invalid);
    // Without the stop the time may have been any.
    assert_eq!(verdict_beside(&[(9_000.0, Some(stopped))]).0, Verdict::Invalid);
    assert_eq!(verdict_beside(&[(9_000.0, Some(stopped)), (9_000.0, None)]).0, Verdict::Invalid);
}

#[test]
fn difference_within_that_of_equal_arms_does_not_count() {
    use Verdict::{Inconclusive, Refuted, Supported};
    // `b` takes 10 % longer than `a`, and the arm that repeats `a` takes 20 % longer.
    let finished = |_: &str, arm: &str, repeat: u32| {
        let arm = match arm {
            "a" => 10.0,
            "b" => 11.0,
            _ => 12.0,
        };
        arm * (1.0 + f64::from(repeat) * 1e-4)
    };
    let repeats = 5;
    let mut evidence = all(repeats, |_, _, _| 1, finished);
    for repeat in 1..=repeats {
        let again = |test| run(test, "a-again", repeat, 1, finished(test, "a-again", repeat));
        evidence.extend(["t/1", "t/2"].map(again));
    }
    let verdicts = |noise: Option<&NoiseArm>| {
        let (tests, arms) = (["t/1", "t/2"].map(str::to_owned), ["a", "b"].map(str::to_owned));
        let names = Names { tests: &tests, arms: &arms };
        let exprs = [
            "a.finished < b.finished",
            "a.finished == b.finished",
            "3 * a.finished < b.finished",
            "a.finished <= 20ms",
        ];
        let claims = exprs.map(|expr| claim(expr, names, CLAIM_MIN_EFFECT));
        let results = results_of(&evidence);
        let hypotheses = judged_at(&claims, names, &one_look(repeats), noise, &results).hypotheses;
        (
            hypotheses.iter().map(|judged| judged.verdict).collect::<Vec<_>>(),
            hypotheses[0].expect[0].reason.clone(),
        )
    };
    assert_eq!(verdicts(None).0, [Supported, Refuted, Refuted, Supported]);
    let noise = NoiseArm { arm: "a-again".to_owned(), of: "a".to_owned() };
    let (verdicts, reason) = verdicts(Some(&noise));
    assert_eq!(verdicts, [Inconclusive, Inconclusive, Refuted, Supported]);
    assert!(reason.contains(", equal arms differ by 20.0 %"), "{reason}");
}

/// A second of a load over HTTP: 100 requests with this response and service time in milliseconds.
fn second_over_http(second: u64, response_ms: f64, service_ms: f64) -> Interval {
    let times = |ms: f64| [Duration::from_secs_f64(ms / 1e3); 100].into_iter().collect();
    let times = Times { response: times(response_ms), service: times(service_ms), ..Times::default() };
    Interval { second, times, ..Interval::default() }
}

/// Whether `a.response.p99 < 20ms` cannot hold any more after one second of a load of ten, whose response and service time are given; the
/// repeats before had these times.
fn is_refuted_early(before_ms: &[f64], (response_ms, service_ms): (f64, f64)) -> bool {
    let (tests, arms) = ([String::new()], ["a".to_owned()]);
    let names = Names { tests: &tests, arms: &arms };
    let claims = [Claim { abort: true, ..claim("a.response.p99 < 20ms", names, CLAIM_MIN_EFFECT) }];
    let mut results = Results::default();
    let fold = |results: &Results| results.fold(Some(Duration::from_secs(10)));
    for (repeat, ms) in (1..).zip(before_ms) {
        let mut all = fold(&results);
        (0..10).for_each(|second| all.add(&second_over_http(second, *ms, *ms)));
        let load = LoadFigures::Open(open_load(10_000.0, None));
        results.add(&Run { load, http: Some(HttpFigures::default()), ..run("", "a", repeat, 1, 1.0) }, all);
    }
    let mut so_far = fold(&results);
    so_far.add(&second_over_http(0, response_ms, service_ms));
    let repeat = u32::try_from(before_ms.len()).unwrap() + 1;
    let cells = [(String::new(), "a".to_owned())].into();
    let clock = ClockKind::Live;
    let case = Case { names, cells: &cells, repeats: repeat, looks: &[], noise: None, clock };
    let look = Some(Look { repeats: repeat, error_rate: 0.005 });
    let running = Some(RunningFigures { fold: &so_far, requests_max: Some(1_000) });
    EarlyJudge { claims: &claims, case, look }
        .refutation(&results, Latest { test: "", arm: "a", repeat, running })
        .is_some()
}

#[test]
fn time_is_refuted_within_a_measurement_of_any_repeat() {
    for before_ms in [&[][..], &[19.0], &[19.0, 21.0], &[19.0, 21.0, 20.0]] {
        assert!(!is_refuted_early(before_ms, (21.0, 21.0)), "{before_ms:?}: too close");
        assert!(!is_refuted_early(before_ms, (1.0, 1.0)), "{before_ms:?}: it may hold");
    }
    assert!(is_refuted_early(&[], (9_000.0, 9_000.0)));
    assert!(is_refuted_early(&[90.0, 100.0], (9_000.0, 9_000.0)));
}

/// The spread of three repeats is known when the third one has ended.
#[test]
fn spread_of_a_measurement_in_progress_refutes_nothing() {
    assert!(!is_refuted_early(&[25.0, 25.01], (25.0, 25.0)), "it may end at 900 ms");
    assert!(!is_refuted_early(&[30.0, 900.0], (900.0, 900.0)), "repeats that contradict the assumption");
}

#[test]
fn complete_measurement_refutes_early_unless_it_is_invalid() {
    let (tests, arms) = ([String::new()], ["a".to_owned()]);
    let names = Names { tests: &tests, arms: &arms };
    let claims = [Claim { abort: true, ..claim("a.finished < 1ms", names, CLAIM_MIN_EFFECT) }];
    let cells = [(String::new(), "a".to_owned())].into();
    let is_refuted = |invalid: &[&str]| {
        let invalid = invalid.iter().map(|reason| (*reason).to_owned()).collect();
        let http = Some(HttpFigures { invalid, ..HttpFigures::default() });
        let results = results_of(&[Run { http, ..run("", "a", 1, 1, 9_000.0) }]);
        let case = Case { names, cells: &cells, repeats: 1, looks: &[], noise: None, clock: ClockKind::Live };
        let judge = EarlyJudge { claims: &claims, case, look: Some(one_look(1)[0]) };
        judge.refutation(&results, Latest { test: "", arm: "a", repeat: 1, running: None }).is_some()
    };
    assert!(is_refuted(&[]));
    assert!(!is_refuted(&["the generator was the bottleneck"]));
}

/// A claim that a scaled run does not judge has its figures, takes no share of the error rate, asks for no repeats and ends no run.
#[test]
fn claim_that_is_not_judged_has_figures_and_no_effect() {
    let (tests, arms) = ([String::new()], ["a".to_owned()]);
    let names = Names { tests: &tests, arms: &arms };
    let results = results_of(&[run("", "a", 1, 4, 9_000.0)]);
    let whole = |expr| Claim { abort: true, is_judged: false, ..claim(expr, names, CLAIM_MIN_EFFECT) };
    let judged = claim("a.finished <= 20s", names, CLAIM_MIN_EFFECT);
    let alone = judged_at(std::slice::from_ref(&judged), names, &one_look(1), None, &results);
    let claims = [whole("a.finished < 1ms"), judged, whole("a.source_loads == 5")];
    let all = judged_at(&claims, names, &one_look(1), None, &results);
    let verdicts: Vec<_> = all.hypotheses.iter().map(|hypothesis| hypothesis.verdict).collect();
    assert_eq!(verdicts, [Verdict::NotJudged, alone.hypotheses[0].verdict, Verdict::NotJudged]);
    assert_eq!(all.hypotheses[1].expect, alone.hypotheses[0].expect);
    assert_eq!(all.open_count, alone.open_count);
    let sides = |at: usize| all.hypotheses[at].expect[0].left.zip(all.hypotheses[at].expect[0].right);
    assert_eq!(sides(2), Some((4.0, 5.0)));
    let (left, right) = sides(0).unwrap();
    assert!((left - 9_000.0).abs() < 1e-6 && (right - 1.0).abs() < 1e-6, "{left} {right}");
    assert_eq!(Verdict::worst(verdicts.into_iter()), alone.hypotheses[0].verdict);
    let cells = [(String::new(), "a".to_owned())].into();
    let case = Case { names, cells: &cells, repeats: 1, looks: &[], noise: None, clock: ClockKind::Live };
    let judge = EarlyJudge { claims: &claims, case, look: Some(one_look(1)[0]) };
    assert_eq!(judge.refutation(&results, Latest { test: "", arm: "a", repeat: 1, running: None }), None);
}
