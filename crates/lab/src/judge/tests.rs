//! Verdicts from made-up evidence.

use std::collections::BTreeMap;

use stockade_model::{
    outcome::Outcomes,
    record::{Audit, BurstFigures, CacheFigures, Calls, HttpFigures, LoadFigures, OpenFigures, Run},
};

use super::*;
use crate::spec::Experiment;

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
        http: None,
    }
}

/// The verdict on one comparison over tests `t/1`, `t/2` and arms `a`, `b`.
fn verdict_in(clock: ClockKind, repeats: u32, expr: &str, evidence: &[Run]) -> (Verdict, String) {
    let (tests, arms) = (["t/1", "t/2"].map(str::to_owned), ["a", "b"].map(str::to_owned));
    let names = Names { tests: &tests, arms: &arms };
    let claims =
        [Claim { text: "claim".to_owned(), expect: vec![(expr.to_owned(), parse(expr, names).unwrap())] }];
    let cells: BTreeSet<_> = evidence.iter().map(|run| (run.test.clone(), run.arm.clone())).collect();
    let mut results = Results::default();
    evidence.iter().for_each(|run| results.add(run, results.fold(None)));
    let judged = judge(&claims, Case { names, cells: &cells, repeats, clock }, &results).remove(0);
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
fn times_need_five_agreeing_repeats() {
    let by_arm = |_: &str, arm: &str, _: u32| if arm == "a" { 5.0 } else { 9.0 };
    let evidence = |repeats| all(repeats, |_, _, _| 1, by_arm);
    assert_eq!(verdict(5, "a.finished < b.finished", &evidence(5)).0, Verdict::Supported);
    assert_eq!(verdict(5, "b.finished < a.finished", &evidence(5)).0, Verdict::Refuted);
    let (too_few, reason) = verdict(4, "a.finished < b.finished", &evidence(4));
    assert_eq!(too_few, Verdict::Inconclusive);
    assert_eq!(reason, "held in 8 of 8, closest in t/1, repeat 1; times need 5 repeats, there were 4");

    let mixed = all(
        5,
        |_, _, _| 1,
        |_, arm, repeat| if arm == "a" && repeat == 2 { 10.0 } else { by_arm("", arm, 0) },
    );
    assert_eq!(verdict(5, "a.finished < b.finished", &mixed).0, Verdict::Inconclusive);
    assert_eq!(
        verdict_in(ClockKind::Virtual, 1, "a.finished < b.finished", &evidence(1)).0,
        Verdict::Supported,
        "computed"
    );
}

#[test]
fn invalid_measurements_invalidate_times_and_not_counts() {
    let mut evidence = all(5, |_, _, _| 1, |_, arm, _| if arm == "a" { 5.0 } else { 9.0 });
    let late = HttpFigures { invalid: vec!["the generator was late".to_owned()], ..HttpFigures::default() };
    evidence[1].http = Some(late);
    assert_eq!((evidence[1].test.as_str(), evidence[1].arm.as_str()), ("t/1", "b"));
    let held = "held in 9 of 9, closest in t/1, repeat 2, 1 invalid".to_owned();
    assert_eq!(verdict(5, "a.finished < b.finished", &evidence), (Verdict::Invalid, held));
    assert_eq!(
        verdict(5, "t/1/b.finished < t/1/a.finished", &evidence).0,
        Verdict::Invalid,
        "it refutes nothing"
    );
    assert_eq!(
        verdict(5, "b.finished < a.finished", &evidence).0,
        Verdict::Refuted,
        "the other test refutes it"
    );
    assert_eq!(
        verdict(5, "t/2/a.finished < t/2/b.finished", &evidence).0,
        Verdict::Supported,
        "does not use the invalid run"
    );
    assert_eq!(
        verdict(5, "a.finished < 6ms", &evidence).0,
        Verdict::Supported,
        "does not use the invalid run"
    );
    assert_eq!(verdict(5, "source_loads == 1", &evidence).0, Verdict::Supported, "a count");
    assert_eq!(verdict(5, "source_loads == 2", &evidence).0, Verdict::Refuted, "a count");
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
fn open_loads_are_audited_without_a_claim() {
    let text = "title = \"t\"\n[target]\nkind = \"engine\"\n[origin]\nsource = \"simulated:9\"\n[[test]]\nname = \"b\"\n\
                load.burst = 7\n[[test]]\nname = \"o\"\nload = { rate = \"10/s\", duration = \"10s\" }\n";
    let experiment = Experiment::parse("test.toml", text).unwrap();
    let verdict = |too_old, after_invalidation| {
        let open = OpenFigures {
            strategy: "cache".to_owned(),
            schedule: "10s at 10/s".to_owned(),
            duration_ms: 10_000.0,
            documents: Some(9),
            distinct_keys: Some(9),
            finished_ms: 10_000.0,
            calls: Calls::default(),
            waiters: 0,
            response: None,
            retries: 0,
            dropped: 0,
            in_flight_max: 1,
            source_concurrent_max: Some(1),
            audit: Some(Audit { too_old, after_invalidation, age_max_ms: None }),
        };
        let mut results = Results::watching(experiment.windows());
        let run = Run { load: LoadFigures::Open(open), ..run("o", "cache", 1, 1, 1.0) };
        results.add(&run, results.fold(None));
        let cells = experiment.cells.iter().map(|cell| (cell.test.clone(), cell.arm.clone())).collect();
        let case = Case { names: experiment.names(), cells: &cells, repeats: 1, clock: ClockKind::Virtual };
        let judged = judge(&experiment.claims, case, &results);
        assert_eq!((judged.len(), judged[0].text.as_str()), (1, "nothing was served beyond its limit"));
        judged[0].verdict
    };
    assert_eq!(
        [verdict(0, 0), verdict(1, 0), verdict(0, 1)],
        [Verdict::Supported, Verdict::Refuted, Verdict::Refuted]
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
