//! Requests as text; none is sent.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use http::{HeaderName, uri::PathAndQuery};

use crate::{template::CONNECTION_HEADERS, url::parse_url};

fn targets(urls: &[&str]) -> Vec<RequestTemplate> {
    urls.iter().map(|url| RequestTemplate::get(parse_url(url).unwrap())).collect()
}

fn with_keys(keys: &str) -> TrafficOptions {
    TrafficOptions { keys: Some(keys.parse().unwrap()), ..TrafficOptions::default() }
}

/// The paths of the first requests.
fn paths(traffic: &Traffic, count: u64) -> Vec<String> {
    (0..count).map(|n| traffic.request(n).path.into_owned()).collect()
}

#[test]
fn sequential_requests_borrow_their_paths() {
    let traffic = Traffic::new(
        targets(&["http://a/1?x", "http://a/2", "http://a"]),
        TrafficOptions::default(),
        Seed(1),
    );
    let traffic = traffic.unwrap();
    assert_eq!(paths(&traffic, 4), ["/1?x", "/2", "/", "/1?x"]);
    assert!((0..3).all(|n| matches!(traffic.request(n).path, Cow::Borrowed(_))));
    let one = Traffic::single_unchecked(targets(&["http://a?b"]).remove(0));
    assert_eq!((one.request(u64::MAX).template_index, paths(&one, 2)), (0, vec!["/?b".to_owned(); 2]));
}

#[test]
fn random_order_depends_on_the_seed_alone() {
    let order = TrafficOptions { order: RequestOrder::Random, ..TrafficOptions::default() };
    let draw = |seed: u64| {
        let traffic =
            Traffic::new(targets(&["http://a/0", "http://a/1", "http://a/2"]), order.clone(), Seed(seed));
        let traffic = traffic.unwrap();
        (0..30_000).map(move |n| traffic.request(n).template_index).collect::<Vec<_>>()
    };
    let drawn = draw(1);
    for index in 0..3 {
        let count = drawn.iter().filter(|drawn| **drawn == index).count();
        // A third of 30,000, and five standard deviations.
        assert!((9_590..10_410).contains(&count), "{index}: {count}");
    }
    assert_eq!(drawn, draw(1));
    assert_ne!(drawn, draw(2));
}

#[test]
fn cache_bust_per_round_keeps_repetitions() {
    let variety = TrafficOptions {
        order: RequestOrder::Listed([1, 1, 0].into()),
        cache_bust: Some(CacheBust::EveryRound(Seed(0xa))),
        ..TrafficOptions::default()
    };
    let traffic = Traffic::new(targets(&["http://a/0", "http://a/1?q"]), variety, Seed(1)).unwrap();
    let seed = "000000000000000a";
    let expected = [
        format!("/1?q&stockade={seed}0"),
        format!("/1?q&stockade={seed}0"),
        format!("/0?stockade={seed}0"),
        format!("/1?q&stockade={seed}1"),
    ];
    assert_eq!(paths(&traffic, 4), expected);
}

#[test]
fn listed_order_repeats() {
    let listed = |list: &[u32]| {
        let variety =
            TrafficOptions { order: RequestOrder::Listed(list.into()), ..TrafficOptions::default() };
        Traffic::new(targets(&["http://a/0", "http://a/1"]), variety, Seed(1))
    };
    assert_eq!(paths(&listed(&[1, 1, 0]).unwrap(), 5), ["/1", "/1", "/0", "/1", "/1"]);
    assert_eq!(listed(&[]).unwrap_err(), TrafficError::NoTargets);
    assert_eq!(
        listed(&[0, 2]).unwrap_err().to_string(),
        "the order has target 2, and there are 2: number them from 0"
    );
}

#[test]
fn keys_replace_placeholders() {
    for (url, path) in [
        ("http://a/doc/{key}", "/doc/7"),
        ("http://a/{key}/{key:03}?{key}", "/7/007?7"),
        ("http://a/?id={key:020}", "/?id=00000000000000000007"),
        ("http://a/{key:01}", "/7"),
        ("http://a/{other}{key}{", "/{other}7{"),
    ] {
        let traffic = Traffic::new(targets(&[url]), with_keys("scan:10"), Seed(1)).unwrap();
        assert_eq!(traffic.request(17).path, path, "{url}");
    }
    let mixed =
        Traffic::new(targets(&["http://a/{key}", "http://a/same"]), with_keys("scan:10"), Seed(1)).unwrap();
    assert_eq!(paths(&mixed, 4), ["/0", "/same", "/2", "/same"]);
    assert!(matches!(mixed.request(1).path, Cow::Borrowed(_)));
}

#[test]
fn connection_headers_are_dropped() {
    let mut target = RequestTemplate::new(Method::POST, "http://a/".parse().unwrap());
    for name in CONNECTION_HEADERS {
        target.headers.insert(name, "5".parse().unwrap());
    }
    target.headers.insert("x-team", "web".parse().unwrap());
    let traffic = Traffic::new(vec![target], TrafficOptions::default(), Seed(1)).unwrap();
    let names: Vec<_> = traffic.templates()[0].headers.keys().map(HeaderName::as_str).collect();
    assert_eq!(names, ["x-team"]);
}

#[test]
fn cache_bust_urls_are_unique_over_requests_and_runs() {
    let variety = |seed| TrafficOptions {
        cache_bust: Some(CacheBust::EveryRequest(Seed(seed))),
        ..TrafficOptions::default()
    };
    let hex = "0000000000000001";
    for (url, before) in [
        ("http://a", "/?stockade="),
        ("http://a/b", "/b?stockade="),
        ("http://a/b?c=d", "/b?c=d&stockade="),
        ("http://a/b?", "/b?stockade="),
        ("http://a/b?c&", "/b?c&stockade="),
        ("http://a/b#part", "/b?stockade="),
    ] {
        let traffic = Traffic::new(targets(&[url]), variety(1), Seed(1)).unwrap();
        assert_eq!(traffic.request(0xbeef).path, format!("{before}{hex}beef"), "{url}");
    }
    let mut seen = BTreeSet::new();
    for seed in 1..=3 {
        let traffic = Traffic::new(targets(&["http://a/b"]), variety(seed), Seed(1)).unwrap();
        seen.extend(paths(&traffic, 1_000));
        seen.insert(traffic.request(u64::MAX).path.into_owned());
    }
    assert_eq!(seen.len(), 3_003);
    let both = TrafficOptions { keys: Some("scan:10".parse().unwrap()), ..variety(1) };
    let traffic = Traffic::new(targets(&["http://a/{key}"]), both, Seed(1)).unwrap();
    assert_eq!(traffic.request(13).path, format!("/3?stockade={hex}d"));
}

#[test]
fn invalid_traffic_has_a_remedy() {
    let error_of = |urls: &[&str], variety| {
        let targets = urls.iter().map(|url| RequestTemplate::get(url.parse().unwrap())).collect();
        Traffic::new(targets, variety, Seed(1)).unwrap_err().to_string()
    };
    let place = "in a URL is not a placeholder: write `{key}`, or `{key:08}` for at least eight digits";
    for (url, message) in [
        ("/x", "`/x` has no host: write one before the path, as in `http://localhost:8080/`"),
        ("ftp://a/x", "`ftp://a/x` is neither http nor https: write `http://` or `https://` before the host"),
        (
            "http://a/{key}",
            "`http://a/{key}` has a placeholder, and there are no keys: add some, as in `--keys zipf:10000`",
        ),
        ("http://a/{key:8}", &format!("`{{key:8}}` {place}")),
        ("http://a/{keys}", &format!("`{{keys}}` {place}")),
        ("http://a/{key:021}", &format!("`{{key:021}}` {place}")),
        ("http://a/{key:0}", &format!("`{{key:0}}` {place}")),
        ("http://a/{key", &format!("`{{key` {place}")),
    ] {
        assert_eq!(error_of(&[url], TrafficOptions::default()), message, "{url}");
    }
    assert_eq!(
        error_of(&["http://a/", "http://a/b"], with_keys("zipf:10")),
        "no URL has a placeholder: write `{key}` into a path or a query, or remove `--keys zipf:10:0.99`"
    );
    assert_eq!(
        error_of(&[], TrafficOptions::default()),
        "there is no target: give a URL, or a file with at least one"
    );
    let connect = RequestTemplate::new(Method::CONNECT, "http://a/".parse().unwrap());
    assert_eq!(
        Traffic::new(vec![connect], TrafficOptions::default(), Seed(1)).unwrap_err().to_string(),
        "`CONNECT http://a/` requests a tunnel: write another method, such as GET"
    );
}

#[test]
fn keys_round_trip_as_text() {
    for (text, written) in [
        ("zipf:10", "zipf:10:0.99"),
        (" zipf : 1_000 : 1 ", "zipf:1000:1"),
        ("zipf:1:0", "zipf:1:0"),
        ("uniform:1000000", "uniform:1000000"),
        ("scan:1_000_000_000_000_000", "scan:1000000000000000"),
    ] {
        assert_eq!(text.parse::<Keys>().unwrap().to_string(), written, "{text}");
    }
    let exponent = "is not an exponent: write from 0 (uniform) to 10, such as `zipf:10000:0.99`";
    let range = "has a number of keys out of range: write from 1 to 1_000_000_000_000_000 keys";
    for (text, message) in [
        ("zpf:10", "`zpf` is not a distribution of keys: did you mean `zipf`?"),
        ("pareto:10", "`pareto` is not a distribution of keys: use one of: zipf, uniform, scan"),
        ("10", "`10` is not a distribution of keys: use one of: zipf, uniform, scan"),
        ("uniform", "`uniform` does not say how many keys there are: write `uniform:10000`"),
        ("scan:", "`scan` does not say how many keys there are: write `scan:10000`"),
        ("zipf:many", "`zipf:many` is not a number of keys: write `zipf:10000`"),
        ("zipf:-1", "`zipf:-1` is not a number of keys: write `zipf:10000`"),
        ("scan:_", "`scan:_` is not a number of keys: write `scan:10000`"),
        ("zipf:0", &format!("`zipf:0` {range}")),
        ("scan:1_000_000_000_000_001", &format!("`scan:1_000_000_000_000_001` {range}")),
        ("zipf:10:hot", &format!("`hot` {exponent}")),
        ("zipf:10:-1", &format!("`-1` {exponent}")),
        ("zipf:10:nan", &format!("`nan` {exponent}")),
        ("zipf:10:1:2", "`zipf:10:1:2` has too many parts: write `zipf:10:1`"),
        ("uniform:10:1", "`uniform:10:1` has too many parts: write `uniform:10`"),
    ] {
        assert_eq!(text.parse::<Keys>().unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn keys_follow_their_distribution() {
    for (text, weight) in [
        ("zipf:20", &(|k: f64| (k + 1.0).powf(-0.99)) as &dyn Fn(f64) -> f64),
        ("zipf:20:1", &|k: f64| 1.0 / (k + 1.0)),
        ("zipf:20:1.5", &|k: f64| (k + 1.0).powf(-1.5)),
        ("zipf:20:0", &|_| 1.0),
        ("uniform:20", &|_| 1.0),
    ] {
        let keys: Keys = text.parse().unwrap();
        let mut counts = [0_u32; 20];
        (0..100_000).for_each(|n| counts[usize::try_from(keys.nth(n, Seed(1))).unwrap()] += 1);
        let all: f64 = (0..20).map(|k| weight(f64::from(k))).sum();
        let chi_squared: f64 = (0..20_u32)
            .map(|k| {
                let expected = 100_000.0 * weight(f64::from(k)) / all;
                (f64::from(counts[k as usize]) - expected).powi(2) / expected
            })
            .sum();
        // 19 degrees of freedom: 43.82 is exceeded by chance once in a thousand seeds.
        assert!(chi_squared < 43.82, "{text}: {chi_squared} {counts:?}");
    }
}

proptest! {
    #[test]
    fn keys_round_trip(count in 1..=1_000_000_000_000_000_u64, exponent in 0.0..=10.0_f64) {
        for text in [format!("zipf:{count}:{exponent}"), format!("uniform:{count}"), format!("scan:{count}")] {
            prop_assert_eq!(text.parse::<Keys>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn keys_are_below_their_count(count in 1..=1_000_000_000_000_000_u64, exponent in 0.0..=10.0_f64, n: u64, seed: u64) {
        for text in [format!("zipf:{count}:{exponent}"), format!("uniform:{count}"), format!("scan:{count}")] {
            prop_assert!(text.parse::<Keys>().unwrap().nth(n, Seed(seed)) < count);
        }
    }

    #[test]
    fn arbitrary_keys_do_not_panic(text in ".{0,12}", near in "(zipf|uniform|scan)?[:0-9_.e-]{0,24}") {
        for text in [text, near] {
            let _ = text.parse::<Keys>().map(|keys| keys.nth(7, Seed(1)));
        }
    }

    #[test]
    fn arbitrary_paths_do_not_panic(
        path in "/([a-z?&=#{}:é]|\\{key\\}|\\{key:0[0-9]{1,2}\\}){0,12}", n: u64, cache_bust: bool, keys: bool,
    ) {
        let Ok(url) = parse_url(&format!("http://a{path}")) else { return Ok(()) };
        let keys = keys.then(|| "uniform:1000".parse().unwrap());
        let cache_bust = cache_bust.then_some(CacheBust::EveryRequest(Seed(7)));
        let variety = TrafficOptions { keys, cache_bust, ..TrafficOptions::default() };
        if let Ok(traffic) = Traffic::new(vec![RequestTemplate::get(url)], variety, Seed(1)) {
            let path = traffic.request(n).path;
            let parsed: PathAndQuery = path.parse().unwrap();
            prop_assert_eq!(parsed.as_str(), &*path);
            let has_place = path.contains("{key");
            prop_assert!(!has_place);
        }
    }
}
