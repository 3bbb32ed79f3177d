//! Extensions of `OriginSimulator`'s recipes.

use std::{path::Path, time::Duration};

use proptest::prelude::*;
use stockade_model::{capacity::Capacity, seed::Seed};
use stockade_origin::{
    recipe::{Content, TemplatePart, parse},
    stages::{Behavior, Fault, Stage},
};

use crate::recipes::{parse_one, try_parse};

fn stage(text: &str) -> Stage {
    let recipe = parse_one(&format!(r#"{{"body": "a", "stages": [{{"at": 0, {text}}}]}}"#));
    recipe.stages.last().unwrap().clone()
}

/// The share of 100,000 requests whose behavior matches.
fn share(stage: &Stage, matches: impl Fn(&Behavior) -> bool) -> f64 {
    let count = (0..100_000).filter(|n| matches(&stage.draw(&mut Seed(7).nth(*n)))).count();
    count as f64 / 100_000.0
}

#[test]
fn absent_keys_have_defaults() {
    let recipe = parse_one(r#"{"body": "a"}"#);
    assert_eq!(recipe.route, "/*");
    assert_eq!(recipe.content, Content::Template(vec![TemplatePart::Text("a".to_owned())]));
    assert!(recipe.headers.is_empty() && recipe.stages.last().is_none());
    assert_eq!((recipe.capacity, recipe.version_every), (None, None));
    assert_eq!((recipe.owner, recipe.variant), (None, None));
    assert!(!recipe.etag && !recipe.last_modified);

    let all_null = r#"{"body": "a", "origin": null, "random_content": null, "headers": null, "stages": null,
        "route": null, "capacity": null, "etag": null, "last_modified": null, "version_every": null,
        "owner": null, "variant": null}"#;
    let json = parse_one(all_null).json;
    assert_eq!(json["headers"], serde_json::json!({}));
    assert_eq!(json["stages"], serde_json::json!([]));
    assert_eq!(json["route"], "/*");
    let without_json = |text| {
        let mut recipe = parse_one(text);
        recipe.json = serde_json::Value::Null;
        recipe
    };
    assert_eq!(without_json(all_null), without_json(r#"{"body": "a"}"#));

    let behavior =
        parse_one(r#"{"body": "a", "stages": [{"at": 0}]}"#).stages.last().unwrap().constant().unwrap();
    assert_eq!(
        (behavior.status.as_u16(), behavior.latency, behavior.fault, behavior.byte_rate),
        (200, Duration::ZERO, None, None)
    );
    assert_eq!(try_parse("[]").unwrap(), []);
}

#[test]
fn capacity_versions_and_rates_are_parsed() {
    let recipe = parse_one(
        r#"{"body": "<<version>>: <<1kb>>", "capacity": {"workers": 8, "queue": 0}, "etag": true,
            "last_modified": true, "version_every": "1.5s", "owner": "Cookie", "variant": "accept-language",
            "headers": {"Content-Length": "7", "transfer-encoding": "chunked", "X-Name": "né"},
            "stages": [{"at": 0, "byte_rate": "64kb/s"}]}"#,
    );
    let parts = vec![TemplatePart::Version, TemplatePart::Text(": ".to_owned()), TemplatePart::Random(1_024)];
    assert_eq!(recipe.content, Content::Template(parts));
    assert_eq!(recipe.capacity, Some(Capacity { workers: 8, queue: 0 }));
    assert!(recipe.etag && recipe.last_modified);
    assert_eq!([recipe.owner.unwrap(), recipe.variant.unwrap()], ["cookie", "accept-language"]);
    assert_eq!(recipe.version_every, Some(Duration::from_millis(1_500)));
    let headers: Vec<_> =
        recipe.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    assert_eq!(headers, [("x-name", "né".as_bytes())]);
    assert_eq!(recipe.stages.last().unwrap().byte_rate, Some(65_536));
}

#[test]
fn shares_are_those_of_the_recipe() {
    let random = stage(r#""status": {"503": 0.1, "200": 0.9}, "fault": {"silent": 0.05, "reset": 0.2}"#);
    for (expected, drawn) in [
        (0.1, share(&random, |behavior| behavior.status == 503)),
        (0.9, share(&random, |behavior| behavior.status == 200)),
        (0.05, share(&random, |behavior| behavior.fault == Some(Fault::Silent))),
        (0.2, share(&random, |behavior| behavior.fault == Some(Fault::Reset))),
        (0.75, share(&random, |behavior| behavior.fault.is_none())),
    ] {
        // More than five standard deviations of 100,000 draws.
        assert!((expected - drawn).abs() < 0.008, "{expected}: {drawn}");
    }
    // The order of keys does not change the draws.
    let same = stage(r#""status": {"200": 0.9, "503": 0.1}, "fault": {"reset": 0.2, "silent": 0.05}"#);
    assert_eq!(random, same);
}

#[test]
fn choice_without_alternative_is_constant() {
    for text in [r#""fault": "refuse""#, r#""fault": {"refuse": 1}"#, r#""fault": {"refuse": 1.0}"#] {
        assert!(stage(text).always_refuses(), "{text}");
    }
    assert_eq!(stage(r#""fault": {}"#), stage(r#""status": 200"#));
    assert_eq!(stage(r#""status": {"503": 1}"#), stage(r#""status": 503"#));
    let never_none = stage(r#""fault": {"reset": 0.1, "silent": 0.2, "cut": 0.7}"#);
    assert!(share(&never_none, |behavior| behavior.fault.is_none()) < 1e-9);
}

#[test]
fn latency_files_are_relative_to_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("seen.txt"), "7ms\n").unwrap();
    let text = r#"{"body": "a", "stages": [{"at": 0, "latency": "empirical(seen.txt)"}]}"#;
    let recipes = parse(text, "recipe.json", folder.path()).unwrap();
    let behavior = recipes[0].stages.last().unwrap().draw(&mut Seed(1).nth(0));
    assert_eq!(behavior.latency, Duration::from_millis(7));
    let error = parse(text, "the recipe", Path::new("nowhere")).unwrap_err().in_one_line();
    assert_eq!(
        error,
        "the recipe:1:47: nowhere/seen.txt: cannot read it: No such file or directory (os error 2): name a file \
         with one duration per line, relative to the recipe's folder"
    );
}

proptest! {
    #[test]
    fn order_of_stages_does_not_matter(
        stages in Just((0..12_u16).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let text = |stages: &[u16]| {
            let stages: Vec<_> = stages
                .iter()
                .map(|n| format!(r#"{{"at": "{}ms", "status": {}, "latency": "{n}s"}}"#, 500 * n, 200 + n))
                .collect();
            format!(r#"{{"body": "a", "stages": [{}]}}"#, stages.join(", "))
        };
        let sorted: Vec<_> = (0..12).collect();
        prop_assert_eq!(parse_one(&text(&stages)).stages, parse_one(&text(&sorted)).stages);
    }
}

#[test]
fn strings_of_a_single_recipe_may_contain_line_breaks() {
    let multiline =
        parse_one("{\"bo\ndy\": \"<<ver\r\nsion>>,\n a\\nb\",\n \"stages\": [{\"at\": \"4\ns\"}]}\n");
    let joined = parse_one(r#"{"body": "<<version>>, a\nb", "stages": [{"at": "4s"}]}"#);
    assert_eq!(multiline, joined);
}
