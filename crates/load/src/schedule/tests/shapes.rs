//! Every shape: its integral, the inverse of that, and the walk along several.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unchecked_time_subtraction,
    reason = "the numbers of these tests are small, and what is later is later"
)]

use super::*;

fn ramp(from: u32, to: u32, lasts: Duration) -> Step {
    let level = |per_second: u32| format!("{per_second}/s").parse::<Level>().unwrap();
    Step::ramp(level(from), level(to), lasts)
}

fn sine(mean: u32, amplitude: u32, period: Duration, start: Turn, lasts: Duration) -> Step {
    let per_second = |requests: u32| rate(&format!("{requests}/s"));
    Step::sine(Sine::new(per_second(mean), per_second(amplitude), period, start).unwrap(), lasts)
}

/// Nanoseconds.
fn ns(nanos: f64) -> Duration {
    Duration::from_nanos(nanos.round() as u64)
}

#[test]
fn a_ramp_is_where_its_quadratic_has_it() {
    // Requests come at 10 t^2 / 2.
    let up = ramp(0, 100, secs(10));
    assert_eq!(up.requests(), 500);
    for n in [0, 1, 5, 20, 125, 499] {
        assert_eq!(up.due(n), ns((n as f64 / 5.0).sqrt() * 1e9), "{n}");
    }
    assert_eq!([up.due(5), up.due(20), up.due(125)], [secs(1), secs(2), secs(5)]);
    // The same, looked at from its end.
    let down = ramp(100, 0, secs(10));
    for n in [1, 5, 20, 125, 499] {
        assert_eq!(down.due(500 - n), secs(10) - up.due(n), "{n}");
    }
    assert_eq!(down.due(0), Duration::ZERO);
    assert!((up.expected(secs(5)) - 125.0).abs() < 1e-12 && (down.expected(secs(5)) - 375.0).abs() < 1e-12);
}

#[test]
fn a_ramp_that_hardly_rises_is_a_steady_rate() {
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
fn a_wave_comes_by_where_it_should() {
    // A P / 2 pi: what a quarter of a wave has more or less than its mean.
    const ARCH: f64 = 200.0 * 20.0 / std::f64::consts::TAU;
    let (period, lasts) = (secs(20), secs(60));
    for (start, quarter, half) in [
        (Turn::MeanUp, 2_500.0 + ARCH, 5_000.0 + 2.0 * ARCH),
        (Turn::Peak, 2_500.0 + ARCH, 5_000.0),
        (Turn::MeanDown, 2_500.0 - ARCH, 5_000.0 - 2.0 * ARCH),
        (Turn::Trough, 2_500.0 - ARCH, 5_000.0),
    ] {
        let wave = sine(500, 200, period, start, lasts);
        for (after, expected) in
            [(0, 0.0), (5, quarter), (10, half), (20, 10_000.0), (45, 20_000.0 + quarter)]
        {
            let found = wave.expected(secs(after));
            assert!((found - expected).abs() < 1e-9, "{start:?} after {after}s: {found}, not {expected}");
        }
        assert_eq!(wave.requests(), 30_000);
        assert_eq!([wave.due(0), wave.due(10_000), wave.due(20_000)], [secs(0), secs(20), secs(40)]);
        let (Turn::Peak | Turn::Trough) = start else { continue };
        assert_eq!([wave.due(5_000), wave.due(25_000)], [secs(10), secs(50)]);
    }
}

#[test]
fn a_wave_may_touch_the_ground() {
    for (start, bottom) in [(Turn::Trough, 0), (Turn::Peak, 10)] {
        let wave = sine(500, 500, secs(20), start, secs(2_000));
        assert_eq!(wave.requests(), 1_000_000);
        // At the very bottom the rate is nothing, and whoever is due there is due there to the nanosecond.
        for n in [0, 1, 99 - u64::from(bottom > 0)] {
            let at = secs(20 * n + bottom);
            assert_eq!(wave.due(10_000 * n + bottom * 500), at, "{start:?} {n}");
        }
        // Near it they come as the third power of the time.
        let after = wave.due(bottom * 500 + 1) - secs(bottom);
        let omega = std::f64::consts::TAU / 20.0;
        let cubic = (6.0 / (500.0 * omega * omega)).cbrt();
        assert!((after.as_secs_f64() / cubic - 1.0).abs() < 0.01, "{after:?}, not {cubic}s");
    }
}

#[test]
fn what_no_sine_can_do_is_refused() {
    let sine = |mean, amplitude, period| {
        let sine = Sine::new(rate(mean), rate(amplitude), secs(period), Turn::default());
        sine.map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(sine("60/m", "1/s", 1), Ok(()));
    assert_eq!(
        sine("60/m", "2/s", 1),
        Err("2/s below 60/m is less than nobody: write an amplitude of 60/m at most".to_owned())
    );
    assert_eq!(
        sine("60/m", "1/s", 0),
        Err("a wave takes its time: write a longer period, such as `20s`".to_owned())
    );
}

#[test]
fn bursts_logs_and_pauses_are_what_they_are() {
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
    let poisson: Vec<_> = steps[..6].iter().cloned().map(|step| step.arriving(Arrivals::Poisson)).collect();
    let schedule = Schedule::new(steps.clone());
    let due: Vec<_> = schedule.arrivals(Seed(1)).map(|due| due.as_millis()).collect();
    assert_eq!(due, [0, 0, 0, 1_010, 1_020, 1_030, 1_030, 1_030, 1_030, 1_530]);
    assert_eq!((schedule.requests(), schedule.lasts()), (10, Duration::from_millis(2_030)));
    // None of the others has anything to draw.
    assert_eq!(poisson, steps[..6]);
    let expected = |step: usize, ms| steps[step].expected(Duration::from_millis(ms)).round() as u64;
    assert_eq!(
        [expected(0, 0), expected(1, 500), expected(2, 9), expected(2, 10), expected(2, 99)],
        [3, 0, 0, 1, 3]
    );
}

/// Counts of a ramp from nothing to 1,000/s over a minute, in windows that expect as many each.
fn counts(seed: u64, windows: usize) -> Vec<f64> {
    let lasts = secs(60);
    let step = ramp(0, 1_000, lasts).arriving(Arrivals::Poisson);
    let mut counts = vec![0.0; windows];
    for due in Schedule::new(vec![step.clone()]).arrivals(Seed(seed)) {
        let share = step.expected(due) / step.expected(lasts);
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
    let turn = (0..Turn::ALL.len()).prop_map(|index| Turn::ALL[index]);
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
    fn the_nth_is_due_when_n_are_expected(step in step()) {
        let (lasts, requests) = (step.lasts(), step.requests());
        let expected = step.expected(lasts);
        prop_assert!((requests as f64 - expected).abs() <= 1.0, "{} of {}", requests, expected);
        let mut before = Duration::ZERO;
        for n in 0..requests {
            let due = step.due(n);
            prop_assert!(before <= due, "{}: {} is due at {:?}, after {:?}", step, n, due, before);
            if step.is_rate() {
                prop_assert!(due < lasts, "{}: {} is due at {:?}", step, n, due);
                // Within two nanoseconds on either side n requests are expected.
                let (early, late) = (due.saturating_sub(Duration::from_nanos(2)), due + Duration::from_nanos(2));
                let (low, high) = (step.expected(early) - 1e-9, step.expected(late) + 1e-9);
                prop_assert!((low..=high).contains(&(n as f64)), "{}: {} not in {}..{}", step, n, low, high);
            }
            before = due;
        }
    }

    #[test]
    fn requests_ascend_end_in_time_and_can_be_shared(
        steps in prop::collection::vec((step(), any::<bool>()), 0..5),
        seed: u64,
        takers in 1..5_usize,
        warmup in prop::option::of(0..500_u64),
        most in prop::option::of(0..2_000_u64),
    ) {
        let arriving = |by_chance| if by_chance { Arrivals::Poisson } else { Arrivals::Constant };
        let steps = steps.into_iter().map(|(step, by_chance)| step.arriving(arriving(by_chance))).collect();
        let mut schedule = Schedule::new(steps);
        if let Some(warm) = warmup.and_then(|warmup| schedule.clone().with_warmup(Duration::from_millis(warmup))) {
            schedule = warm;
        }
        if let Some(most) = most {
            schedule = schedule.limited(most);
        }
        let due: Vec<_> = schedule.arrivals(Seed(seed)).collect();
        prop_assert!(due.is_sorted());
        prop_assert!(due.last().is_none_or(|last| *last <= schedule.lasts()), "{:?} {:?}", due.last(), schedule);
        if !schedule.steps.iter().any(Step::is_poisson) {
            prop_assert_eq!(due.len() as u64, schedule.requests());
        }
        if let Some(most) = most {
            let measured = due.iter().filter(|due| **due >= schedule.warmup()).count() as u64;
            prop_assert!(measured <= most);
        }
        for first in 0..takers {
            let share: Vec<_> = schedule.arrivals(Seed(seed)).skip(first).step_by(takers).collect();
            let picked: Vec<_> = due.iter().copied().skip(first).step_by(takers).collect();
            prop_assert_eq!(share, picked);
        }
        let _ = (schedule.to_string(), schedule.peak_per_second(), schedule.stretched(0.3).requests());
    }
}
