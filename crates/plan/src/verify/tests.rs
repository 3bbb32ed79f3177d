use super::*;

fn experiment() -> Experiment {
    let arm = |name, hit_ratio, shortest_lifetime| PredictedArm {
        name,
        cache: "512KiB, sieve".to_owned(),
        hit_ratio,
        loads: 4_000,
        shortest_lifetime,
    };
    Experiment {
        toml: String::new(),
        requests: String::new(),
        recipe: String::new(),
        arms: vec![
            arm("planned", Some(0.5), Some(Duration::from_secs(1))),
            arm("shorter_ttl", Some(0.5), Some(Duration::from_millis(250))),
            arm("for_ever", None, None),
        ],
        requests_count: 8_000,
        latency: Duration::from_millis(60),
        statuses: BTreeMap::from([(200, 7_000), (422, 1_000)]),
    }
}

/// As predicted, and in time.
fn measured() -> MeasuredArm {
    let ms = Duration::from_millis;
    MeasuredArm {
        requests: 8_000,
        hit_ratio: Some(0.505),
        loads: Some(3_950),
        send_lag_p99: ms(1),
        service_p99: ms(62),
        statuses: BTreeMap::from([(200, 7_000), (422, 1_000)]),
        ..MeasuredArm::default()
    }
}

fn verified(name: &str, arm: &MeasuredArm) -> VerifiedArm {
    let verification = Verification::of(&experiment(), |of| (of == name).then(|| arm.clone()));
    verification.arms.into_iter().find(|arm| arm.name == name).expect("an arm")
}

#[test]
fn measurement_in_time_counts() {
    let verification = Verification::of(&experiment(), |_| Some(measured()));
    assert_eq!(verification.verdict(), Verdict::Supported);
    for arm in &verification.arms {
        assert!(arm.is_measured() && arm.notes.is_empty(), "{arm:?}");
        let difference = arm.loads_per_request.difference().expect("measured");
        assert!((difference - -50.0 / 8_000.0).abs() < 1e-9);
    }
}

#[test]
fn each_fault_of_the_replay_is_told_and_nothing_is_compared() {
    let ms = Duration::from_millis;
    let without = |class: &str, count| BTreeMap::from([(class.to_owned(), count)]);
    for (name, arm, reason) in [
        (
            "planned",
            MeasuredArm { send_lag_p99: ms(340), ..measured() },
            "the load generator was 340ms late at p99, and 50ms are allowed where responses are fresh for 1s: run it on a quiet machine, or \
             slower with --verify-time",
        ),
        (
            "shorter_ttl",
            MeasuredArm { send_lag_p99: ms(13), ..measured() },
            "the load generator was 13ms late at p99, and 12.5ms are allowed",
        ),
        (
            "for_ever",
            MeasuredArm { send_lag_p99: ms(101), ..measured() },
            "the load generator was 101ms late at p99, and 100ms are allowed: run it",
        ),
        (
            "planned",
            MeasuredArm { service_p99: ms(412), ..measured() },
            "responses took 412ms at p99, and 50ms more than a load of 60ms are allowed where responses are fresh for 1s: run",
        ),
        (
            "planned",
            MeasuredArm { requests: 7_800, ..measured() },
            "7,800 of 8,000 requests were sent: the replay ended early",
        ),
        (
            "planned",
            MeasuredArm {
                invalid: vec!["the limit of 192 requests in flight was reached".to_owned()],
                ..measured()
            },
            "the limit of 192 requests in flight was reached",
        ),
        ("planned", MeasuredArm { loads_refused: 3, ..measured() }, "the proxy refused 3 loads"),
        (
            "planned",
            MeasuredArm { failures: without("timeout", 9), ..measured() },
            "9 of 8,000 requests had another answer than in the log: 9 without one (timeout)",
        ),
        (
            "planned",
            MeasuredArm { statuses: BTreeMap::from([(200, 6_900), (422, 1_000), (503, 100)]), ..measured() },
            "100 of 8,000 requests had another answer than in the log: 100 with status 503",
        ),
        (
            "planned",
            MeasuredArm { statuses: BTreeMap::from([(200, 6_990), (422, 1_010)]), ..measured() },
            "10 of 8,000 requests had another answer than in the log: 10 with status 422",
        ),
        ("planned", MeasuredArm { loads: None, ..measured() }, "the proxy has not reported its counters"),
        ("planned", MeasuredArm { hit_ratio: None, ..measured() }, "the proxy has not reported its counters"),
    ] {
        // The figures are off by ten points, which is not told.
        let arm = MeasuredArm { loads: arm.loads.map(|_| 3_200), ..arm };
        let arm = verified(name, &arm);
        assert!(!arm.is_measured() && arm.not_measured[0].starts_with(reason), "{reason}: {arm:?}");
        assert!(arm.figures().all(|(_, figure)| figure.measured.is_none() && !figure.is_off()));
    }
}

#[test]
fn little_that_differs_is_a_note() {
    let failures = BTreeMap::from([("reset".to_owned(), 8)]);
    let arm = verified("planned", &MeasuredArm { failures, ..measured() });
    assert!(arm.is_measured());
    assert_eq!(arm.notes, ["8 of 8,000 requests had another answer than in the log: 8 without one (reset)"]);
}

#[test]
fn disturbed_seconds_are_the_cause_of_lateness_and_else_a_note() {
    let disturbed = Some("3 seconds were disturbed".to_owned());
    let arm = verified("planned", &MeasuredArm { disturbed: disturbed.clone(), ..measured() });
    assert!(arm.is_measured());
    assert_eq!(arm.notes, ["3 seconds were disturbed"]);
    let late = MeasuredArm { disturbed, send_lag_p99: Duration::from_secs(1), ..measured() };
    let arm = verified("planned", &late);
    assert!(
        arm.not_measured.len() == 1 && arm.not_measured[0].ends_with("; 3 seconds were disturbed"),
        "{arm:?}"
    );
}

#[test]
fn difference_refutes_and_a_missing_measurement_leaves_it_open() {
    let off = MeasuredArm { loads: Some(3_900), ..measured() };
    let late = MeasuredArm { send_lag_p99: Duration::from_secs(1), ..measured() };
    let verdict = |of: &dyn Fn(&str) -> Option<MeasuredArm>| Verification::of(&experiment(), of).verdict();
    assert_eq!(verdict(&|_| Some(off.clone())), Verdict::Refuted);
    assert_eq!(verdict(&|name| (name == "planned").then(measured)), Verdict::Invalid);
    assert_eq!(verdict(&|_| Some(late.clone())), Verdict::Invalid);
    // Refuted goes before invalid.
    assert_eq!(
        verdict(&|name| Some(if name == "planned" { off.clone() } else { late.clone() })),
        Verdict::Refuted
    );
    // Within a point.
    let edge = MeasuredArm { loads: Some(3_921), ..measured() };
    assert_eq!(verdict(&|_| Some(edge.clone())), Verdict::Supported);
}
