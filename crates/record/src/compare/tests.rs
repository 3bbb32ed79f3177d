use std::collections::BTreeMap;

use crate::record::{
    Arm, CacheFigures, Calls, Disturbance, Host, HttpFigures, Interval, NoiseArm, OpenFigures, Role, SCHEMA,
    Usage,
};
use stockade_model::{outcome::Outcomes, seed::Seed};

use super::{report::FORMATS, *};

const ARM: &str = "cache";

/// The repeats of an open load by failed requests and times until the last answer in milliseconds.
fn record(clock: ClockKind, schedule: &str, repeats: &[(u64, f64)]) -> (Record, Results) {
    let mut results = Results::default();
    let run = |(repeat, (failed, finished_ms)): (usize, &(u64, f64))| Run {
        test: String::new(),
        arm: ARM.to_owned(),
        repeat: u32::try_from(repeat + 1).unwrap(),
        load: LoadFigures::Open(OpenFigures {
            strategy: ARM.to_owned(),
            schedule: schedule.to_owned(),
            duration_ms: 1_000.0,
            documents: None,
            distinct_keys: None,
            finished_ms: *finished_ms,
            calls: Calls { fetch_doc: 10, store_local: 0, store_local_async: 0 },
            waiters: 0,
            response: None,
            retries: 0,
            dropped: 0,
            in_flight_max: 1,
            source_concurrent_max: None,
            audit: None,
        }),
        whole_ms_sum: None,
        outcomes: Outcomes { hit: 900, miss: 100, error: *failed, ..Outcomes::default() },
        bytes_in: 0,
        service_ms_sum: 0.0,
        stores_skipped: 0,
        stores_dropped: 0,
        episodes: 10,
        counters: BTreeMap::new(),
        cache: CacheFigures::default(),
        errors: BTreeMap::new(),
        stages: Vec::new(),
        events: Vec::new(),
        http: None,
    };
    let runs: Vec<_> = repeats.iter().enumerate().map(run).collect();
    runs.iter().for_each(|run| results.add(run, results.fold(None)));
    let record = Record {
        schema: SCHEMA.to_owned(),
        experiment: "An experiment".to_owned(),
        context: None,
        spec: "title = \"t\"\nttl = \"10s\"\n".to_owned(),
        seed: Seed(1),
        scale: 1.0,
        repeats: u32::try_from(repeats.len()).unwrap(),
        clock,
        started_at: "2026-01-31T10:00:00Z".to_owned(),
        stockade: "0.1.0 (a)".to_owned(),
        commit: None,
        host: Host { cpu: "x".to_owned(), cores: 2, memory_mib: 1, os: "y".to_owned() },
        planned: repeats.len(),
        interrupted: false,
        in_progress: false,
        aborted: None,
        tests: vec![String::new()],
        arms: vec![Arm { name: ARM.to_owned(), cache: None }],
        runs,
        looks: Vec::new(),
        noise: None,
        reference: None,
        hypotheses: Vec::new(),
        verdict: Verdict::Supported,
    };
    (record, results)
}

/// The same record with more or other runs.
fn with_runs((record, _): (Record, Results), runs: Vec<Run>) -> (Record, Results) {
    let mut results = Results::default();
    runs.iter().for_each(|run| results.add(run, results.fold(None)));
    (Record { runs, ..record }, results)
}

fn of_finished(comparison: &RecordComparison) -> &Change {
    comparison.changes.iter().find(|change| change.metric.name == "finished").unwrap()
}

fn compared(
    before: &(Record, Results),
    after: &(Record, Results),
) -> Result<RecordComparison, UnlikeRecords> {
    let [before, after] = [before, after].map(|(record, results)| Compared { record, results });
    compare(before, after, 0.05)
}

fn verdict(metric: &str, before: &[(u64, f64)], after: &[(u64, f64)]) -> ChangeVerdict {
    let of = |repeats| record(ClockKind::Live, "1s at 1000/s", repeats);
    let comparison = compared(&of(before), &of(after)).unwrap();
    comparison.changes.iter().find(|change| change.metric.name == metric).unwrap().verdict
}

#[test]
fn times_are_judged_by_the_interval_of_their_ratio() {
    let of = |ms: [f64; 4]| ms.map(|ms| (0, ms));
    let before = of([10.0, 10.1, 9.9, 10.05]);
    let judged = |after: [f64; 4]| verdict("finished", &before, &of(after));
    assert_eq!(judged([12.0, 12.1, 11.9, 12.05]), ChangeVerdict::Worse);
    assert_eq!(judged([8.0, 8.1, 7.9, 8.05]), ChangeVerdict::Better);
    assert_eq!(judged([10.1, 10.0, 10.05, 9.95]), ChangeVerdict::Same);
    assert_eq!(judged([10.4, 10.5, 10.6, 10.5]), ChangeVerdict::Open, "about the minimum effect");
    assert_eq!(judged([10.0, 14.0, 8.0, 11.0]), ChangeVerdict::Open, "too varied");
    // One run decides what no machine causes.
    assert_eq!(verdict("finished", &[(0, 10.0)], &[(0, 60.0)]), ChangeVerdict::Worse);
    assert_eq!(verdict("finished", &[(0, 10.0)], &[(0, 13.0)]), ChangeVerdict::Open);
}

/// An arm and its repetition differ by 30 %: a difference of 20 % is not a change, and one of 10 % does not count as the same.
#[test]
fn difference_within_that_of_equal_arms_does_not_count() {
    let of = |finished_ms: f64, has_equal_arms: bool| {
        let times = [1.0, 1.001, 0.999].map(|factor| (0, finished_ms * factor));
        let (mut record, results) = record(ClockKind::Live, "1s at 1000/s", &times);
        if !has_equal_arms {
            return (record, results);
        }
        let mut runs = record.runs.clone();
        for mut run in record.runs.clone() {
            run.arm = "again".to_owned();
            let LoadFigures::Open(open) = &mut run.load else { unreachable!("an open load") };
            open.finished_ms *= 1.3;
            runs.push(run);
        }
        record.noise = Some(NoiseArm { arm: "again".to_owned(), of: ARM.to_owned() });
        with_runs((record, results), runs)
    };
    for (after_ms, has_equal_arms, verdict) in [
        (12.0, false, ChangeVerdict::Worse),
        (12.0, true, ChangeVerdict::Open),
        (11.0, true, ChangeVerdict::Open),
        (10.1, true, ChangeVerdict::Same),
        (14.0, true, ChangeVerdict::Worse),
    ] {
        let comparison = compared(&of(10.0, has_equal_arms), &of(after_ms, has_equal_arms)).unwrap();
        assert_eq!(of_finished(&comparison).verdict, verdict, "{after_ms} {has_equal_arms}");
    }
}

#[test]
fn figure_of_invalid_measurements_is_open() {
    let times = [(0, 10.0), (0, 10.01), (0, 9.99), (0, 10.0)];
    let valid = record(ClockKind::Live, "1s at 1000/s", &times);
    let invalid = |has_invalid_counts: bool, count: usize| {
        let mut runs = valid.0.runs.clone();
        for run in runs.iter_mut().take(count) {
            let invalid = vec!["the generator was the bottleneck".to_owned()];
            run.http = Some(HttpFigures { invalid, has_invalid_counts, ..HttpFigures::default() });
            let LoadFigures::Open(open) = &mut run.load else { unreachable!("an open load") };
            open.finished_ms *= 3.0;
        }
        with_runs(record(ClockKind::Live, "1s at 1000/s", &times), runs)
    };
    let comparison = compared(&valid, &invalid(false, 4)).unwrap();
    let finished = of_finished(&comparison);
    assert_eq!(finished.verdict, ChangeVerdict::Open);
    assert!(
        (29.9..30.1).contains(&finished.after) && finished.interval.is_none(),
        "it is shown: {finished:?}"
    );
    assert_eq!((comparison.result(), comparison.verdict()), ("unknown", Verdict::Inconclusive));
    let failed = comparison.changes.iter().find(|change| change.metric.name == "failed").unwrap();
    assert_eq!(failed.verdict, ChangeVerdict::Same, "a count");
    assert_eq!(comparison.differences, ["invalid measurements: 0 -> 4"]);
    let comparison = compared(&valid, &invalid(false, 1)).unwrap();
    let finished = of_finished(&comparison);
    assert_eq!(finished.verdict, ChangeVerdict::Same, "of the three others");
    assert!((9.99..10.01).contains(&finished.after), "{finished:?}");
    let comparison = compared(&invalid(true, 4), &valid).unwrap();
    assert!(comparison.changes.iter().all(|change| change.verdict == ChangeVerdict::Open));
}

/// Repeats that differ in the memory and the cpu of the proxy.
fn usages(usages: &[(u64, f64)]) -> (Record, Results) {
    let (record, _) = record(ClockKind::Live, "1s at 1000/s", &vec![(0, 10.0); usages.len()]);
    let mut results = Results::default();
    for (run, (mib, cpu)) in record.runs.iter().zip(usages) {
        let mut fold = results.fold(None);
        let usage = [(Role::Proxy, Usage { rss_bytes: mib << 20, cpu: *cpu })].into();
        fold.add(&Interval { usage, ..Interval::default() });
        results.add(run, fold);
    }
    (record, results)
}

/// Five runs of one proxy had 24 to 34 MiB.
#[test]
fn memory_of_one_run_is_open() {
    let of = |mib: &[u64]| usages(&mib.iter().map(|mib| (*mib, 0.1)).collect::<Vec<_>>());
    for (before, after, verdict) in [
        (&[30][..], &[34][..], ChangeVerdict::Open),
        (&[30], &[300], ChangeVerdict::Worse),
        (&[30, 31, 30, 31], &[60, 61, 60, 62], ChangeVerdict::Worse),
        (&[30, 24, 32, 34], &[31, 33, 25, 30], ChangeVerdict::Open),
    ] {
        let comparison = compared(&of(before), &of(after)).unwrap();
        let memory = comparison.changes.iter().find(|change| change.metric.name == MEMORY).unwrap();
        assert_eq!(memory.verdict, verdict, "{before:?} {after:?}");
    }
}

/// 3.07 times as much is 2.17 standard deviations beyond the minimum effect, which one comparison in 33 is by chance. It would be
/// decided alone, but several metrics share the chance of a false verdict.
#[test]
fn metrics_of_two_records_share_the_chance_of_a_false_verdict() {
    let judged = |after: (u64, f64)| compared(&usages(&[(30, 0.1)]), &usages(&[after])).unwrap().changes;
    let of_usage = |changes: Vec<Change>| -> Vec<Change> {
        changes.into_iter().filter(|change| change.metric.name.starts_with("proxy.")).collect()
    };
    let open = judged((92, 0.307));
    let estimated = open.iter().filter(|change| change.interval.is_some()).count();
    assert_eq!(estimated, 4, "{open:?}");
    for (change, ratio) in of_usage(open).into_iter().zip([92.0 / 30.0, 3.07]) {
        assert_eq!(change.verdict, ChangeVerdict::Open, "{change:?}");
        // A fourth of 5 %: 2.497705 standard deviations of 0.35 sqrt(2).
        let (low, high) = change.interval.unwrap();
        let factor = (2.497_705 * 0.35 * 2.0_f64.sqrt()).exp();
        assert!((low * factor - ratio).abs() < 1e-4 && (high / factor - ratio).abs() < 1e-4, "{change:?}");
    }
    let far = of_usage(judged((30_000, 100.0)));
    assert!(far.iter().all(|change| change.verdict == ChangeVerdict::Worse), "{far:?}");
}

#[test]
fn figures_of_a_change_are_means_of_the_repeats() {
    let before = record(ClockKind::Live, "1s at 1000/s", &[(10, 10.0), (30, 40.0)]);
    let after = record(ClockKind::Live, "1s at 1000/s", &[(60, 40.0), (100, 160.0)]);
    let comparison = compared(&before, &after).unwrap();
    let figures = |name: &str| {
        let change = comparison.changes.iter().find(|change| change.metric.name == name).unwrap();
        [change.before, change.after, change.ratio.unwrap()]
    };
    // Geometric means of times, and arithmetic ones of counts.
    for (name, expected) in [("finished", [20.0, 80.0, 4.0]), ("failed", [20.0, 80.0, 4.0])] {
        for (found, expected) in figures(name).into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-9, "{name}: {found}, not {expected}");
        }
    }
    let none = record(ClockKind::Live, "1s at 1000/s", &[(0, 10.0)]);
    for (before, after) in [(&none, &after), (&after, &none)] {
        assert_eq!(compared(before, after).unwrap().changes[0].ratio, None, "of `failed`");
    }
}

/// ln(12.214028 / 10) is 0.2, so that the standard deviation of two logarithms is 0.2 / sqrt(2).
#[test]
fn noise_is_that_of_the_more_varied_record_without_figures_of_0() {
    let quiet = record(ClockKind::Live, "1s at 1000/s", &[(0, 10.0), (0, 10.0)]);
    let noisy = record(ClockKind::Live, "1s at 1000/s", &[(0, 10.0), (0, 0.0), (0, 12.214_028)]);
    for (before, after) in [(&quiet, &noisy), (&noisy, &quiet)] {
        let noise = compared(before, after).unwrap().noise["finished"];
        assert!((noise - 0.141_421).abs() < 1e-5, "{noise}");
    }
}

#[test]
fn arm_of_one_record_is_named() {
    let one = record(ClockKind::Live, "1s at 1000/s", &[(0, 10.0)]);
    let mut two = record(ClockKind::Live, "1s at 1000/s", &[(0, 10.0)]);
    two.0.arms.push(Arm { name: "other".to_owned(), cache: None });
    assert_eq!(compared(&two, &one).unwrap().differences, ["arms: cache, other -> cache"]);
}

#[test]
fn counts_are_compared_in_every_pair_of_repeats() {
    let failed = |before: &[u64], after: &[u64]| {
        let of = |counts: &[u64]| counts.iter().map(|count| (*count, 10.0)).collect::<Vec<_>>();
        verdict("failed", &of(before), &of(after))
    };
    assert_eq!(failed(&[0, 0], &[0, 0]), ChangeVerdict::Same);
    assert_eq!(failed(&[0, 0], &[50, 40]), ChangeVerdict::Worse);
    assert_eq!(failed(&[400], &[300]), ChangeVerdict::Better);
    assert_eq!(failed(&[0, 0], &[50, 0]), ChangeVerdict::Open);
    assert_eq!(failed(&[400], &[0]), ChangeVerdict::Better, "none after is not the same as before");
    // Two standard deviations are 2 sqrt(50 + 65), 21, and 2 sqrt(50 + 80), 23.
    assert_eq!([failed(&[50], &[65]), failed(&[50], &[80])], [ChangeVerdict::Open, ChangeVerdict::Worse]);
    assert_eq!(
        failed(&[80, 20], &[80, 20]),
        ChangeVerdict::Same,
        "the repeats of a seed send the same requests"
    );
    let [before, mut after] =
        [0, 1].map(|_| record(ClockKind::Live, "1s at 1000/s", &[(80, 10.0), (20, 10.0)]));
    after.0.seed = Seed(2);
    let of_other_requests = compared(&before, &after).unwrap();
    assert_eq!(of_other_requests.changes[0].verdict, ChangeVerdict::Open, "of `failed`");
    assert_eq!(failed(&[1], &[2]), ChangeVerdict::Open, "chance");
    let of = |failed| record(ClockKind::Virtual, "1s at 1000/s", &[(failed, 10.0)]);
    let computed = compared(&of(1), &of(2)).unwrap();
    assert_eq!(computed.changes[0].verdict, ChangeVerdict::Worse, "nothing is chance in virtual time");
    assert_eq!(computed.verdict(), Verdict::Refuted);
}

#[test]
fn times_of_a_disturbed_record_are_open() {
    let of = |ms: f64| record(ClockKind::Live, "1s at 1000/s", &[(0, ms), (0, ms * 1.01), (0, ms * 0.99)]);
    let disturbed = |(record, results): (Record, Results)| {
        let disturbance = Some(Disturbance { others: 0.5, ..Disturbance::default() });
        let mut again = Results::default();
        for Evidence { run, .. } in results.runs() {
            let mut fold = again.fold(run.load.duration());
            fold.add(&Interval { disturbance, ..Interval::default() });
            again.add(run, fold);
        }
        (record, again)
    };
    let judged = |before: &(Record, Results), after: &(Record, Results)| {
        of_finished(&compared(before, after).unwrap()).verdict
    };
    assert_eq!(judged(&of(10.0), &of(20.0)), ChangeVerdict::Worse);
    assert_eq!(judged(&of(10.0), &disturbed(of(20.0))), ChangeVerdict::Open);
    assert_eq!(judged(&disturbed(of(20.0)), &of(10.0)), ChangeVerdict::Open);
}

#[test]
fn few_requests_change_a_hit_ratio_by_chance() {
    let of = |hit, miss| {
        let record = record(ClockKind::Live, "1s at 1000/s", &[(0, 10.0)]);
        let mut run = record.1.runs()[0].run.clone();
        run.outcomes = Outcomes { hit, miss, ..Outcomes::default() };
        with_runs(record, vec![run])
    };
    let verdict = |before: &(Record, Results), after: &(Record, Results)| {
        let comparison = compared(before, after).unwrap();
        comparison.changes.iter().find(|change| change.metric.name == "hit_ratio").unwrap().verdict
    };
    assert_eq!(verdict(&of(8, 2), &of(7, 3)), ChangeVerdict::Open);
    assert_eq!(verdict(&of(8_000, 2_000), &of(7_000, 3_000)), ChangeVerdict::Worse);
    assert_eq!(verdict(&of(8_000, 2_000), &of(8_010, 1_990)), ChangeVerdict::Same);
    // Few misses vary by little: 0.05 is six standard deviations of 1,000 requests, and less than two of 100.
    assert_eq!(verdict(&of(990, 10), &of(940, 60)), ChangeVerdict::Worse);
    assert_eq!(verdict(&of(99, 1), &of(94, 6)), ChangeVerdict::Open);
}

#[test]
fn numbers_have_decimals_only_if_they_are_not_whole() {
    let of = |name: &str, figure| shown(Metric::named(name).unwrap(), figure);
    assert_eq!([of("failed", 4.0), of("hit_ratio", 1.0), of("hit_ratio", 0.25)], ["4", "1", "0.2500"]);
    assert_eq!(of("finished", 12.5), format_milliseconds(12.5));
}

#[test]
fn compared_metrics_exist() {
    assert!(COMPARED.iter().all(|(name, _)| Metric::named(name).is_some()));
    assert!(COMPARED.iter().any(|(name, _)| *name == MEMORY));
}

#[test]
fn unlike_records_are_refused_with_the_difference() {
    let live = |schedule| record(ClockKind::Live, schedule, &[(0, 10.0)]);
    let refused = |other: &(Record, Results)| compared(&live("1s at 10/s"), other).unwrap_err().to_string();
    assert!(refused(&live("2s at 10/s")).ends_with("the load is 1s at 10/s before, and 2s at 10/s after"));
    let computed = record(ClockKind::Virtual, "1s at 10/s", &[(0, 10.0)]);
    assert!(refused(&computed).contains("virtual time"));
    let mut other = live("1s at 10/s");
    other.0.arms[0].name = "other".to_owned();
    let message = refused(&other);
    assert!(
        message.ends_with("no test and arm is in both; the arms are cache before, and other after"),
        "{message}"
    );
}

#[test]
fn reports_have_the_result_first_and_other_differences() {
    let before = record(ClockKind::Live, "1s at 10/s", &[(0, 10.0), (0, 10.1), (0, 9.9)]);
    let mut after = record(ClockKind::Live, "1s at 10/s", &[(0, 20.0), (0, 20.1), (0, 19.9)]);
    after.0.spec = after.0.spec.replace("10s", "5s");
    after.0.stockade = "0.1.0 (b)".to_owned();
    let comparison = compared(&before, &after).unwrap();
    let render = |name: &str| (FORMATS.named(name).unwrap().render)(&comparison);
    let text = render("text");
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[1].starts_with("1 worse, 0 better, "), "{text}");
    assert_eq!(lines[2], "equal runs differ by (one standard deviation): achieved_rate 0 %, finished 1 %");
    assert_eq!(lines[3..6], ["  stockade: 0.1.0 (a) -> 0.1.0 (b)", "  - ttl = \"10s\"", "  + ttl = \"5s\""]);
    assert!(text.contains("finished") && text.contains("+100 %"), "{text}");
    assert!(!text.contains("hit_ratio"), "what is the same is left out: {text}");
    assert!(render("md").starts_with("**An experiment**: 1 worse"), "{}", render("md"));
    assert!(render("md").contains("<details>") && render("md").contains("hit_ratio"));
    let json: serde_json::Value = serde_json::from_str(&render("json")).unwrap();
    assert_eq!(json["verdict"], "worse");
    let finished =
        json["metrics"].as_array().unwrap().iter().find(|metric| metric["metric"] == "finished").unwrap();
    let (change, low) = (finished["change"].as_f64().unwrap(), finished["interval"][0].as_f64().unwrap());
    assert!((change - 1.0).abs() < 0.01 && (0.9..1.0).contains(&low), "{finished}");
    assert_eq!(finished["verdict"], "worse");
    assert!(
        json["noise"]["finished"].as_f64().is_some_and(|spread| (0.005..0.02).contains(&spread)),
        "{json}"
    );
    assert!(render("junit").contains("failures=\"1\" errors=\"0\""), "{}", render("junit"));
}

#[test]
fn text_of_a_hostile_record_is_escaped() {
    let mut hostile = record(ClockKind::Live, "1s at 10/s", &[(0, 10.0)]);
    hostile.0.experiment = "a\u{1b}\u{ffff}<b>".to_owned();
    hostile.0.started_at = "</summary><img src=x> @all".to_owned();
    let comparison = compared(&hostile, &hostile).unwrap();
    let render = |name: &str| (FORMATS.named(name).unwrap().render)(&comparison);
    assert!(!render("md").contains("<img") && !render("md").contains("@all"), "{}", render("md"));
    assert!(render("junit").contains("name=\"a\u{fffd}\u{fffd}&lt;b&gt;\""), "{}", render("junit"));
}
