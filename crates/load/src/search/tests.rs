//! Searches whose trials are decided by an oracle: a function of the rate.

use proptest::prelude::*;
use rand_distr::{Distribution, Uniform};
use stockade_model::seed::Seed;

use super::*;

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

/// Runs a search against an oracle for each trial; returns it with the rates of its trials.
fn search(settings: SearchOptions, mut oracle: impl FnMut(Trial) -> TrialVerdict) -> (Search, Vec<String>) {
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

fn up_to(limit: &str) -> impl FnMut(Trial) -> TrialVerdict {
    let limit = rate(limit);
    move |trial| {
        if trial.rate.is_above(limit) { TrialVerdict::Failed(Vec::new()) } else { TrialVerdict::Held }
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
            if holds { TrialVerdict::Held } else { TrialVerdict::Failed(Vec::new()) }
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
    let invalid = || TrialVerdict::Invalid(vec!["the processor was busy".to_owned()]);
    let (search, _) =
        search(settings, |trial| if trial.rate == rate("100/s") { TrialVerdict::Held } else { invalid() });
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
    assert_eq!(search.record(other, TrialVerdict::Held), Err(UnexpectedTrial(other)));
    assert_eq!(UnexpectedTrial(other).to_string(), "unexpected trial 2 at 100/s");
    assert!(search.result().trials.is_empty());
    let settings = SearchOptions { repeats: 1, to: Some(rate("100/s")), ..SearchOptions::new(rate("100/s")) };
    let mut over = Search::new(settings).unwrap();
    let trial = over.next_trial().unwrap();
    assert_eq!(over.record(trial, TrialVerdict::Held), Ok(()));
    assert_eq!(
        (over.next_trial(), over.record(trial, TrialVerdict::Held)),
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
            if trial.rate.is_above(limit) { TrialVerdict::Failed(Vec::new()) } else { TrialVerdict::Held }
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
            // Far below the limit the claims nearly always hold, far above it hardly ever.
            let chance = 1.0 / (1.0 + (trial.rate.per_second() / middle).powi(2));
            match even.sample(&mut draws) {
                luck if luck < chance => TrialVerdict::Held,
                luck if luck < 0.9 => TrialVerdict::Failed(Vec::new()),
                _ => TrialVerdict::Invalid(Vec::new()),
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
            let yes = trials.iter().filter(|(_, held)| *held == TrialVerdict::Held).count();
            *(if 2 * yes > trials.len() { &mut below } else { &mut above }) = Some(rate);
            prop_assert_eq!(found.unsteady.contains(&rate), yes > 0 && yes < trials.len());
        }
        prop_assert_eq!((found.highest_passed, found.lowest_failed), (below, above));
    }
}
