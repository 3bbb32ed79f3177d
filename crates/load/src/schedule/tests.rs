//! Schedules, looked at as numbers: no clock runs.

use proptest::prelude::*;

use super::*;

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

fn one(text: &str, lasts: Duration, arrivals: Arrivals) -> Schedule {
    Schedule::new(vec![Step { rate: rate(text), lasts }], arrivals)
}

#[test]
fn rates_are_read_and_written() {
    for (text, written) in [
        ("425/s", "425/s"),
        ("1_000 / m", "1000/m"),
        ("5/100ms", "5/100ms"),
        ("60/60s", "60/m"),
        ("1/1500ms", "1/1500ms"),
        ("1/ns", "1/ns"),
        ("3/2d", "3/2d"),
    ] {
        assert_eq!(rate(text).to_string(), written, "{text}");
    }
}

#[test]
fn what_is_no_rate_is_told_what_would_be() {
    let malformed = "is no rate: write requests per time, such as `425/s`, `1000/m` or `5/100ms`";
    let range = "is no rate of a load: write from 1 request on, and at most one a nanosecond";
    for (text, message) in [
        ("425", "`425` does not say per what time: write `425/s` or `425/m`"),
        ("4.25", "`4.25` does not say per what time: write `4.25/s` or `4.25/m`"),
        ("425/5", "`5` has no unit: write `5ms` or `5s`"),
        ("425/second", "`second` is no unit of time: use ns, us, ms, s, m, h or d"),
        ("fast", &format!("`fast` {malformed}")),
        ("-1/s", &format!("`-1/s` {malformed}")),
        ("0.5/s", &format!("`0.5/s` {malformed}")),
        ("0/s", &format!("`0/s` {range}")),
        ("5/0", &format!("`5/0` {range}")),
        ("2/ns", &format!("`2/ns` {range}")),
        ("99999999999/s", &format!("`99999999999/s` {range}")),
    ] {
        assert_eq!(text.parse::<Rate>().unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn a_schedule_says_what_it_is() {
    let steps = |text: &[(&str, u64)]| {
        text.iter().map(|(text, secs)| Step { rate: rate(text), lasts: Duration::from_secs(*secs) }).collect()
    };
    let schedule = Schedule::new(steps(&[("100/s", 10), ("1000/s", 5)]), Arrivals::Poisson);
    assert_eq!(schedule.to_string(), "10s at 100/s, 5s at 1000/s (poisson)");
    assert_eq!((schedule.requests(), schedule.lasts()), (6_000, Duration::from_secs(15)));
    assert_eq!(schedule.stretched(0.1).to_string(), "1s at 100/s, 500ms at 1000/s (poisson)");
    assert_eq!(schedule.stretched(1e-30).lasts(), Duration::from_nanos(2));
}

#[test]
fn constant_arrivals_do_not_drift_in_a_day() {
    let schedule = one("7/s", Duration::from_hours(24), Arrivals::Constant);
    let last = schedule.arrivals(Seed(1)).last().unwrap();
    assert_eq!(last, Duration::from_nanos((7 * 86_400 - 1) * 1_000_000_000 / 7));
}

/// Counts of 10,000 windows of 100 ms that expect five requests each.
fn counts(seed: u64) -> Vec<f64> {
    let schedule = one("50/s", Duration::from_secs(1_000), Arrivals::Poisson);
    let mut counts = vec![0.0; 10_000];
    for due in schedule.arrivals(Seed(seed)) {
        counts[usize::try_from(due.as_millis() / 100).unwrap()] += 1.0;
    }
    counts
}

#[test]
fn poisson_counts_have_their_mean_their_dispersion_and_their_shape() {
    for seed in 1..=5 {
        let counts = counts(seed);
        let n = counts.len() as f64;
        let mean = counts.iter().sum::<f64>() / n;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / (n - 1.0);
        // Four standard errors: sqrt(5 / n) of the mean, sqrt(2 / n) of the index of dispersion.
        assert!((mean - 5.0).abs() < 4.0 * (5.0 / n).sqrt(), "seed {seed}: mean {mean}");
        assert!((variance / mean - 1.0).abs() < 4.0 * (2.0 / n).sqrt(), "seed {seed}: {}", variance / mean);

        // Chi-squared over counts of 0 to 11 and more, 12 degrees of freedom: 32.9 is exceeded by chance
        // once in a thousand seeds.
        let mut probability = (-5.0_f64).exp();
        let mut rest = 1.0;
        let mut chi_squared = 0.0;
        for k in 0..=12_u32 {
            let share = if k == 12 { rest } else { probability };
            let is_in =
                |count: &&f64| if k == 12 { **count >= 12.0 } else { (**count - f64::from(k)).abs() < 0.5 };
            let seen = counts.iter().filter(is_in).count() as f64;
            chi_squared += (seen - n * share).powi(2) / (n * share);
            rest -= probability;
            probability *= 5.0 / f64::from(k + 1);
        }
        assert!(chi_squared < 32.9, "seed {seed}: {chi_squared}");
    }
}

proptest! {
    #[test]
    fn evenly_spread_requests_are_where_they_should_be(
        steps in prop::collection::vec((1..5_000_u32, 1..2_000_u64, 0..3_000_u64), 1..4),
    ) {
        let steps: Vec<_> = steps
            .into_iter()
            .map(|(requests, per, lasts)| Step {
                rate: rate(&format!("{requests}/{per}ms")),
                lasts: Duration::from_millis(lasts),
            })
            .collect();
        let schedule = Schedule::new(steps.clone(), Arrivals::Constant);
        let mut due = schedule.arrivals(Seed(1)).peekable();
        let (mut began, mut all) = (Duration::ZERO, 0);
        for Step { rate, lasts } in steps {
            let end = began + lasts;
            let mut n = 0;
            while let Some(due) = due.next_if(|due| *due < end) {
                prop_assert_eq!(due, began + rate.due(n));
                n += 1;
            }
            prop_assert_eq!(n, rate.within(lasts));
            let expected = rate.per_second() * lasts.as_secs_f64();
            prop_assert!((n as f64 - expected).abs() <= 1.0, "{} of {}", n, expected);
            (began, all) = (end, all + n);
        }
        prop_assert_eq!(due.next(), None);
        prop_assert_eq!(all, schedule.requests());
    }

    #[test]
    fn poisson_arrivals_ascend_end_in_time_and_repeat_themselves(
        seed: u64,
        steps in prop::collection::vec((1..500_u32, 1..3_000_u64), 1..4),
    ) {
        let steps: Vec<_> = steps
            .into_iter()
            .map(|(requests, lasts)| Step {
                rate: rate(&format!("{requests}/s")),
                lasts: Duration::from_millis(lasts),
            })
            .collect();
        let schedule = Schedule::new(steps, Arrivals::Poisson);
        let due: Vec<_> = schedule.arrivals(Seed(seed)).collect();
        prop_assert!(due.is_sorted());
        prop_assert!(due.last().is_none_or(|last| *last < schedule.lasts()));
        prop_assert_eq!(&due, &schedule.arrivals(Seed(seed)).collect::<Vec<_>>());
        // Six standard deviations: a proptest draws many seeds.
        let expected = schedule.requests() as f64;
        prop_assert!((due.len() as f64 - expected).abs() < 6.0 * expected.sqrt() + 6.0, "{}", due.len());
    }

    #[test]
    fn no_text_makes_it_panic(text in ".{0,12}", digits in "[0-9_]{1,20}/[0-9]{0,12}[a-z]{0,2}") {
        let _ = (text.parse::<Rate>(), digits.parse::<Rate>().map(|rate| rate.to_string()));
    }
}
