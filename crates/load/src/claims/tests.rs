//! Claims about made-up loads.

use std::time::Duration;

use proptest::prelude::*;
use stockade_model::{outcome::Outcomes, time::Time};
use stockade_record::timing::Timing;

use super::*;
use crate::{
    sample::{Response, Sample},
    tally::Tally,
};

/// A run in which request `n`, due at `n` ms, was sent 1 ms later and took `n` ms more; the last `failed` of them have no
/// answer.
fn run(requests: u64, failed: u64) -> Summary {
    run_of(requests, failed, 200)
}

/// The same, where all answers have this status.
fn run_of(requests: u64, failed: u64, status: u16) -> Summary {
    let mut measured = Tally::default();
    for number in 0..requests {
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let answer = Response {
            status,
            bytes: 1,
            wire_bytes: 1,
            outcome: None,
            may_be_stale: false,
            deviation: None,
            stated: None,
        };
        measured.record(&Sample {
            number,
            timing: Timing { scheduled: at(number), started: at(number + 1), finished: at(2 * number + 1) },
            bytes_out: 0,
            result: if number < requests - failed { Ok(answer) } else { Err(FailureClass::Timeout.into()) },
        });
    }
    let schedule_end = Time::ZERO + Duration::from_millis(requests);
    Summary { schedule_end, in_flight_max: 3, ..Summary::of(measured) }
}

fn claims(text: &str) -> LoadClaims {
    text.parse().unwrap()
}

/// The verdict as that of a trial.
fn judged(text: &str, run: &Summary) -> String {
    run.judge_trial(&claims(text)).to_string()
}

#[test]
fn invalid_claim_has_a_remedy() {
    for (text, message) in [
        ("", "a metric or a number is missing here"),
        ("p99", "a comparison is missing: write <=, <, >=, >, == or !=, between spaces"),
        ("p99 <", "a metric or a number is missing here"),
        ("p99 < 5ms and", "a metric or a number is missing here"),
        ("p99 < 50", "a time is compared with a number without a unit: write `ms` or `s` behind it"),
        ("p99 < fast", "unknown metric `fast`: docs/reference/metrics.md lists them"),
        ("sucess > 0.9", "unknown metric `sucess`: did you mean `success`?"),
        ("respons.p99 < 1s", "unknown metric `respons.p99`: did you mean `response.p99`?"),
        ("p0 < 1s", "`p0` is not a percentile: write one above 0 and at most 100, such as p99.9"),
        ("response.p < 1s", "unknown metric `response.p`: did you mean `response.p50`?"),
        ("p99 == 5ms", "measured times are never equal: compare them with <, <=, > or >="),
        ("success > 99%", "`99%`: write a share, such as 0.99"),
        ("failed < 5ms", "a number is compared with a time"),
        ("failed < inf", "unknown metric `inf`: docs/reference/metrics.md lists them"),
        ("failed(1s..2s) == 0", "a claim about a load is about the whole: remove the window"),
    ] {
        assert_eq!(text.parse::<LoadClaims>().unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn claims_have_the_expressions_of_experiments() {
    let good = run(1_000, 0);
    for (text, verdict) in [
        ("p99 <= 2 * p50 and load.response.p99 <= 2 * service.p50", "held"),
        ("p99 - p50 < 100ms", "p99 - p50 < 100ms: it was 490ms"),
        ("p99 < p50", "p99 < p50: it was 990ms, against 500ms"),
        ("load.cpu.max > 1", "load.cpu.max > 1: it was 0"),
    ] {
        assert_eq!(judged(text, &good), verdict, "{text}");
    }
}

#[test]
fn refuted_claim_has_the_value() {
    let good = run(1_000, 0);
    for (text, verdict) in [
        ("p50 < 600ms and p99 <= 1s and service.max < 999.5ms and send_lag.p99 < 2ms", "held"),
        ("success == 1 and failed == 0 and dropped == 0 and achieved == 1 and requests == 1000", "held"),
        ("min <= 1.001ms and in_flight.max == 3 and throughput > 400", "held"),
        ("p99 < 50ms and failed > 0", "p99 < 50ms: it was 990ms; failed > 0: it was 0"),
        ("throughput > 501", "throughput > 501: it was 500.250125"),
        ("mean > 499ms and mean < 501ms", "held"),
    ] {
        assert_eq!(judged(text, &good), verdict, "{text}");
    }
}

#[test]
fn error_status_is_a_failure_with_a_response_time() {
    let errors = run_of(100, 0, 503);
    for (text, verdict) in [
        ("failed == 0", "failed == 0: it was 100"),
        ("success >= 0.5", "success >= 0.5: it was 0"),
        ("failed == 100", "held"),
        ("p99 < 1s and max < 1s", "held"),
    ] {
        assert_eq!(judged(text, &errors), verdict, "{text}");
    }
    assert_eq!(judged("failed == 100", &run_of(100, 40, 503)), "held", "both kinds of failures count");
    assert_eq!(judged("failed == 0", &run_of(100, 0, 304)), "held");
}

#[test]
fn nines_without_a_point_are_decimals() {
    let thousand = run(1_000, 0);
    for (text, verdict) in [
        ("p999 < 998ms", "p999 < 998ms: it was 999ms"),
        ("p99.9 < 998ms", "p99.9 < 998ms: it was 999ms"),
        ("p995 < 996ms and p9999 > 999ms and p100 > 999ms", "held"),
    ] {
        assert_eq!(judged(text, &thousand), verdict, "{text}");
    }
}

#[test]
fn metrics_of_experiments_are_read() {
    let hundred = run(100, 10);
    for (text, verdict) in [
        ("bytes_in.total == 90 and bytes_in.mean == 0.9 and retries == 0", "held"),
        // 100 requests in 100 ms.
        ("achieved_rate == 1000 and in_flight.max == 3", "held"),
        ("hit_ratio > 0.5", "hit_ratio > 0.5: there was nothing to measure"),
    ] {
        assert_eq!(judged(text, &hundred), verdict, "{text}");
    }
}

#[test]
fn hit_ratio_counts_answers_of_every_status() {
    let mut answers = run(4, 1);
    answers.measured.outcomes = Outcomes { hit: 2, miss: 1, ..Outcomes::default() };
    answers.measured.outcomes_of_successes = Outcomes { hit: 1, miss: 1, ..Outcomes::default() };
    let verdict = "hit_ratio < 0.5: it was 0.666667";
    assert_eq!(judged("hit_ratio < 0.5", &answers), verdict);
}

/// The verdicts on claims, and the overall one.
fn verdicts(text: &str, run: &Summary, was_interrupted: bool) -> String {
    let all = run.judge(&claims(text), was_interrupted);
    let each: Vec<_> = all.iter().map(|expectation| expectation.verdict.to_string()).collect();
    format!("{}: {}", Verdict::worst(all.iter().map(|expectation| expectation.verdict)), each.join(" "))
}

#[test]
fn lateness_makes_claims_about_times_invalid_and_no_others() {
    let mut late = run(1_000, 10);
    late.generator.invalid_reasons = vec!["the generator was late".to_owned()];
    for (text, expected) in [
        ("p50 < 1s", "invalid: invalid"),
        ("p50 < 1ms", "invalid: invalid"),
        ("throughput > 1 and achieved > 0.5 and achieved_rate > 1", "invalid: invalid invalid invalid"),
        ("in_flight.max <= 9", "invalid: invalid"),
        ("failed <= 10 and success >= 0.99", "supported: supported supported"),
        ("p50 < 1s and failed <= 10", "invalid: invalid supported"),
        ("p50 < 1s and failed == 0", "refuted: invalid refuted"),
    ] {
        assert_eq!(verdicts(text, &late, false), expected, "{text}");
    }
    let expectations = late.judge(&claims("p50 < 1s"), false);
    assert_eq!(expectations[0].reason, "it was 501ms; the generator was late");
}

#[test]
fn late_response_times_are_judged_with_the_service_times() {
    let mut late = run(1_000, 0);
    let reason = "the generator was late".to_owned();
    late.generator.late = Some(reason.clone());
    late.generator.invalid_reasons = vec![reason];
    // The service took a tenth of the response times, which are 1 ms to 1 s.
    late.measured.times.service = (1..=1_000).map(|tenths| Duration::from_micros(tenths * 100)).collect();
    for (text, expected) in [
        ("p50 < 1s", "supported: supported"),
        ("p50 < 10ms", "refuted: refuted"),
        ("p50 < 100ms", "invalid: invalid"),
        ("service.p50 < 100ms and send_lag.p50 < 1s", "supported: supported supported"),
        ("achieved_rate > 1", "invalid: invalid"),
    ] {
        assert_eq!(verdicts(text, &late, false), expected, "{text}");
    }
    // A thread that is busy may change every time.
    late.generator.invalid_reasons.push("one of its threads was busy".to_owned());
    assert_eq!(verdicts("p50 < 1s", &late, false), "invalid: invalid");
}

#[test]
fn limit_of_requests_in_flight_supports_nothing_and_refutes_what_fails_without_it() {
    let mut full = run(1_000, 0);
    full.dropped = 5;
    let unsent = "5 requests were due and never sent".to_owned();
    full.generator.in_flight_limit = Some(unsent.clone());
    full.generator.invalid_reasons = vec![unsent];
    for (text, expected) in [
        ("p50 < 1ms", "refuted: refuted"),
        ("p50 < 1s", "invalid: invalid"),
        ("dropped == 0", "refuted: refuted"),
        ("success == 1", "invalid: invalid"),
        ("success > 1", "refuted: refuted"),
        ("achieved_rate > 1e9", "invalid: invalid"),
    ] {
        assert_eq!(verdicts(text, &full, false), expected, "{text}");
    }
    // The server took 1 ms, and our own queue the rest.
    full.measured.times.response = [Duration::from_secs(5); 1_000].into_iter().collect();
    full.measured.times.service = [Duration::from_millis(1); 1_000].into_iter().collect();
    assert_eq!(verdicts("p50 < 2s and service.p50 < 2s", &full, false), "invalid: invalid invalid");
    assert_eq!(verdicts("p50 < 500us", &full, false), "refuted: refuted");
}

#[test]
fn interrupt_and_shortage_make_every_claim_invalid() {
    let good = run(100, 0);
    assert_eq!(verdicts("p50 < 1s and failed == 0", &good, true), "invalid: invalid invalid");
    assert_eq!(verdicts("p50 < 1s and failed == 0", &good, false), "supported: supported supported");
    let mut short = good;
    short.measured.failures.insert(FailureClass::NoPorts.name(), 1);
    assert_eq!(verdicts("failed == 0", &short, false), "invalid: invalid");
}

#[test]
fn expectation_has_both_sides_in_milliseconds() {
    let sides = |text: &str, run: &Summary| {
        let expectation = run.judge(&claims(text), false).remove(0);
        (expectation.left, expectation.right.unwrap(), expectation.reason)
    };
    let (left, right, reason) = sides("min <= 0.5s", &run(10, 0));
    assert!((left.unwrap() - 1.0).abs() < 0.001, "{left:?}");
    assert_eq!((right, reason.as_str()), (500.0, "it was 1ms"));
    assert_eq!(sides("failed <= 3", &run(10, 2)), (Some(2.0), 3.0, "it was 2".to_owned()));
    let slowest = "too many requests had no response".to_owned();
    assert_eq!(sides("p99 < 1s", &run(10, 10)), (None, 1_000.0, slowest));
    assert_eq!(verdicts("p99 < 1s", &run(10, 10), false), "refuted: refuted");
    assert_eq!(verdicts("hit_ratio > 0.5", &run(10, 0), false), "inconclusive: inconclusive");
}

#[test]
fn request_without_response_counts_as_slowest() {
    let ten = run(1_000, 10);
    for (text, verdict) in [
        // The slowest of 990 responses is the 99th percentile of all 1,000 requests.
        ("p99 < 991ms and response.p50 < 502ms and service.p99 < 990ms and mean < 500ms", "held"),
        ("p99.1 < 1d", "p99.1 < 1d: too many requests had no response"),
        ("max < 1d", "max < 1d: too many requests had no response"),
        ("service.p99.9 < 1d", "service.p99.9 < 1d: too many requests had no response"),
        ("send_lag.max < 2ms", "held"),
        ("success >= 0.999 and failed <= 9", "success >= 0.999: it was 0.99; failed <= 9: it was 10"),
    ] {
        assert_eq!(judged(text, &ten), verdict, "{text}");
    }
    // Fast refusals are not capacity.
    assert_eq!(judged("p50 < 1s", &run(10, 10)), "p50 < 1s: too many requests had no response");
    let nothing = run(0, 0);
    for bound in ["p99 < 1s", "max < 1s", "mean < 1s", "success >= 0", "achieved >= 0", "throughput >= 0"] {
        assert_eq!(judged(bound, &nothing), format!("{bound}: there was nothing to measure"));
    }
}

#[test]
fn load_of_which_a_part_is_missing_supports_nothing() {
    let mut part = run(1_000, 0);
    part.generator.is_incomplete = true;
    part.generator.invalid_reasons = vec!["agent b: no sign of life".to_owned()];
    for text in ["success == 1", "requests == 1000", "p50 < 1s"] {
        assert_eq!(verdicts(text, &part, false), "invalid: invalid", "{text}");
    }
}

#[test]
fn late_and_dropped_requests_are_not_achieved() {
    let mut late = run(900, 0);
    (late.dropped, late.in_flight_at_end) = (100, 50);
    assert_eq!(judged("achieved >= 0.99", &late), "achieved >= 0.99: it was 0.85");
    late.generator.invalid_reasons = vec!["the processor was busy".to_owned(), "ports ran out".to_owned()];
    assert_eq!(judged("requests > 0", &late), "invalid: the processor was busy; ports ran out");
}

proptest! {
    #[test]
    fn arbitrary_text_does_not_panic(
        text in "\\PC{0,30}",
        near in "(p[0-9.]{0,4}|success|response.[a-z0-9.]{0,4}) {0,2}[<>=!]{0,3} {0,2}[0-9a-z.]{0,9}",
    ) {
        let _ = text.parse::<LoadClaims>();
        if let Ok(claims) = near.parse::<LoadClaims>() {
            prop_assert!(claims.to_string().parse::<LoadClaims>().is_ok());
            let _ = run(3, 1).judge(&claims, false);
        }
    }
}
