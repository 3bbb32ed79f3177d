use std::time::UNIX_EPOCH;

use proptest::prelude::*;

use super::*;
use crate::policy::{directives::ResponseDirectives, testing::Lines};

const NOW_SECONDS: u64 = 1_800_000_000;

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(NOW_SECONDS * 1000 + 700)
}

/// `@N` in a date field is a date N seconds from now.
fn head(lines: Lines<'_>) -> HeaderMap {
    let mut head = HeaderMap::new();
    for (name, value) in lines {
        let is_date = ["date", "expires", "last-modified"].contains(name);
        let value = match value.strip_prefix('@').filter(|_| is_date) {
            Some(delta) => date::format(
                UNIX_EPOCH
                    + Duration::from_secs(NOW_SECONDS.checked_add_signed(delta.parse().unwrap()).unwrap()),
            ),
            None => value.parse().unwrap(),
        };
        head.append(*name, value);
    }
    head
}

fn of(status: u16, lines: Lines<'_>) -> Freshness {
    let head = head(lines);
    let directives = ResponseDirectives::read(&head, &[http::HeaderName::from_static("cdn-cache-control")]);
    let status = StatusCode::from_u16(status).unwrap();
    Freshness::new(status, &head, &directives, now(), Duration::ZERO, &Heuristics::default())
}

/// True if it is still fresh after three seconds, the suite's delay.
fn is_reused(lines: Lines<'_>) -> bool {
    of(200, lines).fresh_for() > Duration::from_secs(3)
}

/// http-tests: `age-parse`.
#[test]
fn age_field() {
    for (age, is_fresh) in [
        ("abc", true),
        ("-7200", true),
        ("7200.0", true),
        ("2147483647", false),
        ("2147483648", false),
        ("2147483649", false),
        ("7200, 0", false),
        ("0, 7200", true),
        ("0, 0", true),
        ("7200;foo=bar", true),
        ("7200;foo=111", true),
        ("", true),
    ] {
        assert_eq!(
            is_reused(&[("date", "@0"), ("cache-control", "max-age=3600"), ("age", age)]),
            is_fresh,
            "{age}"
        );
    }
    for (first, second, lifetime, is_fresh) in [
        ("7200", "0", "max-age=3600", false),
        ("0", "7200", "max-age=3600", true),
        ("0", "0", "max-age=3600", true),
        ("3600", "3600", "max-age=10000", true),
    ] {
        let lines = [("cache-control", lifetime), ("age", first), ("age", second)];
        assert_eq!(is_reused(&lines), is_fresh, "{first} {second}");
    }
    // Both are clamped to the same maximum: stale.
    assert!(!is_reused(&[("cache-control", "max-age=99999999999"), ("age", "99999999999")]));
}

/// http-tests: `cc-freshness`, `expires-freshness` and `cdn-cache-control`.
#[test]
fn lifetimes() {
    let table: [(Lines<'_>, bool); 31] = [
        (&[], false),
        (&[("cache-control", "max-age=3600")], true),
        (&[("cache-control", "max-age=2"), ("date", "@0")], false),
        (&[("cache-control", "max-age=0")], false),
        (&[("cache-control", "max-age=2147483649")], true),
        (&[("cache-control", "max-age=3600"), ("age", "7200"), ("date", "@0")], false),
        (&[("cache-control", "max-age=3600"), ("date", "@-7200")], false),
        (&[("cache-control", "max-age=3600"), ("expires", "@-7200"), ("date", "@0")], true),
        (&[("cache-control", "max-age=3600"), ("expires", "0"), ("date", "@0")], true),
        (&[("cache-control", "max-age=0"), ("expires", "@3600"), ("date", "@0")], false),
        (&[("cache-control", "max-age=-3600"), ("expires", "@3600"), ("date", "@0")], false),
        (&[("cache-control", "s-maxage=3600")], true),
        (&[("cache-control", "max-age=3600, s-maxage=1")], false),
        (&[("cache-control", "max-age=0, s-maxage=3600"), ("expires", "@-10")], true),
        (&[("expires", "@2592000"), ("date", "@0")], true),
        (&[("expires", "@-2592000"), ("date", "@0")], false),
        (&[("expires", "@0"), ("date", "@0")], false),
        (&[("expires", "@300"), ("date", "@400")], false),
        (&[("expires", "0"), ("date", "@0")], false),
        (&[("expires", "@10"), ("date", "foo")], true),
        (&[("expires", "@10"), ("date", "@-10"), ("age", "25")], false),
        (&[("expires", "@20"), ("date", "@10"), ("age", "15")], false),
        (&[("expires", "@20"), ("expires", "@20"), ("date", "@0")], true),
        (&[("expires", "@20"), ("expires", "@0"), ("date", "@0")], false),
        (&[("expires", "@20"), ("expires", "soon"), ("date", "@0")], false),
        (&[("cdn-cache-control", "max-age=3600"), ("expires", "@-10000"), ("date", "@0")], true),
        (&[("cdn-cache-control", "max-age=0"), ("expires", "@10000"), ("date", "@0")], false),
        (&[("cdn-cache-control", "foo"), ("expires", "@10000"), ("date", "@0")], false),
        (&[("cdn-cache-control", "max-age=3600"), ("cache-control", "max-age=1")], true),
        (&[("cdn-cache-control", "max-age=1"), ("cache-control", "max-age=3600")], false),
        (&[("cdn-cache-control", "max-age=10, no-cache")], false),
    ];
    for (lines, expected) in table {
        assert_eq!(is_reused(lines), expected, "{lines:?}");
    }
}

/// http-tests: `heuristic-freshness`.
#[test]
fn heuristic_lifetimes() {
    for (status, is_heuristic) in [
        (200, true),
        (201, false),
        (202, false),
        (203, true),
        (204, true),
        (299, false),
        (301, true),
        (302, false),
        (308, true),
        (400, false),
        (403, false),
        (404, true),
        (405, true),
        (410, true),
        (414, true),
        (501, true),
        (502, false),
        (503, false),
        (504, false),
        (599, false),
    ] {
        let lines = [("last-modified", "@-86400"), ("date", "@0")];
        let freshness = of(status, &lines);
        assert_eq!(freshness.basis == Basis::Heuristic, is_heuristic, "{status}");
        assert_eq!(
            freshness.fresh_for(),
            Duration::from_secs(if is_heuristic { 8640 } else { 0 }),
            "{status}"
        );
        let public = of(status, &[lines[0], lines[1], ("cache-control", "public")]);
        assert_eq!(public.basis, Basis::Heuristic, "{status}");
    }
    for (delta, lifetime) in [("@-5", 0), ("@-30", 3), ("@-3600", 360), ("@-86400000", 86_400), ("@5", 0)] {
        let lines = [("last-modified", delta), ("date", "@0")];
        assert_eq!(of(200, &lines).lifetime.as_secs(), lifetime, "{delta}");
    }
    let head = head(&[("last-modified", "@-86400")]);
    let directives = ResponseDirectives::default();
    let off = Freshness::new(StatusCode::OK, &head, &directives, now(), Duration::ZERO, &Heuristics::OFF);
    assert_eq!((off.lifetime, off.basis), (Duration::ZERO, Basis::Undeclared));
}

#[test]
fn initial_age_from_age_date_and_delay() {
    let with = |lines: Lines<'_>, took_ms| {
        let head = head(lines);
        let (directives, took) = (ResponseDirectives::default(), Duration::from_millis(took_ms));
        Freshness::new(StatusCode::OK, &head, &directives, now(), took, &Heuristics::OFF).initial_age
    };
    for (lines, took_ms, age_ms) in [
        (&[][..], 0, 0),
        (&[], 5000, 5000),
        (&[("age", "30")], 250, 30_250),
        (&[("date", "@-7200")], 250, 7_200_000),
        (&[("date", "@-7200"), ("age", "9000")], 0, 9_000_000),
        (&[("date", "@-1")], 250, 250),
        (&[("date", "@-2")], 250, 2000),
        (&[("date", "@60")], 250, 250),
        (&[("date", "yesterday")], 0, 0),
        (&[("date", "@-60"), ("date", "@-60")], 0, 0),
    ] {
        assert_eq!(with(lines, took_ms), Duration::from_millis(age_ms), "{lines:?}");
    }
}

/// http-tests: `stale`.
#[test]
fn staleness() {
    let stale = |value: &str| {
        let freshness = of(200, &[("cache-control", value)]);
        (
            freshness.may_be_stale,
            freshness.swr.map(|swr| swr.as_secs()),
            freshness.sie.map(|sie| sie.as_secs()),
        )
    };
    assert_eq!(stale("max-age=2"), (true, None, None));
    assert_eq!(stale("max-age=1, stale-while-revalidate=4"), (true, Some(4), Some(0)));
    assert_eq!(stale("max-age=1, stale-while-revalidate=4, stale-if-error=9"), (true, Some(4), Some(9)));
    assert_eq!(stale("max-age=2, stale-if-error=60"), (true, None, Some(60)));
    for strict in ["must-revalidate", "proxy-revalidate", "no-cache", "s-maxage=2"] {
        assert_eq!(stale(&format!("max-age=2, {strict}")), (false, Some(0), Some(0)), "{strict}");
    }
    assert_eq!(stale("s-maxage=1, stale-while-revalidate=9"), (false, Some(9), Some(0)));
    let both = "must-revalidate, stale-while-revalidate=9, stale-if-error=9";
    assert_eq!(stale(both), (false, Some(0), Some(0)));
    assert_eq!(stale("max-age=9, no-cache=\"set-cookie\""), (true, None, None));
}

proptest! {
    #[test]
    fn arbitrary_heads_do_not_panic(
        date in "[ -~]{0,30}", expires in "[ -~]{0,30}", age in "[0-9, -]{0,30}", control in "[ -~]{0,40}",
        took_ms: u64, seconds: u32,
    ) {
        let mut head = HeaderMap::new();
        for (name, value) in [("date", date), ("expires", expires), ("age", age), ("cache-control", control)] {
            head.insert(name, value.parse().unwrap());
        }
        let directives = ResponseDirectives::read(&head, &[]);
        let at = UNIX_EPOCH + Duration::from_secs(seconds.into());
        let took = Duration::from_millis(took_ms);
        let freshness = Freshness::new(StatusCode::OK, &head, &directives, at, took, &Heuristics::default());
        prop_assert!(freshness.initial_age >= took);
        prop_assert!(freshness.fresh_for() <= freshness.lifetime);
        prop_assert!(freshness.lifetime <= Duration::from_secs(1 << 31));
        prop_assert!(freshness.age(took) >= freshness.initial_age);
    }

    #[test]
    fn fresh_for_equals_the_formula_of_the_standard(lifetime in 0_u64..5000, age in 0_u64..5000, ago in 2_i64..5000) {
        let freshness = of(200, &[
            ("cache-control", &format!("max-age={lifetime}")), ("age", &age.to_string()), ("date", &format!("@-{ago}")),
        ]);
        let initial = age.max(ago.unsigned_abs());
        prop_assert_eq!(freshness.initial_age, Duration::from_secs(initial));
        prop_assert_eq!(freshness.fresh_for(), Duration::from_secs(lifetime.saturating_sub(initial)));
    }
}
