//! Bounds on made-up runs, and searches against oracles.

use std::time::SystemTime;

use proptest::prelude::*;
use rand_distr::{Distribution, Uniform};
use stockade_model::{seed::Seed, time::Time};
use stockade_record::{record::Verdict, timing::Timing};

use super::*;
use crate::{
    sample::{FailureClass, Response, Sample},
    summary::{GeneratorHealth, Summary},
    tally::Tally,
};

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

/// A run in which request `n`, due at `n` ms, was sent 1 ms later and took `n` ms more; the last `failed` of them got
/// no answer.
fn run(requests: u64, failed: u64) -> Summary {
    run_of(requests, failed, 200)
}

/// The same, where all answers have this status.
fn run_of(requests: u64, failed: u64, status: u16) -> Summary {
    let mut measured = Tally::default();
    for number in 0..requests {
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let answer =
            Response { status, bytes: 1, wire_bytes: 1, outcome: None, may_be_stale: false, deviation: None };
        measured.record(&Sample {
            number,
            timing: Timing { scheduled: at(number), started: at(number + 1), finished: at(2 * number + 1) },
            bytes_out: 0,
            result: if number < requests - failed { Ok(answer) } else { Err(FailureClass::Timeout.into()) },
        });
    }
    Summary {
        id: String::new(),
        schedule: String::new(),
        clock_zero: SystemTime::UNIX_EPOCH,
        measured_from: Time::ZERO,
        schedule_end: Time::ZERO + Duration::from_millis(requests),
        measured,
        warmup: None,
        seconds: Vec::new(),
        dropped: 0,
        held_back: 0,
        sent_after_end: 0,
        in_flight_at_end: 0,
        in_flight_max: 3,
        connections: 1,
        generator: GeneratorHealth::default(),
        agents: Vec::new(),
    }
}

fn judged(bounds: &str, run: &Summary) -> String {
    bounds.parse::<Bounds>().unwrap().judge(run).to_string()
}

#[test]
fn bounds_round_trip_as_text() {
    for (text, written) in [
        ("p99<50ms", "p99 < 50ms"),
        ("response.p99.9 <= 1s", "response.p99.9 <= 1s"),
        (" service.p50  < 0.5ms ", "service.p50 < 500us"),
        ("send_lag.max > 1.000000001s", "send_lag.max > 1.000000001s"),
        ("mean > 0", "mean > 0"),
        ("p99<50ms&&success>=0.999", "p99 < 50ms and success >= 0.999"),
        ("response.p999 < 50ms && failed == 0", "response.p999 < 50ms and failed == 0"),
        ("achieved_rate >= 99 and in_flight.max <= 9", "achieved_rate >= 99 and in_flight.max <= 9"),
        ("p100 >= 7ns", "p100 >= 7ns"),
        ("success >= 0.999", "success >= 0.999"),
        (
            "failed == 0 and achieved >= 0.99  and dropped<1",
            "failed == 0 and achieved >= 0.99 and dropped < 1",
        ),
        (
            "throughput >= 1e3 and requests != 0 and in_flight_max <= 10",
            "throughput >= 1000 and requests != 0 and in_flight_max <= 10",
        ),
    ] {
        let bounds: Bounds = text.parse().unwrap();
        assert_eq!(bounds.to_string(), written, "{text}");
        assert_eq!(written.parse::<Bounds>().unwrap().to_string(), written);
    }
}

#[test]
fn invalid_bound_has_a_remedy() {
    let malformed = "is not a bound: write a metric, a comparison and a value, such as `p99 < 50ms` or `success >= 0.999`";
    for (text, message) in [
        ("", &*format!("`` {malformed}")),
        ("p99", &format!("`p99` {malformed}")),
        ("p99 <", &format!("`p99 <` {malformed}")),
        ("< 5ms", &format!("`< 5ms` {malformed}")),
        ("p99 < 5ms and", &format!("`` {malformed}")),
        ("p99 < 5ms &&", &format!("`` {malformed}")),
        ("&& p99 < 5ms", &format!("`` {malformed}")),
        ("p99 < 50", "`50` has no unit: write `50ms` or `50s`"),
        ("p99 < fast", "`fast` is not a duration: write a number and a unit, such as `250ms` or `1.5s`"),
        ("p99 = 50ms", "`=` is not a comparison: use <, <=, >, >=, == or !="),
        ("rate === 5", "`===` is not a comparison: use <, <=, >, >=, == or !="),
        ("sucess > 0.9", "`sucess` is not a metric: did you mean `success`?"),
        ("respons.p99 < 1s", "`respons.p99` is not a metric: did you mean `response`?"),
        (
            "response.p < 1s",
            "`response.p` is not a metric: of response, use one of: min, mean, max, p50, p90, p95, p99, p99.9",
        ),
        ("response.meen < 1s", "`response.meen` is not a metric: of response, did you mean `mean`?"),
        (
            "response < 1s",
            "`response` is not a metric: it is a distribution: write a statistic such as `response.p99`",
        ),
        ("p0 < 1s", "`p0` is not a percentile: write one above 0 and at most 100, such as p99.9"),
        ("p101 < 1s", "`p101` is not a percentile: write one above 0 and at most 100, such as p99.9"),
        ("p9e1 < 1s", "`p9e1` is not a percentile: write one above 0 and at most 100, such as p99.9"),
        ("p99 == 5ms", "`p99` is a time, and measured times are never equal: compare it with <, <=, > or >="),
        ("success > 99%", "`success` is a number, and `99%` is not: write one such as 0.999 or 10"),
        ("failed < 5ms", "`failed` is a number, and `5ms` is not: write one such as 0.999 or 10"),
        ("failed < inf", "`failed` is a number, and `inf` is not: write one such as 0.999 or 10"),
    ] {
        assert_eq!(text.parse::<Bounds>().unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn violated_bound_states_the_value() {
    let good = run(1_000, 0);
    for (bounds, verdict) in [
        ("p50 < 600ms and p99 <= 1s and service.max < 999.5ms and send_lag.p99 < 2ms", "held"),
        ("success == 1 and failed == 0 and dropped == 0 and achieved == 1 and requests == 1000", "held"),
        ("min <= 1.001ms and in_flight_max == 3 and throughput > 400", "held"),
        ("p99 < 50ms and failed > 0", "p99 < 50ms: it was 990ms; failed > 0: it was 0"),
        ("throughput > 501", "throughput > 501: it was 500.250125"),
        ("mean > 499ms and mean < 501ms", "held"),
    ] {
        assert_eq!(judged(bounds, &good), verdict, "{bounds}");
    }
}

#[test]
fn error_status_is_a_failure_with_a_response_time() {
    let errors = run_of(100, 0, 503);
    for (bounds, verdict) in [
        ("failed == 0", "failed == 0: it was 100"),
        ("success >= 0.5", "success >= 0.5: it was 0"),
        ("failed == 100", "held"),
        ("p99 < 1s and max < 1s", "held"),
    ] {
        assert_eq!(judged(bounds, &errors), verdict, "{bounds}");
    }
    assert_eq!(judged("failed == 100", &run_of(100, 40, 503)), "held", "both kinds of failures count");
    assert_eq!(judged("failed == 0", &run_of(100, 0, 304)), "held");
}

#[test]
fn nines_without_a_point_are_decimals() {
    let thousand = run(1_000, 0);
    for (bounds, verdict) in [
        ("p999 < 999ms", "p999 < 999ms: it was 1s"),
        ("p99.9 < 999ms", "p99.9 < 999ms: it was 1s"),
        ("p995 < 996ms and p9999 > 999ms and p100 > 999ms", "held"),
    ] {
        assert_eq!(judged(bounds, &thousand), verdict, "{bounds}");
    }
}

#[test]
fn metrics_of_experiments_are_read() {
    let hundred = run(100, 10);
    for (bounds, verdict) in [
        ("bytes_in.total == 90 and bytes_in.mean == 0.9 and retries == 0", "held"),
        // 100 requests in 100 ms.
        ("achieved_rate == 1000 and in_flight.max == 3", "held"),
        ("hit_ratio > 0.5", "hit_ratio > 0.5: there was nothing to measure"),
    ] {
        assert_eq!(judged(bounds, &hundred), verdict, "{bounds}");
    }
}

/// The verdicts on claims, and the overall one.
fn verdicts(bounds: &str, run: &Summary, was_interrupted: bool) -> String {
    let all = bounds.parse::<Bounds>().unwrap().expectations(run, was_interrupted);
    let each: Vec<_> = all.iter().map(|expectation| expectation.verdict.to_string()).collect();
    format!("{}: {}", Verdict::worst(all.iter().map(|expectation| expectation.verdict)), each.join(" "))
}

#[test]
fn lateness_makes_claims_about_times_invalid_and_no_others() {
    let mut late = run(1_000, 10);
    late.generator.invalid_reasons = vec!["the generator was late".to_owned()];
    for (bounds, expected) in [
        ("p50 < 1s", "invalid: invalid"),
        ("p50 < 1ms", "invalid: invalid"),
        ("throughput > 1 and achieved > 0.5 and achieved_rate > 1", "invalid: invalid invalid invalid"),
        ("failed <= 10 and success >= 0.99", "supported: supported supported"),
        ("p50 < 1s and failed <= 10", "invalid: invalid supported"),
        ("p50 < 1s and failed == 0", "refuted: invalid refuted"),
    ] {
        assert_eq!(verdicts(bounds, &late, false), expected, "{bounds}");
    }
    let expectations = "p50 < 1s".parse::<Bounds>().unwrap().expectations(&late, false);
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
    for (bounds, expected) in [
        ("p50 < 1s", "supported: supported"),
        ("p50 < 10ms", "refuted: refuted"),
        ("p50 < 100ms", "invalid: invalid"),
        ("service.p50 < 100ms and send_lag.p50 < 1s", "supported: supported supported"),
        ("achieved_rate > 1", "invalid: invalid"),
    ] {
        assert_eq!(verdicts(bounds, &late, false), expected, "{bounds}");
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
    for (bounds, expected) in [
        ("p50 < 1ms", "refuted: refuted"),
        ("p50 < 1s", "invalid: invalid"),
        ("dropped == 0", "refuted: refuted"),
        ("success == 1", "invalid: invalid"),
        ("success > 1", "refuted: refuted"),
        ("achieved_rate > 1e9", "invalid: invalid"),
    ] {
        assert_eq!(verdicts(bounds, &full, false), expected, "{bounds}");
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
    let sides = |bounds: &str, run: &Summary| {
        let expectation = bounds.parse::<Bounds>().unwrap().expectations(run, false).remove(0);
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
    for (bounds, verdict) in [
        // The slowest of 990 responses is the 99th percentile of all 1,000 requests.
        ("p99 < 991ms and response.p50 < 502ms and service.p99 < 990ms and mean < 500ms", "held"),
        ("p99.1 < 1d", "p99.1 < 1d: too many requests had no response"),
        ("max < 1d", "max < 1d: too many requests had no response"),
        ("service.p99.9 < 1d", "service.p99.9 < 1d: too many requests had no response"),
        ("send_lag.max < 2ms", "held"),
        ("success >= 0.999 and failed <= 9", "success >= 0.999: it was 0.99; failed <= 9: it was 10"),
    ] {
        assert_eq!(judged(bounds, &ten), verdict.replace("1d:", "86400s:"), "{bounds}");
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
    for bounds in ["success == 1", "requests == 1000", "p50 < 1s"] {
        assert_eq!(verdicts(bounds, &part, false), "invalid: invalid", "{bounds}");
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

/// Runs a search against an oracle for each trial; returns it with the rates of its trials.
fn search(settings: SearchOptions, mut oracle: impl FnMut(Trial) -> BoundsVerdict) -> (Search, Vec<String>) {
    let mut search = Search::new(settings).unwrap();
    let mut rates = Vec::new();
    while let Some(trial) = search.next_trial() {
        assert_eq!(search.next_trial(), Some(trial));
        assert_eq!(search.result().status, SearchStatus::Running);
        rates.push(trial.rate.to_string());
        search.record(trial, oracle(trial)).unwrap();
        assert!(rates.len() <= search.trials_max(), "{settings:?}: {rates:?}");
    }
    (search, rates)
}

fn up_to(limit: &str) -> impl FnMut(Trial) -> BoundsVerdict {
    let limit = rate(limit);
    move |trial| {
        if trial.rate.is_above(limit) { BoundsVerdict::Violated(Vec::new()) } else { BoundsVerdict::Held }
    }
}

#[test]
fn search_doubles_then_halves() {
    let settings = SearchOptions { repeats: 1, ..SearchOptions::new(rate("100/s")) };
    let to = |text| SearchOptions { to: Some(rate(text)), ..settings };
    for (settings, limit, rates, text) in [
        (settings, "850/s", "100 200 400 800 1600 1200 1000 900 850 875", "holds at 850/s, not at 875/s"),
        (settings, "99/s", "100", "does not hold at 100/s, the lowest rate of the search"),
        (settings, "100/s", "100 200 150 125 112 106 103", "holds at 100/s, not at 103/s"),
        (to("500/s"), "1000/s", "100 200 400 500", "holds at 500/s, the highest rate of the search"),
        (to("500/s"), "450/s", "100 200 400 500 450 475 462", "holds at 450/s, not at 462/s"),
        (to("30000/m"), "1000/s", "100 200 400 500", "holds at 500/s, the highest rate of the search"),
        (to("6000/m"), "1000/s", "100", "holds at 100/s, the highest rate of the search"),
        (
            SearchOptions { precision: 0.5, ..settings },
            "850/s",
            "100 200 400 800 1600 1200",
            "holds at 800/s, not at 1200/s",
        ),
        // The search tries only whole rates.
        (
            SearchOptions::new(rate("3/s")),
            "7/s",
            "3 3 3 6 6 6 12 12 12 9 9 9 7 7 7 8 8 8",
            "holds at 7/s, not at 8/s",
        ),
    ] {
        let (search, found) = search(settings, up_to(limit));
        assert_eq!(found.join(" ").replace("/s", ""), rates, "{settings:?}");
        assert_eq!(search.result().to_string(), text);
        assert_eq!(search.result().unsteady, []);
    }
}

#[test]
fn majority_of_trials_decides() {
    let settings =
        |repeats| SearchOptions { repeats, to: Some(rate("200/s")), ..SearchOptions::new(rate("100/s")) };
    for (repeats, yes_of_200, holds) in [(3, 1, false), (3, 2, true), (4, 2, false), (4, 3, true)] {
        let (search, rates) = search(SearchOptions { precision: 0.9, ..settings(repeats) }, |trial| {
            let holds = trial.rate == rate("100/s") || trial.repeat < yes_of_200;
            if holds { BoundsVerdict::Held } else { BoundsVerdict::Violated(Vec::new()) }
        });
        assert_eq!(
            rates[..2 * repeats as usize].iter().filter(|rate| *rate == "200/s").count(),
            repeats as usize
        );
        let found = search.result();
        assert_eq!((found.highest_passed == Some(rate("200/s")), found.unsteady[0]), (holds, rate("200/s")));
    }
}

#[test]
fn invalid_trial_fails_and_keeps_its_reason() {
    let settings = SearchOptions { repeats: 2, ..SearchOptions::new(rate("100/s")) };
    let invalid = || BoundsVerdict::Invalid(vec!["the processor was busy".to_owned()]);
    let (search, _) =
        search(settings, |trial| if trial.rate == rate("100/s") { BoundsVerdict::Held } else { invalid() });
    let found = search.result();
    assert_eq!((found.highest_passed, found.lowest_failed), (Some(rate("100/s")), Some(rate("103/s"))));
    assert!(found.is_generator_limited());
    assert_eq!(found.failed_trials().cloned().collect::<Vec<_>>(), [invalid(), invalid()]);
    let (search, _) = self::search(settings, up_to("100/s"));
    assert!(!search.result().is_generator_limited());
}

#[test]
fn unexpected_trial_is_refused() {
    let mut search = Search::new(SearchOptions::new(rate("100/s"))).unwrap();
    assert_eq!(search.result().to_string(), "no rate has been tried");
    let other = Trial { rate: rate("100/s"), repeat: 1 };
    assert_eq!(search.record(other, BoundsVerdict::Held), Err(UnexpectedTrial(other)));
    assert_eq!(UnexpectedTrial(other).to_string(), "unexpected trial 2 at 100/s");
    assert!(search.result().trials.is_empty());
    let settings = SearchOptions { repeats: 1, to: Some(rate("100/s")), ..SearchOptions::new(rate("100/s")) };
    let mut over = Search::new(settings).unwrap();
    let trial = over.next_trial().unwrap();
    assert_eq!(over.record(trial, BoundsVerdict::Held), Ok(()));
    assert_eq!(
        (over.next_trial(), over.record(trial, BoundsVerdict::Held)),
        (None, Err(UnexpectedTrial(trial)))
    );
}

#[test]
fn invalid_search_options_are_refused() {
    let settings = SearchOptions::new(rate("100/s"));
    for (settings, message) in [
        (
            SearchOptions { to: Some(rate("99/s")), ..settings },
            "there is no rate from 100/s to 99/s: write the lower one first",
        ),
        (SearchOptions { repeats: 0, ..settings }, "a rate is tried 1 to 1000 times, not 0"),
        (
            SearchOptions { precision: 0.0, ..settings },
            "a precision is above 0 and below 1, such as 0.05 for 5 %, not 0",
        ),
        (
            SearchOptions { precision: f64::NAN, ..settings },
            "a precision is above 0 and below 1, such as 0.05 for 5 %, not NaN",
        ),
    ] {
        assert_eq!(Search::new(settings).unwrap_err().to_string(), message);
    }
}

fn settings() -> impl Strategy<Value = SearchOptions> {
    let per = prop::sample::select(vec!["s", "ms", "m", "7h"]);
    let to = prop::option::of((1..1_000_000_000_u32, prop::sample::select(vec!["s", "m"])));
    (1..1_000_000_u32, per, to, 1..5_u32, 0.0001..0.9).prop_map(|(from, per, to, repeats, precision)| {
        let from = rate(&format!("{from}/{per}"));
        let to = to.map(|(to, per)| rate(&format!("{to}/{per}"))).filter(|to| !from.is_above(*to));
        SearchOptions { from, to, repeats, precision }
    })
}

proptest! {
    #[test]
    fn sharp_limit_is_found_within_the_precision(settings in settings(), limit in 1..u32::MAX) {
        let limit = Rate::new(limit, Duration::from_mins(1)).unwrap();
        let (search, _) = search(settings, |trial| {
            if trial.rate.is_above(limit) { BoundsVerdict::Violated(Vec::new()) } else { BoundsVerdict::Held }
        });
        let found = search.result();
        prop_assert!(found.highest_passed.is_none_or(|held| !held.is_above(limit)));
        prop_assert!(found.lowest_failed.is_none_or(|broke| broke.is_above(limit)));
        prop_assert!(found.unsteady.is_empty());
        match found.status {
            SearchStatus::Running => prop_assert!(false, "it is over"),
            SearchStatus::LowestFailed => prop_assert_eq!((found.highest_passed, found.lowest_failed), (None, Some(settings.from))),
            SearchStatus::HighestPassed => {
                prop_assert!(found.lowest_failed.is_none());
                let held = found.highest_passed.unwrap();
                prop_assert!(settings.to.is_none_or(|to| !held.is_above(to)));
            }
            SearchStatus::Converged => {
                let (held, broke) = (found.highest_passed.unwrap().requests(), found.lowest_failed.unwrap().requests());
                let width = f64::from(broke - held);
                prop_assert!(width <= (settings.precision * f64::from(held)).max(1.0), "{held} {broke}");
            }
        }
    }

    #[test]
    fn search_with_noise_ends_and_stays_ordered(settings in settings(), seed: u64, middle in 1.0..1e7_f64) {
        let mut draws = Seed(seed).stream("oracle");
        let even = Uniform::new(0.0, 1.0).unwrap();
        let (search, _) = search(settings, |trial| {
            // Far below the limit the bounds nearly always hold, far above it hardly ever.
            let chance = 1.0 / (1.0 + (trial.rate.per_second() / middle).powi(2));
            match even.sample(&mut draws) {
                luck if luck < chance => BoundsVerdict::Held,
                luck if luck < 0.9 => BoundsVerdict::Violated(Vec::new()),
                _ => BoundsVerdict::Invalid(Vec::new()),
            }
        });
        let found = search.result();
        prop_assert!(found.trials.len() <= search.trials_max());
        prop_assert_eq!(found.trials.len() % settings.repeats as usize, 0);
        let mut below = None;
        let mut above = None;
        for trials in found.trials.chunks(settings.repeats as usize) {
            let rate = trials[0].0.rate;
            for (repeat, (trial, _)) in trials.iter().enumerate() {
                prop_assert_eq!((trial.rate, trial.repeat as usize), (rate, repeat));
            }
            // Each trial lies between the highest rate that held and the lowest that failed.
            prop_assert!(below.is_none_or(|below| rate.is_above(below)));
            prop_assert!(above.is_none_or(|above: Rate| above.is_above(rate)));
            let yes = trials.iter().filter(|(_, held)| *held == BoundsVerdict::Held).count();
            *(if 2 * yes > trials.len() { &mut below } else { &mut above }) = Some(rate);
            prop_assert_eq!(found.unsteady.contains(&rate), yes > 0 && yes < trials.len());
        }
        prop_assert_eq!((found.highest_passed, found.lowest_failed), (below, above));
    }

    #[test]
    fn arbitrary_text_does_not_panic(text in "\\PC{0,30}", near in "(p[0-9.]{0,4}|success|response.[a-z0-9.]{0,4}) {0,2}[<>=!]{0,3} {0,2}[0-9a-z.]{0,9}") {
        let _ = text.parse::<Bounds>();
        if let Ok(bounds) = near.parse::<Bounds>() {
            prop_assert_eq!(bounds.to_string().parse::<Bounds>(), Ok(bounds.clone()));
            let _ = bounds.judge(&run(3, 1)).to_string();
        }
    }
}
