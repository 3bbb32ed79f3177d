//! Every shape: its integral, the inverse of the integral, and sequences of shapes.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unchecked_time_subtraction,
    reason = "the numbers of these tests are small, and what is later is later"
)]

use super::*;

fn ramp(from: u32, to: u32, lasts: Duration) -> Step {
    let level = |per_second: u32| format!("{per_second}/s").parse::<RateOrZero>().unwrap();
    Step::ramp(level(from), level(to), lasts)
}

fn sine(mean: u32, amplitude: u32, period: Duration, start: SineStart, lasts: Duration) -> Step {
    let per_second = |requests: u32| rate(&format!("{requests}/s"));
    Step::sine(Sine::new(per_second(mean), per_second(amplitude), period, start).unwrap(), lasts)
}

/// Nanoseconds.
fn ns(nanos: f64) -> Duration {
    Duration::from_nanos(nanos.round() as u64)
}

#[test]
fn ramp_follows_its_quadratic() {
    // The count is 10 t^2 / 2.
    let up = ramp(0, 100, secs(10));
    assert_eq!(up.requests(), 500);
    for n in [0, 1, 5, 20, 125, 499] {
        assert_eq!(up.due(n), ns((n as f64 / 5.0).sqrt() * 1e9), "{n}");
    }
    assert_eq!([up.due(5), up.due(20), up.due(125)], [secs(1), secs(2), secs(5)]);
    // The same ramp, reversed.
    let down = ramp(100, 0, secs(10));
    for n in [1, 5, 20, 125, 499] {
        assert_eq!(down.due(500 - n), secs(10) - up.due(n), "{n}");
    }
    assert_eq!(down.due(0), Duration::ZERO);
    assert!(
        (up.expected_requests(secs(5)) - 125.0).abs() < 1e-12
            && (down.expected_requests(secs(5)) - 375.0).abs() < 1e-12
    );
}

/// The first requests of a long ramp are few among a thousand million: no time is a difference of large numbers.
#[test]
fn first_requests_of_a_ramp_over_a_month_are_due_to_the_nanosecond() {
    let lasts = secs(2_591_999);
    let up = ramp(0, 797, lasts);
    for n in [1, 2, 3, 10, 1_000] {
        // The count is 797 t^2 / 2T.
        let expected = (2.0 * n as f64 * lasts.as_secs_f64() / 797.0).sqrt() * 1e9;
        let found = up.due(n).as_nanos() as f64;
        assert!((found - expected).abs() <= 1.0, "{n}: {found}, not {expected}");
    }
}

#[test]
fn nearly_flat_ramp_is_steady() {
    let steep = Step::ramp(rate("1000000000/1000s"), rate("1000000001/1000s"), secs(3_600));
    let steady = Step::steady(rate("1000000000/1000s"), secs(3_600));
    for n in [0, 1, 1_000_000, 3_599_999_999] {
        let ahead = steady.due(n).as_nanos() as f64 - steep.due(n).as_nanos() as f64;
        // After a share `t / T` of its time it is ahead by half of that share of a billionth.
        let t = steady.due(n).as_nanos() as f64;
        let expected = t * (t / 3_600e9) / 2.0 * 1e-9;
        assert!((ahead - expected).abs() <= 1.0, "{n}: {ahead}, not {expected}");
    }
}

#[test]
fn sine_has_its_requests_per_period() {
    // A P / 2 pi: the difference of a quarter wave from its mean.
    const ARCH: f64 = 200.0 * 20.0 / std::f64::consts::TAU;
    let (period, lasts) = (secs(20), secs(60));
    for (start, quarter, half) in [
        (SineStart::MeanUp, 2_500.0 + ARCH, 5_000.0 + 2.0 * ARCH),
        (SineStart::Peak, 2_500.0 + ARCH, 5_000.0),
        (SineStart::MeanDown, 2_500.0 - ARCH, 5_000.0 - 2.0 * ARCH),
        (SineStart::Trough, 2_500.0 - ARCH, 5_000.0),
    ] {
        let wave = sine(500, 200, period, start, lasts);
        for (after, expected) in
            [(0, 0.0), (5, quarter), (10, half), (20, 10_000.0), (45, 20_000.0 + quarter)]
        {
            let found = wave.expected_requests(secs(after));
            assert!((found - expected).abs() < 1e-9, "{start:?} after {after}s: {found}, not {expected}");
        }
        assert_eq!(wave.requests(), 30_000);
        assert_eq!([wave.due(0), wave.due(10_000), wave.due(20_000)], [secs(0), secs(20), secs(40)]);
        let (SineStart::Peak | SineStart::Trough) = start else { continue };
        assert_eq!([wave.due(5_000), wave.due(25_000)], [secs(10), secs(50)]);
    }
}

#[test]
fn sine_may_reach_zero() {
    for (start, bottom) in [(SineStart::Trough, 0), (SineStart::Peak, 10)] {
        let wave = sine(500, 500, secs(20), start, secs(2_000));
        assert_eq!(wave.requests(), 1_000_000);
        // At the minimum the rate is 0, and a request due there is due to the nanosecond.
        for n in [0, 1, 99 - u64::from(bottom > 0)] {
            let at = secs(20 * n + bottom);
            assert_eq!(wave.due(10_000 * n + bottom * 500), at, "{start:?} {n}");
        }
        // Near the minimum the count grows with the third power of the time.
        let after = wave.due(bottom * 500 + 1) - secs(bottom);
        let omega = std::f64::consts::TAU / 20.0;
        let cubic = (6.0 / (500.0 * omega * omega)).cbrt();
        assert!((after.as_secs_f64() / cubic - 1.0).abs() < 0.01, "{after:?}, not {cubic}s");
    }
}

#[test]
fn phases_of_a_sine_have_names_in_the_order_of_the_wave() {
    assert_eq!(SineStart::ALL.map(SineStart::name), ["mean-up", "peak", "mean-down", "trough"]);
}

#[test]
fn invalid_sine_is_refused() {
    let sine = |mean, amplitude, period| {
        let sine = Sine::new(rate(mean), rate(amplitude), secs(period), SineStart::default());
        sine.map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(sine("60/m", "1/s", 1), Ok(()));
    assert_eq!(
        sine("60/m", "2/s", 1),
        Err("2/s below 60/m is negative: write an amplitude of 60/m at most".to_owned())
    );
    assert_eq!(sine("60/m", "1/s", 0), Err("the period is 0: write a longer one, such as `20s`".to_owned()));
}

#[test]
fn bursts_replays_and_pauses_have_exact_due_times() {
    let log = Step::replay([30, 10, 20].map(Duration::from_millis).to_vec());
    let steps = vec![
        Step::burst(3),
        Step::pause(secs(1)),
        log,
        Step::burst(2),
        Step::burst(0),
        Step::replay(Vec::new()),
        Step::steady(rate("2/s"), secs(1)),
    ];
    let poisson: Vec<_> =
        steps[..6].iter().cloned().map(|step| step.with_arrivals(ArrivalProcess::Poisson)).collect();
    let schedule = Schedule::new(steps.clone());
    let due: Vec<_> = schedule.due_times(Seed(1)).map(|due| due.as_millis()).collect();
    assert_eq!(due, [0, 0, 0, 1_010, 1_020, 1_030, 1_030, 1_030, 1_030, 1_530]);
    assert_eq!((schedule.requests(), schedule.duration()), (10, Duration::from_millis(2_030)));
    // The other shapes draw no random numbers.
    assert_eq!(poisson, steps[..6]);
    let expected = |step: usize, ms| steps[step].expected_requests(Duration::from_millis(ms)).round() as u64;
    assert_eq!(
        [expected(0, 0), expected(1, 500), expected(2, 9), expected(2, 10), expected(2, 99)],
        [3, 0, 0, 1, 3]
    );
}

/// Counts of a ramp from nothing to 1,000/s over a minute, in windows of equal expected counts.
fn counts(seed: u64, windows: usize) -> Vec<f64> {
    let lasts = secs(60);
    let step = ramp(0, 1_000, lasts).with_arrivals(ArrivalProcess::Poisson);
    let mut counts = vec![0.0; windows];
    for due in Schedule::new(vec![step.clone()]).due_times(Seed(seed)) {
        let share = step.expected_requests(due) / step.expected_requests(lasts);
        counts[(share * windows as f64) as usize] += 1.0;
    }
    counts
}

#[test]
fn poisson_arrivals_follow_their_ramp() {
    for seed in 1..=5 {
        let counts = counts(seed, 600);
        // 30,000 requests, 50 a window.
        let chi_squared: f64 = counts.iter().map(|count| (count - 50.0).powi(2) / 50.0).sum();
        // The sum has 600 degrees of freedom: their number, and its standard deviation of sqrt(2 * 600). That
        // is mean and dispersion in one: clumps make it larger, even spacing smaller.
        assert!((chi_squared - 600.0).abs() < 4.0 * 1_200_f64.sqrt(), "seed {seed}: {chi_squared}");
        let all: f64 = counts.iter().sum();
        assert!((all - 30_000.0).abs() < 4.0 * 30_000_f64.sqrt(), "seed {seed}: {all}");
        // Early windows are as full as late ones.
        let early: f64 = counts[..300].iter().sum();
        assert!((early - 15_000.0).abs() < 4.0 * 15_000_f64.sqrt(), "seed {seed}: {early}");
    }
}

fn step() -> impl Strategy<Value = Step> {
    let lasts = (0..3_000_000_000_u64).prop_map(Duration::from_nanos);
    let requests = prop_oneof![Just(0), 1..3_000_u32];
    let turn = (0..SineStart::ALL.len()).prop_map(|index| SineStart::ALL[index]);
    prop_oneof![
        (1..3_000_u32, lasts.clone())
            .prop_map(|(rate_of, lasts)| Step::steady(rate(&format!("{rate_of}/s")), lasts)),
        (requests.clone(), requests, lasts.clone()).prop_map(|(from, to, lasts)| ramp(from, to, lasts)),
        (1..1_000_u32, 0.0..=1.0, 1..5_000_000_000_u64, turn, lasts.clone()).prop_map(
            |(mean, share, period, start, lasts)| {
                let amplitude = ((f64::from(mean) * share) as u32).max(1);
                sine(mean, amplitude, Duration::from_nanos(period), start, lasts)
            }
        ),
        lasts.clone().prop_map(Step::pause),
        (0..50_u64).prop_map(Step::burst),
        prop::collection::vec(lasts, 0..50).prop_map(Step::replay),
    ]
}

proptest! {
    #[test]
    fn request_n_is_due_when_n_are_expected(step in step()) {
        let (lasts, requests) = (step.duration(), step.requests());
        let expected = step.expected_requests(lasts);
        prop_assert!((requests as f64 - expected).abs() <= 1.0, "{} of {}", requests, expected);
        let mut before = Duration::ZERO;
        for n in 0..requests {
            let due = step.due(n);
            prop_assert!(before <= due, "{}: {} is due at {:?}, after {:?}", step, n, due, before);
            if step.has_arrival_process() {
                prop_assert!(due < lasts, "{}: {} is due at {:?}", step, n, due);
                // Within two nanoseconds on either side n requests are expected.
                let (early, late) = (due.saturating_sub(Duration::from_nanos(2)), due + Duration::from_nanos(2));
                let (low, high) = (step.expected_requests(early) - 1e-9, step.expected_requests(late) + 1e-9);
                prop_assert!((low..=high).contains(&(n as f64)), "{}: {} not in {}..{}", step, n, low, high);
            }
            before = due;
        }
    }

    #[test]
    fn due_times_ascend_end_in_time_and_split_over_threads(
        steps in prop::collection::vec((step(), any::<bool>()), 0..5),
        seed: u64,
        takers in 1..5_usize,
        warmup in prop::option::of(0..500_u64),
        most in prop::option::of(0..2_000_u64),
    ) {
        let arriving = |by_chance| if by_chance { ArrivalProcess::Poisson } else { ArrivalProcess::Constant };
        let steps = steps.into_iter().map(|(step, by_chance)| step.with_arrivals(arriving(by_chance))).collect();
        let mut schedule = Schedule::new(steps);
        if let Some(warm) = warmup.and_then(|warmup| schedule.clone().with_warmup(Duration::from_millis(warmup))) {
            schedule = warm;
        }
        if let Some(most) = most {
            schedule = schedule.with_requests_max(most);
        }
        let due: Vec<_> = schedule.due_times(Seed(seed)).collect();
        prop_assert!(due.is_sorted());
        prop_assert!(due.last().is_none_or(|last| *last <= schedule.duration()), "{:?} {:?}", due.last(), schedule);
        if !schedule.steps.iter().any(Step::is_poisson) {
            prop_assert_eq!(due.len() as u64, schedule.requests());
        }
        if let Some(most) = most {
            let measured = due.iter().filter(|due| **due >= schedule.warmup()).count() as u64;
            prop_assert!(measured <= most);
        }
        for first in 0..takers {
            let share: Vec<_> = schedule.due_times(Seed(seed)).skip(first).step_by(takers).collect();
            let picked: Vec<_> = due.iter().copied().skip(first).step_by(takers).collect();
            prop_assert_eq!(share, picked);
        }
        let _ = (schedule.to_string(), schedule.peak_per_second(), schedule.stretched(0.3).requests());
    }
}
