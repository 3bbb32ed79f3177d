use std::fmt::Write as _;

use super::*;
use crate::{
    PlanOptions, TtlOption,
    read::KeyRules,
    report::{CachePlan, FORMATS},
    testing,
};

/// The plan for lines of a second, a host, a URL and a size, for a ttl of a minute.
fn planned(lines: &str, rules: &KeyRules) -> CachePlan {
    let options = PlanOptions { ttls: vec![TtlOption::Fixed(Duration::from_mins(1))], ..testing::options() };
    testing::planned(lines, Some("csv:time=0,host=1,url=2,size=3"), rules, &options).expect("a plan")
}

fn findings(lines: &str) -> Vec<Finding> {
    planned(lines, &KeyRules::default()).findings
}

fn lines(requests: u64, line: impl Fn(u64) -> String) -> String {
    (0..requests).fold(String::new(), |mut text, n| {
        let _ = writeln!(text, "{}", line(n));
        text
    })
}

/// Ten pages, each with a value of its own for each request.
#[test]
fn parameter_that_makes_a_key_of_each_request_is_named() {
    let log = lines(1_000, |n| format!("{n}.5,,/page/{}?lang=en&cb={n},{}", n % 10, 1_000 + n % 10 * 500));
    let plan = planned(&log, &KeyRules::default());
    let [
        Finding::Parameters {
            names,
            keys: 1_000,
            keys_left: 10,
            same_size: true,
            requests: 1_000,
            hit_ratio,
            hit_ratio_without,
        },
    ] = &plan.findings[..]
    else {
        panic!("{:?}", plan.findings)
    };
    // A request for a page each ten seconds, and a load each minute: of 100 requests for each page 17 are loads.
    assert!(
        names == &["cb"] && hit_ratio.abs() < 1e-9 && (hit_ratio_without - 0.83).abs() < 0.005,
        "{hit_ratio_without}"
    );
    let text = "1,000 keys differ in parameters only, 10 are left without cb, and their responses have the same size: \
     --drop-parameters cb has a hit ratio of 8";
    for format in FORMATS.parsed_names() {
        let words = if format == "json" { "\"parameters\"" } else { text };
        let page =
            testing::rendered(&plan, format).replace("<span class=\"option\">", "").replace("</span>", "");
        let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains(words), "{format}");
    }
    // A plan without the parameter has the hit ratio of the finding.
    let names = ["cb".to_owned()].to_vec();
    let rules =
        KeyRules { dropped_parameters: crate::read::DroppedParameters::Named(names), ..KeyRules::default() };
    let without = planned(&log, &rules);
    let hits = 1.0 - without.recommendation.as_ref().expect("a cache").point.miss_ratio;
    assert!((hits - hit_ratio_without).abs() < 1e-9 && without.findings.is_empty(), "{hits}");
}

/// Neither has an effect alone.
#[test]
fn two_unique_parameters_are_found_together() {
    let log = lines(1_000, |n| format!("{n}.5,,/page/{}?a={n}&b={}&page={},500", n % 10, n * 7, n % 2));
    let found = findings(&log);
    let Some(Finding::Parameters { names, keys_left, .. }) = found.first() else { panic!("{found:?}") };
    assert!(names.contains(&"a".to_owned()) && names.contains(&"b".to_owned()), "{names:?}");
    assert!(*keys_left <= 20, "{keys_left}");
}

/// Products of different sizes are different pages.
#[test]
fn parameter_that_changes_the_page_is_kept() {
    let log = lines(1_000, |n| format!("{n}.5,,/product?id={},{}", n % 500, 1_000 + n % 500 * 100));
    assert!(!findings(&log).iter().any(|finding| matches!(finding, Finding::Parameters { .. })));
}

#[test]
fn keys_that_are_requested_once_are_not_worth_a_cache() {
    let unique = lines(1_000, |n| format!("{n}.5,,/{n}/a,500"));
    assert_eq!(findings(&unique), [Finding::NoRepeats]);
    let most = lines(1_000, |n| format!("{n}.5,,/{}/a,500", if n % 25 == 0 { 0 } else { n }));
    assert_eq!(findings(&most), [Finding::UniqueKeys { share: 0.96 }]);
    assert!(
        testing::rendered(&planned(&most, &KeyRules::default()), "text")
            .contains("Do not cache this: 96.0 % of the requests are for keys that are requested once.")
    );
}

/// 100 pages in turn, one each ten seconds: each again after 1,000 seconds.
#[test]
fn ttl_that_is_shorter_than_the_time_between_requests_is_named() {
    let log = lines(1_000, |n| format!("{}.5,,/{}/a,500", n * 10, n % 100));
    let found = findings(&log);
    let [Finding::ShortTtl { repeat_s, ttl_s, hit_ratio }] = found[..] else { panic!("{found:?}") };
    // After an hour each page is loaded again: loads at 0 and 4,000 s and 8,000 s.
    assert_eq!((repeat_s, ttl_s), (1_000.0, 6 * 3_600));
    assert!((hit_ratio - 0.9).abs() < 1e-9, "{hit_ratio}");
    assert!(found[0].to_string().contains("--ttl 6h has a hit ratio of 90.0 %"), "{}", found[0]);
}

#[test]
fn responses_that_may_not_be_stored_are_counted() {
    let log = lines(1_000, |n| {
        format!(
            r#"{{"time":{n},"method":"GET","url":"/{}","status":200,"bytes":500,"cache_control":"private"}}"#,
            n % 10
        )
    });
    let plan = testing::planned(&log, None, &KeyRules::default(), &testing::options()).expect("a plan");
    assert_eq!(plan.findings, [Finding::NotStored { share: 1.0 }]);
}

/// Two shops with the same paths and other pages; `a` and `www.a` have the same.
#[test]
fn hosts_that_share_paths_are_named() {
    let log = lines(1_000, |n| {
        format!("{n}.5,{},/{}/x,{}", if n % 2 == 0 { "a" } else { "b" }, n % 10 / 2, 1_000 + n % 2 * 900)
    });
    let plan = planned(&log, &KeyRules::default());
    assert_eq!(plan.findings, [Finding::MergedHosts { hosts: 2, share: 1.0 }]);
    assert!(plan.findings[0].to_string().ends_with("100.0 % of the requests: --by-host keeps them apart."));
    assert_eq!(planned(&log, &KeyRules { by_host: true, ..KeyRules::default() }).findings, []);
    let same =
        lines(1_000, |n| format!("{n}.5,{},/{}/x,1000", if n % 2 == 0 { "a" } else { "www.a" }, n % 10 / 2));
    assert_eq!(findings(&same), []);
}

/// 300,000 requests for 3,000 paths: the sample is bounded, and says the same.
#[test]
fn sample_of_urls_is_bounded() {
    let log = lines(300_000, |n| {
        let path = n * 7_919 % 3_000;
        format!("{}.5,,/{path}/a?cb={n},{}", n / 1_000, 1_000 + path)
    });
    let found = findings(&log);
    let Some(Finding::Parameters { names, keys, keys_left, requests, hit_ratio, .. }) = found.first() else {
        panic!("{found:?}")
    };
    assert_eq!((names.as_slice(), *hit_ratio), (["cb".to_owned()].as_slice(), 0.0));
    assert!((25_000..=50_001).contains(requests) && keys == requests, "{requests} {keys}");
    // A quarter of the paths, until the sample is full.
    assert!((60..=70).contains(&(keys / keys_left)), "{keys} {keys_left}");
}
