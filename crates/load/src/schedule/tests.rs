//! Schedules as numbers, without a clock.

use proptest::prelude::*;
use rand_distr::{Distribution, Exp1};

use super::*;

mod shapes;

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

fn one(text: &str, lasts: Duration, arrivals: ArrivalProcess) -> Schedule {
    Schedule::new(vec![Step::steady(rate(text), lasts).with_arrivals(arrivals)])
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A sine around 500/s with amplitude 200/s, three periods a minute.
fn wave(start: SineStart, lasts: u64) -> Step {
    Step::sine(Sine::new(rate("500/s"), rate("200/s"), secs(20), start).unwrap(), secs(lasts))
}

#[test]
fn rates_round_trip_as_text() {
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
fn invalid_rate_has_a_remedy() {
    let malformed = "is not a rate: write requests per period, such as `425/s`, `1000/m` or `5/100ms`";
    let range = "is out of range: write at least 1 request, and at most one a nanosecond";
    for (text, message) in [
        ("425", "`425` has no period: write `425/s` or `425/m`"),
        ("4.25", "`4.25` has no period: write `4.25/s` or `4.25/m`"),
        ("425/5", "`5` has no unit: write `5ms` or `5s`"),
        ("425/second", "`second` is not a unit of time: use ns, us, ms, s, m, h or d"),
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
fn zero_rates_and_nearest_rates() {
    for (text, level) in [("0/s", RateOrZero::ZERO), ("0/5m", RateOrZero::ZERO), ("7/m", rate("7/m").into())]
    {
        assert_eq!(text.parse(), Ok(level), "{text}");
    }
    for text in ["0", "0/0", "0/0s", "-0/s", "0/fortnight"] {
        assert!(text.parse::<RateOrZero>().is_err(), "{text}");
    }
    for (per_second, text) in
        [(700.0, "700/s"), (0.5, "1/2s"), (1e9, "1000000000/s"), (1.0 / 3.0, "333333333/1000000000s")]
    {
        assert_eq!(Rate::nearest(per_second).map(|rate| rate.to_string()).as_deref(), Some(text));
    }
    for none in [0.0, -1.0, 1e-20, 2e9, 1e300, f64::INFINITY, f64::NAN] {
        assert_eq!(Rate::nearest(none), None, "{none}");
    }
}

#[test]
fn schedule_is_shown_as_text() {
    let both = |arrivals| {
        let steps = [("100/s", 10), ("1000/s", 5)];
        steps.map(|(text, lasts)| Step::steady(rate(text), secs(lasts)).with_arrivals(arrivals)).to_vec()
    };
    let schedule = Schedule::new(both(ArrivalProcess::Poisson));
    assert_eq!(schedule.to_string(), "10s at 100/s, 5s at 1000/s (poisson)");
    assert_eq!((schedule.requests(), schedule.duration()), (6_000, secs(15)));
    assert_eq!(schedule.stretched(0.1).to_string(), "1s at 100/s, 500ms at 1000/s (poisson)");
    assert_eq!(schedule.stretched(1e-30).duration(), Duration::from_nanos(2));

    let up = Step::ramp(RateOrZero::ZERO, rate("1000/s"), secs(30));
    for (steps, requests, lasts, peak, words) in [
        (vec![up.clone()], 15_000, 30, 1_000.0, "30s from 0/s to 1000/s"),
        (vec![Step::ramp(rate("7/s"), rate("7/s"), secs(3))], 21, 3, 7.0, "3s at 7/s"),
        (vec![Step::ramp(RateOrZero::ZERO, RateOrZero::ZERO, secs(3))], 0, 3, 0.0, "3s pause"),
        (vec![wave(SineStart::MeanUp, 60)], 30_000, 60, 700.0, "60s around 500/s (+-200/s every 20s)"),
        (
            vec![
                wave(SineStart::Trough, 60).with_arrivals(ArrivalProcess::Poisson),
                Step::pause(secs(5)),
                Step::burst(1_000),
            ],
            31_000,
            65,
            1_000.0,
            "60s around 500/s (+-200/s every 20s, from its trough), 5s pause, 1000 at once (poisson)",
        ),
        (
            vec![up.with_arrivals(ArrivalProcess::Poisson), Step::steady(rate("1/s"), secs(1))],
            15_001,
            31,
            1_000.0,
            "30s from 0/s to 1000/s (poisson), 1s at 1/s",
        ),
        (
            vec![Step::replay([300, 100, 100, 1_100, 2_000].map(Duration::from_millis).to_vec())],
            5,
            2,
            3.0,
            "5 replayed in 2s",
        ),
        (Vec::new(), 0, 0, 0.0, ""),
    ] {
        let schedule = Schedule::new(steps);
        let numbers = (schedule.requests(), schedule.duration());
        assert_eq!((schedule.to_string().as_str(), numbers), (words, (requests, secs(lasts))));
        assert!((schedule.peak_per_second() - peak).abs() < 1e-9, "{words}: {}", schedule.peak_per_second());
    }
}

#[test]
fn stretched_schedule_keeps_its_shape() {
    let log = Step::replay([0, 100, 300].map(Duration::from_millis).to_vec());
    let steps = vec![
        Step::ramp(rate("1/s"), RateOrZero::ZERO, secs(2)),
        wave(SineStart::Peak, 40),
        Step::burst(3),
        log,
    ];
    let schedule = Schedule::new(steps);
    let longer = schedule.stretched(10.0);
    assert_eq!(
        longer.to_string(),
        "20s from 1/s to 0/s, 6m40s around 500/s (+-200/s every 3m20s, from its peak), 3 at once, 3 replayed in 3s"
    );
    assert_eq!(longer.requests(), 10 + 200_000 + 3 + 3);
    assert_eq!(longer.due_times(Seed(1)).last(), Some(longer.duration()));
}

#[test]
fn warmup_precedes_and_requests_max_ends_the_schedule() {
    let due = |schedule: &Schedule| schedule.due_times(Seed(1)).collect::<Vec<_>>();
    let steady = |text, lasts| Step::steady(rate(text), secs(lasts));
    let plain = Schedule::new(vec![steady("100/s", 10), Step::pause(secs(1)), Step::burst(5)]);
    let warm = plain.clone().with_warmup(secs(2)).unwrap();
    assert_eq!(warm.to_string(), "10s at 100/s, 1s pause, 5 at once, after 2s at 100/s to warm up");
    assert_eq!((warm.warmup(), warm.duration(), warm.requests()), (secs(2), secs(13), 1_205));
    let later: Vec<_> = due(&plain).iter().map(|due| *due + secs(2)).collect();
    assert_eq!(due(&warm)[200..], later);
    let twice = warm.clone().with_warmup(secs(3)).unwrap();
    assert_eq!((twice.warmup(), twice.duration()), (secs(3), secs(14)));

    // A limit counts measured requests, and the load ends when the next one would be due.
    for (most, lasts_ms, requests) in
        [(1, 10, 1), (500, 5_000, 500), (1_000, 11_000, 1_000), (9_999, 11_000, 1_005)]
    {
        let limited = plain.clone().with_requests_max(most);
        let numbers = (limited.duration(), limited.requests(), due(&limited).len() as u64);
        assert_eq!(numbers, (Duration::from_millis(lasts_ms), requests, requests), "{most}");
        assert_eq!(due(&warm.clone().with_requests_max(most)).len() as u64, 200 + requests);
    }
    assert_eq!(
        plain.clone().with_requests_max(7).with_requests_max(9).to_string(),
        "10s at 100/s, 1s pause, 5 at once, 7 requests at most"
    );
    let poisson = Schedule::new(vec![steady("100/s", 10).with_arrivals(ArrivalProcess::Poisson)]);
    let limited = poisson.clone().with_requests_max(50);
    assert_eq!((due(&limited).len(), limited.duration()), (50, secs(10)));
    assert_eq!(due(&limited), due(&poisson)[..50]);

    let first = |step: Step| {
        let warm = Schedule::new(vec![Step::pause(secs(1)), step]).with_warmup(secs(100))?;
        Some(warm.requests() - Schedule { warmup: Vec::new(), ..warm }.requests())
    };
    for (step, requests) in [
        (Step::ramp(rate("10/s"), rate("90/s"), secs(10)), Some(1_000)),
        (Step::ramp(RateOrZero::ZERO, rate("90/s"), secs(10)), Some(4_500)),
        (wave(SineStart::MeanDown, 10), Some(50_000)),
        (wave(SineStart::Peak, 10), Some(70_000)),
        (wave(SineStart::Trough, 10), Some(30_000)),
        (
            Step::sine(Sine::new(rate("5/s"), rate("5/s"), secs(1), SineStart::Trough).unwrap(), secs(10)),
            Some(500),
        ),
        (Step::replay([1, 2, 4].map(secs).to_vec()), Some(75)),
        (Step::replay(vec![Duration::ZERO; 3]), None),
        (Step::replay(Vec::new()), None),
        (Step::burst(7), None),
    ] {
        assert_eq!(first(step.clone()), requests, "{step}");
    }
}

#[test]
fn empty_and_excessive_schedules_are_refused() {
    let one = |text, lasts| Schedule::new(vec![Step::steady(rate(text), lasts)]);
    assert_eq!(one("1/s", secs(0)).check(), Err(ScheduleLimitError::NoRequests));
    assert_eq!(one("1/ns", secs(1)).check(), Ok(()));
    assert_eq!(one("1/ns", secs(2)).check(), Err(ScheduleLimitError::TooManyRequests));
    assert_eq!(one("1/ns", secs(2)).with_requests_max(10).check(), Ok(()));
    assert_eq!(one("1/h", Duration::from_hours(721)).check(), Err(ScheduleLimitError::TooLong));
    assert_eq!(
        Schedule::new(vec![Step::burst(u64::MAX), Step::burst(1)]).check(),
        Err(ScheduleLimitError::TooManyRequests)
    );
}

#[test]
fn limits_include_their_ends_and_name_a_remedy() {
    use ScheduleLimitError::{NoRequests, TooLong, TooManyRequests};
    let month = Duration::from_hours(720);
    let check = ScheduleLimitError::check;
    assert_eq!(check(1_000_000_000, month), Ok(()));
    assert_eq!(check(1_000_000_001, month), Err(TooManyRequests));
    assert_eq!(check(1, month + Duration::from_nanos(1)), Err(TooLong));
    assert_eq!(check(1, Duration::ZERO), Ok(()));
    assert_eq!(check(0, secs(1)), Err(NoRequests));
    assert_eq!(
        [NoRequests, TooManyRequests, TooLong].map(ScheduleLimitError::remedy),
        ["longer", "shorter", "shorter"]
    );
}

/// A limit within a later step counts the requests before it.
#[test]
fn limit_ends_a_later_step_unless_chance_decides() {
    let steady = |text, lasts| Step::steady(rate(text), secs(lasts));
    let poisson = |text, lasts| steady(text, lasts).with_arrivals(ArrivalProcess::Poisson);
    for (steps, most, lasts, ends_by_chance) in [
        // 1,000 requests in 10 s, and 50 more at 10/s.
        (vec![steady("100/s", 10), steady("10/s", 60)], Some(1_050), 15, false),
        (vec![steady("100/s", 10), steady("10/s", 60)], None, 70, false),
        (vec![steady("100/s", 10), steady("10/s", 60)], Some(1_601), 70, false),
        (vec![poisson("100/s", 10)], None, 10, false),
        (vec![poisson("100/s", 10)], Some(500), 10, true),
        // The limit is reached before chance begins, and after it.
        (vec![steady("100/s", 10), poisson("100/s", 10)], Some(500), 5, false),
        (vec![steady("100/s", 10), poisson("100/s", 10)], Some(1_500), 20, true),
    ] {
        let mut schedule = Schedule::new(steps);
        if let Some(most) = most {
            schedule = schedule.with_requests_max(most);
        }
        let found = (schedule.duration(), schedule.ends_by_chance());
        assert_eq!(found, (secs(lasts), ends_by_chance), "{schedule}");
    }
}

/// Five standard deviations of a Poisson process of 10,000 requests are 500.
#[test]
fn bound_on_requests_leaves_room_for_chance() {
    let steady = Step::steady(rate("1000/s"), secs(10));
    let constant = Schedule::new(vec![steady.clone()]);
    assert_eq!(constant.requests_max(), 10_000);
    assert_eq!(constant.clone().with_warmup(secs(1)).unwrap().requests_max(), 11_000);
    let poisson = Schedule::new(vec![steady.with_arrivals(ArrivalProcess::Poisson)]);
    assert_eq!(poisson.requests_max(), 10_505);
    // A process of a few requests has more than its mean, too: 4 and 10, in whole requests.
    assert_eq!(one("4/s", secs(1), ArrivalProcess::Poisson).requests_max(), 4 + 10 + 5);
    assert_eq!(poisson.with_requests_max(100).requests_max(), 100 + 50 + 5);
}

#[test]
fn expected_requests_before_a_time_are_those_due_earlier() {
    let steps =
        vec![Step::steady(rate("100/s"), secs(10)), Step::burst(5), Step::steady(rate("10/s"), secs(10))];
    let schedule = Schedule::new(steps).with_warmup(secs(2)).unwrap();
    let nanosecond = Duration::from_nanos(1);
    for (time, expected) in [
        (Duration::ZERO, 0.0),
        (secs(1), 100.0),
        (secs(2), 200.0),
        (secs(7), 700.0),
        // The burst is due at the end of the first step, and not before it.
        (secs(12), 1_200.0),
        (secs(12) + nanosecond, 1_205.0),
        (secs(17), 1_255.0),
        (secs(22), 1_305.0),
        (secs(100), 1_305.0),
    ] {
        let found = schedule.expected_before(time);
        assert!((found - expected).abs() < 1e-6, "{found} before {time:?}, not {expected}");
    }
}

/// The first measured request is due when the warm-up ends.
#[cfg(feature = "http")]
#[test]
fn requests_of_the_warmup_are_those_due_before_its_end() {
    let constant = one("100/s", secs(10), ArrivalProcess::Constant);
    assert_eq!(constant.warmup_arrivals(Seed(1)), 0);
    assert_eq!(constant.with_warmup(secs(2)).unwrap().warmup_arrivals(Seed(1)), 200);
    for seed in 1..=5 {
        let poisson = one("100/s", secs(10), ArrivalProcess::Poisson);
        let measured = poisson.due_times(Seed(seed)).count() as u64;
        let warm = poisson.with_warmup(secs(5)).unwrap();
        let all = warm.due_times(Seed(seed)).count() as u64;
        assert_eq!(warm.warmup_arrivals(Seed(seed)), all - measured, "{seed}");
        assert!((400..600).contains(&(all - measured)), "{seed}: 500 are expected");
    }
}

#[test]
fn largest_burst_is_within_the_limit_on_requests() {
    let bursts = Schedule::new(vec![Step::burst(30), Step::pause(secs(1)), Step::burst(200), Step::burst(7)]);
    assert_eq!(bursts.burst_max(), 200);
    assert_eq!(bursts.clone().with_requests_max(50).burst_max(), 50);
    assert_eq!(bursts.with_requests_max(1_000).burst_max(), 200);
    assert_eq!(one("100/s", secs(10), ArrivalProcess::Constant).with_requests_max(50).burst_max(), 0);
}

#[test]
fn shares_of_a_poisson_process_add_up_to_it() {
    let steps = [("2000/s", 20), ("500/s", 20)];
    let step = |(text, lasts)| Step::steady(rate(text), secs(lasts)).with_arrivals(ArrivalProcess::Poisson);
    let schedule = Schedule::new(steps.map(step).to_vec());
    let whole: Vec<Duration> = schedule.due_times_of_share(1.0, Seed(1).stream("arrivals")).collect();
    assert_eq!(whole, schedule.due_times(Seed(1)).collect::<Vec<_>>());
    let mut all: Vec<Duration> = Vec::new();
    for (name, share) in [("a", 0.7), ("b", 0.299), ("c", 0.001)] {
        let part: Vec<Duration> = schedule.due_times_of_share(share, Seed(1).stream(name)).collect();
        assert!(part.is_sorted());
        for (from, to, expected) in [(0, 20, 40_000.0), (20, 40, 10_000.0)] {
            let count = part.iter().filter(|due| (secs(from)..secs(to)).contains(due)).count();
            let expected: f64 = share * expected;
            assert!((count as f64 - expected).abs() < 5.0 * expected.sqrt(), "{share} {count} {expected}");
        }
        all.extend(part);
    }
    assert!((all.len() as f64 - 50_000.0).abs() < 5.0 * 50_000_f64.sqrt(), "{}", all.len());
}

#[test]
fn constant_arrivals_do_not_drift_in_a_day() {
    let schedule = one("7/s", Duration::from_hours(24), ArrivalProcess::Constant);
    let last = schedule.due_times(Seed(1)).last().unwrap();
    assert_eq!(last, Duration::from_nanos((7 * 86_400 - 1) * 1_000_000_000 / 7));
}

/// Counts of 10,000 windows of 100 ms that expect five requests each.
fn counts(seed: u64) -> Vec<f64> {
    let schedule = one("50/s", Duration::from_secs(1_000), ArrivalProcess::Poisson);
    let mut counts = vec![0.0; 10_000];
    for due in schedule.due_times(Seed(seed)) {
        counts[usize::try_from(due.as_millis() / 100).unwrap()] += 1.0;
    }
    counts
}

#[test]
fn poisson_counts_have_their_mean_dispersion_and_shape() {
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

/// A Poisson process of rate one, its time stretched by each step.
fn by_hand(steps: &[(Rate, Duration)], seed: u64) -> Vec<Duration> {
    let mut draws = Seed(seed).stream("arrivals");
    let (mut due, mut began) = (Vec::new(), Duration::ZERO);
    let mut gap: f64 = Exp1.sample(&mut draws);
    for (rate, lasts) in steps {
        let (per_nano, nanos) = (rate.per_nano(), lasts.as_nanos() as f64);
        let mut into = 0.0;
        while into + gap / per_nano < nanos {
            into += gap / per_nano;
            gap = Exp1.sample(&mut draws);
            due.push(began + Duration::from_nanos(format!("{:.0}", into.floor()).parse().unwrap()));
        }
        gap -= (nanos - into) * per_nano;
        began += *lasts;
    }
    due
}

proptest! {
    #[test]
    fn constant_arrivals_match_the_expected_requests(
        steps in prop::collection::vec((1..5_000_u32, 1..2_000_u64, 0..3_000_u64), 1..4),
    ) {
        let steps: Vec<_> = steps
            .into_iter()
            .map(|(requests, per, lasts)| (rate(&format!("{requests}/{per}ms")), Duration::from_millis(lasts)))
            .collect();
        let schedule = Schedule::new(steps.iter().map(|(rate, lasts)| Step::steady(*rate, *lasts)).collect());
        let mut due = schedule.due_times(Seed(1)).peekable();
        let (mut began, mut all) = (Duration::ZERO, 0);
        for (rate, lasts) in steps {
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
    fn poisson_arrivals_ascend_end_in_time_and_repeat(
        seed: u64,
        steps in prop::collection::vec((1..500_u32, 1..3_000_u64), 1..4),
    ) {
        let steps: Vec<_> = steps
            .into_iter()
            .map(|(requests, lasts)| (rate(&format!("{requests}/s")), Duration::from_millis(lasts)))
            .collect();
        let poisson = |(rate, lasts): &(Rate, Duration)| Step::steady(*rate, *lasts).with_arrivals(ArrivalProcess::Poisson);
        let schedule = Schedule::new(steps.iter().map(poisson).collect());
        let due: Vec<_> = schedule.due_times(Seed(seed)).collect();
        prop_assert_eq!(&due, &by_hand(&steps, seed));
        prop_assert!(due.is_sorted());
        prop_assert!(due.last().is_none_or(|last| *last < schedule.duration()));
        prop_assert_eq!(&due, &schedule.due_times(Seed(seed)).collect::<Vec<_>>());
        // Six standard deviations: a proptest draws many seeds.
        let expected = schedule.requests() as f64;
        prop_assert!((due.len() as f64 - expected).abs() < 6.0 * expected.sqrt() + 6.0, "{}", due.len());
    }

    #[test]
    fn arbitrary_text_does_not_panic(text in ".{0,12}", digits in "[0-9_]{1,20}/[0-9]{0,12}[a-z]{0,2}") {
        let _ = (text.parse::<Rate>(), digits.parse::<Rate>().map(|rate| rate.to_string()));
    }
}
