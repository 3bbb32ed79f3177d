//! Bounds on made-up runs, and searches against oracles.

use std::time::SystemTime;

use proptest::prelude::*;
use rand_distr::{Distribution, Uniform};
use stockade_model::{seed::Seed, time::Time};

use super::*;
use crate::{
    sample::{Answer, Class, Sample},
    summary::{Generator, Summary},
    tally::Tally,
};

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

/// A run in which request `n`, due at `n` ms, was sent 1 ms later and took `n` ms more; the last `failed` of them got
/// no answer.
fn run(requests: u64, failed: u64) -> Summary {
    let mut measured = Tally::default();
    for number in 0..requests {
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let answer = Answer { status: 200, bytes: 1, wire_bytes: 1, outcome: None };
        measured.record(&Sample {
            number,
            scheduled: at(number),
            started: at(number + 1),
            finished: at(2 * number + 1),
            bytes_out: 0,
            ended: if number < requests - failed { Ok(answer) } else { Err(Class::Timeout.into()) },
        });
    }
    Summary {
        id: String::new(),
        schedule: String::new(),
        clock_zero: SystemTime::UNIX_EPOCH,
        began: Time::ZERO,
        ended: Time::ZERO + Duration::from_millis(requests),
        measured,
        warmup: None,
        seconds: Vec::new(),
        dropped: 0,
        sent_after_end: 0,
        in_flight_at_end: 0,
        in_flight_max: 3,
        connections: 1,
        generator: Generator::default(),
    }
}

fn judged(bounds: &str, run: &Summary) -> String {
    bounds.parse::<Bounds>().unwrap().judge(run).to_string()
}

#[test]
fn bounds_are_read_and_written() {
    for (text, written) in [
        ("p99<50ms", "p99 < 50ms"),
        ("response.p99.9 <= 1s", "response.p99.9 <= 1s"),
        (" service.p50  < 0.5ms ", "service.p50 < 500us"),
        ("send_lag.max > 1.000000001s", "send_lag.max > 1.000000001s"),
        ("mean > 0", "mean > 0"),
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
fn what_is_no_bound_is_told_what_would_be() {
    let malformed =
        "is no bound: write a metric, a comparison and a value, such as `p99 < 50ms` or `success >= 0.999`";
    for (text, message) in [
        ("", &*format!("`` {malformed}")),
        ("p99", &format!("`p99` {malformed}")),
        ("p99 <", &format!("`p99 <` {malformed}")),
        ("< 5ms", &format!("`< 5ms` {malformed}")),
        ("p99 < 5ms and", &format!("`` {malformed}")),
        ("p99 < 50", "`50` has no unit: write `50ms` or `50s`"),
        ("p99 < fast", "`fast` is no duration: write a number and a unit, such as `250ms` or `1.5s`"),
        ("p99 = 50ms", "`=` is no comparison: use <, <=, >, >=, == or !="),
        ("rate === 5", "`===` is no comparison: use <, <=, >, >=, == or !="),
        ("sucess > 0.9", "`sucess` is no metric: did you mean `success`?"),
        ("respons.p99 < 1s", "`respons.p99` is no metric: did you mean `response`?"),
        (
            "response.p < 1s",
            "`response.p` is no metric: of response, use one of: min, mean, max, p50, p90, p95, p99, p99.9",
        ),
        ("response.meen < 1s", "`response.meen` is no metric: of response, did you mean `mean`?"),
        ("response < 1s", "`response` is no metric: it has many, such as `response.p99`"),
        ("p0 < 1s", "`p0` is no percentile: they are above 0 and at most 100, such as p99.9"),
        ("p999 < 1s", "`p999` is no percentile: they are above 0 and at most 100, such as p99.9"),
        ("p9e1 < 1s", "`p9e1` is no percentile: they are above 0 and at most 100, such as p99.9"),
        ("p99 == 5ms", "`p99` is a time, and no time is quite another: compare it with <, <=, > or >="),
        ("success > 99%", "`success` is a plain number, and `99%` is none: write one such as 0.999 or 10"),
        ("failed < 5ms", "`failed` is a plain number, and `5ms` is none: write one such as 0.999 or 10"),
        ("failed < inf", "`failed` is a plain number, and `inf` is none: write one such as 0.999 or 10"),
    ] {
        assert_eq!(text.parse::<Bounds>().unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn bounds_hold_of_a_run_or_say_what_it_had() {
    let good = run(1_000, 0);
    for (bounds, said) in [
        ("p50 < 600ms and p99 <= 1s and service.max < 999.5ms and send_lag.p99 < 2ms", "held"),
        ("success == 1 and failed == 0 and dropped == 0 and achieved == 1 and requests == 1000", "held"),
        ("min <= 1.001ms and in_flight_max == 3 and throughput > 400", "held"),
        ("p99 < 50ms and failed > 0", "p99 < 50ms: it was 990ms; failed > 0: it was 0"),
        ("throughput > 501", "throughput > 501: it was 500.250125"),
        ("mean > 499ms and mean < 501ms", "held"),
    ] {
        assert_eq!(judged(bounds, &good), said, "{bounds}");
    }
}

#[test]
fn who_has_no_answer_is_slower_than_everybody() {
    let ten = run(1_000, 10);
    for (bounds, said) in [
        // The slowest of 990 who were answered is the 99th percentile of all 1,000.
        ("p99 < 991ms and response.p50 < 502ms and service.p99 < 990ms and mean < 500ms", "held"),
        ("p99.1 < 1d", "p99.1 < 1d: too many had no answer"),
        ("max < 1d", "max < 1d: too many had no answer"),
        ("service.p99.9 < 1d", "service.p99.9 < 1d: too many had no answer"),
        ("send_lag.max < 2ms", "held"),
        ("success >= 0.999 and failed <= 9", "success >= 0.999: it was 0.99; failed <= 9: it was 10"),
    ] {
        assert_eq!(judged(bounds, &ten), said.replace("1d:", "86400s:"), "{bounds}");
    }
    // Being refused at once is no capacity.
    assert_eq!(judged("p50 < 1s", &run(10, 10)), "p50 < 1s: too many had no answer");
    let nothing = run(0, 0);
    for bound in ["p99 < 1s", "max < 1s", "mean < 1s", "success >= 0", "achieved >= 0", "throughput >= 0"] {
        assert_eq!(judged(bound, &nothing), format!("{bound}: there was nothing to measure"));
    }
}

#[test]
fn what_is_late_dropped_or_invalid_is_not_achieved() {
    let mut late = run(900, 0);
    (late.dropped, late.in_flight_at_end) = (100, 50);
    assert_eq!(judged("achieved >= 0.99", &late), "achieved >= 0.99: it was 0.85");
    late.generator.reasons = vec!["the processor was busy".to_owned(), "ports ran out".to_owned()];
    assert_eq!(judged("requests > 0", &late), "invalid: the processor was busy; ports ran out");
}

/// What a search asks for, and what it finds, against somebody who says whether a trial held.
fn search(settings: Settings, mut oracle: impl FnMut(Trial) -> Held) -> (Search, Vec<String>) {
    let mut search = Search::new(settings).unwrap();
    let mut asked = Vec::new();
    while let Some(trial) = search.next() {
        assert_eq!(search.next(), Some(trial));
        assert_eq!(search.found().end, End::Open);
        asked.push(trial.rate.to_string());
        search.tell(trial, oracle(trial)).unwrap();
        assert!(asked.len() <= search.most_trials(), "{settings:?}: {asked:?}");
    }
    (search, asked)
}

fn up_to(limit: &str) -> impl FnMut(Trial) -> Held {
    let limit = rate(limit);
    move |trial| if trial.rate.is_above(limit) { Held::No(Vec::new()) } else { Held::Yes }
}

#[test]
fn a_search_doubles_and_then_halves() {
    let settings = Settings { repeats: 1, ..Settings::new(rate("100/s")) };
    let to = |text| Settings { to: Some(rate(text)), ..settings };
    for (settings, limit, asked, said) in [
        (settings, "850/s", "100 200 400 800 1600 1200 1000 900 850 875", "holds at 850/s, not at 875/s"),
        (settings, "99/s", "100", "does not hold at 100/s, the lowest rate that was to be tried"),
        (settings, "100/s", "100 200 150 125 112 106 103", "holds at 100/s, not at 103/s"),
        (to("500/s"), "1000/s", "100 200 400 500", "holds at 500/s, the highest rate that was to be tried"),
        (to("500/s"), "450/s", "100 200 400 500 450 475 462", "holds at 450/s, not at 462/s"),
        (to("30000/m"), "1000/s", "100 200 400 500", "holds at 500/s, the highest rate that was to be tried"),
        (to("6000/m"), "1000/s", "100", "holds at 100/s, the highest rate that was to be tried"),
        (
            Settings { precision: 0.5, ..settings },
            "850/s",
            "100 200 400 800 1600 1200",
            "holds at 800/s, not at 1200/s",
        ),
        // No rate is between two whole numbers.
        (
            Settings::new(rate("3/s")),
            "7/s",
            "3 3 3 6 6 6 12 12 12 9 9 9 7 7 7 8 8 8",
            "holds at 7/s, not at 8/s",
        ),
    ] {
        let (search, found) = search(settings, up_to(limit));
        assert_eq!(found.join(" ").replace("/s", ""), asked, "{settings:?}");
        assert_eq!(search.found().to_string(), said);
        assert_eq!(search.found().unsteady, []);
    }
}

#[test]
fn the_majority_of_its_trials_decides_about_a_rate() {
    let settings = |repeats| Settings { repeats, to: Some(rate("200/s")), ..Settings::new(rate("100/s")) };
    for (repeats, yes_of_200, holds) in [(3, 1, false), (3, 2, true), (4, 2, false), (4, 3, true)] {
        let (search, asked) = search(Settings { precision: 0.9, ..settings(repeats) }, |trial| {
            let holds = trial.rate == rate("100/s") || trial.repeat < yes_of_200;
            if holds { Held::Yes } else { Held::No(Vec::new()) }
        });
        assert_eq!(
            asked[..2 * repeats as usize].iter().filter(|rate| *rate == "200/s").count(),
            repeats as usize
        );
        let found = search.found();
        assert_eq!((found.held == Some(rate("200/s")), found.unsteady[0]), (holds, rate("200/s")));
    }
}

#[test]
fn an_invalid_trial_does_not_hold_and_its_reason_is_kept() {
    let settings = Settings { repeats: 2, ..Settings::new(rate("100/s")) };
    let invalid = || Held::Invalid(vec!["the processor was busy".to_owned()]);
    let (search, _) =
        search(settings, |trial| if trial.rate == rate("100/s") { Held::Yes } else { invalid() });
    let found = search.found();
    assert_eq!((found.held, found.broke), (Some(rate("100/s")), Some(rate("103/s"))));
    assert!(found.is_of_the_generator());
    assert_eq!(found.against().cloned().collect::<Vec<_>>(), [invalid(), invalid()]);
    let (search, _) = self::search(settings, up_to("100/s"));
    assert!(!search.found().is_of_the_generator());
}

#[test]
fn only_what_was_asked_for_is_told() {
    let mut search = Search::new(Settings::new(rate("100/s"))).unwrap();
    assert_eq!(search.found().to_string(), "nothing is known yet");
    let other = Trial { rate: rate("100/s"), repeat: 1 };
    assert_eq!(search.tell(other, Held::Yes), Err(NotAsked(other)));
    assert_eq!(NotAsked(other).to_string(), "nobody asked for trial 2 at 100/s");
    assert!(search.found().trials.is_empty());
    let settings = Settings { repeats: 1, to: Some(rate("100/s")), ..Settings::new(rate("100/s")) };
    let mut over = Search::new(settings).unwrap();
    let trial = over.next().unwrap();
    assert_eq!(over.tell(trial, Held::Yes), Ok(()));
    assert_eq!((over.next(), over.tell(trial, Held::Yes)), (None, Err(NotAsked(trial))));
}

#[test]
fn what_cannot_be_searched_is_refused() {
    let settings = Settings::new(rate("100/s"));
    for (settings, message) in [
        (
            Settings { to: Some(rate("99/s")), ..settings },
            "there is no rate from 100/s to 99/s: write the lower one first",
        ),
        (Settings { repeats: 0, ..settings }, "a rate is tried 1 to 1000 times, not 0"),
        (
            Settings { precision: 0.0, ..settings },
            "a precision is above 0 and below 1, such as 0.05 for 5 %, not 0",
        ),
        (
            Settings { precision: f64::NAN, ..settings },
            "a precision is above 0 and below 1, such as 0.05 for 5 %, not NaN",
        ),
    ] {
        assert_eq!(Search::new(settings).unwrap_err().to_string(), message);
    }
}

fn settings() -> impl Strategy<Value = Settings> {
    let per = prop::sample::select(vec!["s", "ms", "m", "7h"]);
    let to = prop::option::of((1..1_000_000_000_u32, prop::sample::select(vec!["s", "m"])));
    (1..1_000_000_u32, per, to, 1..5_u32, 0.0001..0.9).prop_map(|(from, per, to, repeats, precision)| {
        let from = rate(&format!("{from}/{per}"));
        let to = to.map(|(to, per)| rate(&format!("{to}/{per}"))).filter(|to| !from.is_above(*to));
        Settings { from, to, repeats, precision }
    })
}

proptest! {
    #[test]
    fn a_step_is_found_within_the_precision(settings in settings(), limit in 1..u32::MAX) {
        let limit = Rate::new(limit, Duration::from_mins(1)).unwrap();
        let (search, _) = search(settings, |trial| {
            if trial.rate.is_above(limit) { Held::No(Vec::new()) } else { Held::Yes }
        });
        let found = search.found();
        prop_assert!(found.held.is_none_or(|held| !held.is_above(limit)));
        prop_assert!(found.broke.is_none_or(|broke| broke.is_above(limit)));
        prop_assert!(found.unsteady.is_empty());
        match found.end {
            End::Open => prop_assert!(false, "it is over"),
            End::Lower => prop_assert_eq!((found.held, found.broke), (None, Some(settings.from))),
            End::Upper => {
                prop_assert!(found.broke.is_none());
                let held = found.held.unwrap();
                prop_assert!(settings.to.is_none_or(|to| !held.is_above(to)));
            }
            End::Between => {
                let (held, broke) = (found.held.unwrap().requests(), found.broke.unwrap().requests());
                let width = f64::from(broke - held);
                prop_assert!(width <= (settings.precision * f64::from(held)).max(1.0), "{held} {broke}");
            }
        }
    }

    #[test]
    fn whatever_a_noisy_oracle_says_the_search_ends_in_order(settings in settings(), seed: u64, middle in 1.0..1e7_f64) {
        let mut draws = Seed(seed).stream("oracle");
        let even = Uniform::new(0.0, 1.0).unwrap();
        let (search, _) = search(settings, |trial| {
            // A long way below it nearly always holds, a long way above hardly ever.
            let chance = 1.0 / (1.0 + (trial.rate.per_second() / middle).powi(2));
            match even.sample(&mut draws) {
                luck if luck < chance => Held::Yes,
                luck if luck < 0.9 => Held::No(Vec::new()),
                _ => Held::Invalid(Vec::new()),
            }
        });
        let found = search.found();
        prop_assert!(found.trials.len() <= search.most_trials());
        prop_assert_eq!(found.trials.len() % settings.repeats as usize, 0);
        let mut below = None;
        let mut above = None;
        for trials in found.trials.chunks(settings.repeats as usize) {
            let rate = trials[0].0.rate;
            for (repeat, (trial, _)) in trials.iter().enumerate() {
                prop_assert_eq!((trial.rate, trial.repeat as usize), (rate, repeat));
            }
            // No lower rate than one that held, and no higher than one that did not.
            prop_assert!(below.is_none_or(|below| rate.is_above(below)));
            prop_assert!(above.is_none_or(|above: Rate| above.is_above(rate)));
            let yes = trials.iter().filter(|(_, held)| *held == Held::Yes).count();
            *(if 2 * yes > trials.len() { &mut below } else { &mut above }) = Some(rate);
            prop_assert_eq!(found.unsteady.contains(&rate), yes > 0 && yes < trials.len());
        }
        prop_assert_eq!((found.held, found.broke), (below, above));
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,30}", near in "(p[0-9.]{0,4}|success|response.[a-z0-9.]{0,4}) {0,2}[<>=!]{0,3} {0,2}[0-9a-z.]{0,9}") {
        let _ = text.parse::<Bounds>();
        if let Ok(bounds) = near.parse::<Bounds>() {
            prop_assert_eq!(bounds.to_string().parse::<Bounds>(), Ok(bounds.clone()));
            let _ = bounds.judge(&run(3, 1)).to_string();
        }
    }
}
