//! `[cache]`: every setting, and invalid combinations.

use std::time::Duration;

use stockade_cache::{Breaker, Refresh};

use crate::{
    engine::{EngineTarget, OpenLoad},
    spec::tests::{assert_refused, burst, open_with, read, target, with},
};

#[test]
fn cache_has_every_setting() {
    let text = r#"
title = "t"
[target]
kind = "engine"
[load]
burst = 1
[cache]
strategy = "breaker"
ttl = "10s"
jitter = 0.2
swr = "5s"
sie = "1h"
throttle = "3s"
load = { soft_timeout = "none" }
[[arm]]
name = "a"
cache.refresh = { xfetch = { beta = 2.0, formula = "paper" } }
cache.breaker = { min_calls = 7, ramp = "1m" }
[[arm]]
name = "b"
cache.refresh = { early = { at = 0.5 } }
cache.breaker = "none"
[[arm]]
name = "c"
cache.strategy = "early"
cache.refresh = "none"
"#;
    let experiment = read(text).unwrap();
    let [a, b, c] = [0, 1, 2].map(|arm: usize| burst(&experiment.cells[arm]).strategy.clone());
    assert_eq!(a.ttl, Some(Duration::from_secs(10)));
    assert_eq!(
        (a.swr, a.sie, a.throttle),
        (Duration::from_secs(5), Duration::from_hours(1), Duration::from_secs(3))
    );
    assert_eq!((a.load.soft_timeout, a.refresh), (None, Refresh::XFetch { beta: 2.0 }));
    let breaker = Breaker { min_calls: 7, ramp: Duration::from_mins(1), ..Breaker::DEFAULT };
    assert_eq!(a.breaker, Some(breaker));
    assert_eq!((b.breaker, b.refresh), (None, Refresh::Early { at: 0.5 }));
    assert_eq!((c.breaker, c.refresh), (None, Refresh::None));
}

#[test]
fn invalid_combinations_are_refused() {
    let cache = |lines: &str| with(&format!("[cache]\n{lines}"));
    for (lines, message) in [
        (
            "swr = \"1s\"",
            "without a ttl only an invalidation makes values stale: give one, or write ttl = \"none\"",
        ),
        (
            "ttl = \"1s\"\nload.soft_timeout = \"1s\"",
            "`soft_timeout` answers with something stale: give `sie` or `swr`, or leave it out",
        ),
        ("ttl = \"1s\"\njitter = 1.5", "`jitter` is a share of the ttl, from 0 to 1"),
        (
            "ttl = \"1s\"\nrefresh = { early = { at = 1.0 } }",
            "`at` is a share of the ttl, above 0 and below 1",
        ),
        ("ttl = \"1s\"\nrefresh = { xfetch = { beta = 0.0 } }", "`beta` has to be above 0"),
        ("breaker = { min_calls = 0 }", "the breaker's `min_calls` is from 1 to 10,000"),
        ("breaker = { errors_rate = 0.0 }", "`errors_rate` is a share of the loads, above 0 and up to 1"),
        ("breaker = { probes = 0 }", "the breaker's `period` and `probes` have to be above 0"),
    ] {
        let (found, place, _) = read(&cache(lines)).unwrap_err();
        assert_eq!(found, message);
        assert!(!place.is_empty(), "{lines}: it has a place");
    }
    assert_refused(&[
        (
            cache("breaker = { min_call = 3 }"),
            "unknown key `min_call`",
            "min_call",
            "did you mean `min_calls`?",
        ),
        (
            cache("breaker = \"on\""),
            "`on` is not a valid breaker: write a table such as { min_calls = 20, open_for = \"5s\" }, or \"none\"",
            "\"on\"",
            "",
        ),
        (
            cache("refresh = \"early\""),
            "`early` is not a valid refresh: write a table such as { early = { at = 0.8 } }, { xfetch = { beta = 1.0 } }, \
             or \"none\"",
            "\"early\"",
            "",
        ),
    ]);
}

#[test]
fn shared_tiers_need_open_loads_in_real_time() {
    let live = |cache: &str| {
        let open = open_with(cache).replace("simulated:9", "sqlite:");
        read(&open)
            .map(|experiment| target::<EngineTarget<OpenLoad>>(&experiment.cells[0]).load.shared.clone())
    };
    let tier = live("[cache]\nshared = \"redis://:sesame@host:1/2?timeout=1s\"").unwrap().expect("a tier");
    assert_eq!((tier.url.to_string().as_str(), tier.has_memory), ("redis://host:1/2", true));
    assert!(!format!("{tier:?}").contains("sesame"));
    let tier = live("[cache]\nshared = \"redis:\"\nmemory = false").unwrap().expect("a tier");
    assert!(tier.url.is_started() && !tier.has_memory);
    assert!(live("[cache]\nmemory = true").unwrap().is_none());
    assert_refused(&[
        (
            open_with("[cache]\nshared = \"redis:\""),
            "a shared tier answers in real time",
            "\"redis:\"",
            "write clock = \"live\" into [target], or name a real source in [origin]",
        ),
        (
            with("[cache]\nshared = \"redis:\""),
            "a shared tier is for open loads: write a `rate` and a `duration` into [load]",
            "\"redis:\"",
            "",
        ),
        (
            open_with("[cache]\nmemory = false"),
            "without memory there has to be a shared tier: write shared = \"redis:\"",
            "false",
            "",
        ),
        (
            open_with("[cache]\nshared = \"memcached://host\""),
            "redis: a URL begins with redis://, rediss:// or redis+cluster://",
            "\"memcached://host\"",
            "",
        ),
    ]);
}
