//! Parsing never panics, and every error has a place in the text, a message and a remedy.

use std::path::Path;

use proptest::{prelude::*, sample::Index};
use serde_json::{Map, Value, json};
use stockade_origin::recipe::Recipe;

use crate::recipes::{property, replay::replay, try_parse, valid_files};

/// Parses the text, and checks the result. Returns valid recipes.
fn check(text: &str) -> Option<Vec<Recipe>> {
    property::check(text, Path::new(env!("CARGO_MANIFEST_DIR")))
}

/// JSON with keys and values of recipes in random places.
fn jumbled_recipe() -> impl Strategy<Value = Value> {
    let number =
        prop_oneof![Just(0.0), Just(0.5), Just(1.0), Just(200.0), any::<f64>()].prop_map(Value::from);
    let integer = prop_oneof![Just(0), 1..3_u64, 199..601_u64, any::<u64>()].prop_map(Value::from);
    let text = prop_oneof![
        "[0-9]{1,3}(b|kb|mb|s|ms|kb/s|)",
        "(<<|>>|[0-9]kb|version|\n|é){0,6}",
        "/[a-z]{0,2}[*]?",
        "(http|https)://[a-z:@0-9/]{0,8}",
        "(reset|silent|refuse|normal|empirical)[(]?(mean=|sd=|[0-9]s|,){0,4}[)]?",
        ".{0,8}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number,
        integer,
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        let key = prop::sample::select(vec![
            "origin",
            "body",
            "random_content",
            "headers",
            "stages",
            "route",
            "capacity",
            "etag",
            "last_modified",
            "version_every",
            "owner",
            "variant",
            "at",
            "status",
            "latency",
            "fault",
            "byte_rate",
            "workers",
            "queue",
            "200",
            "503",
            "reset",
            "silent",
            "x-a",
            "ETag",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..6).prop_map(|keys| {
                Value::from(
                    keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>(),
                )
            }),
        ]
    })
}

/// A valid recipe with any combination of keys.
fn valid_recipe() -> impl Strategy<Value = Value> {
    let content = prop_oneof![
        "(a|é|\n|<<[0-9]{1,3}(b|kb)>>|<<version>>|\"){0,8}".prop_map(|body| ("body", body)),
        "[0-9]{1,4}(b|kb)".prop_map(|size| ("random_content", size)),
        "https?://[a-z]{1,5}(:8081)?/[a-z]{0,5}".prop_map(|url| ("origin", url)),
    ];
    let share = |to: f64| (1..1_000_u32).prop_map(move |share| f64::from(share) / 1_000.0 * to);
    let status = prop_oneof![
        (200..600_u16).prop_map(Value::from),
        (200..400_u16, 400..600_u16, share(1.0))
            .prop_map(|(a, b, share)| json!({a.to_string(): share, b.to_string(): 1.0 - share})),
    ];
    let latency = prop_oneof![
        Just(json!(0)),
        "[0-9]{1,3}(us|ms|s)".prop_map(Value::from),
        "1ms\\.\\.[1-9]s".prop_map(Value::from),
        "(normal\\(mean=[0-9]s, sd=1s\\)|lognormal\\(p99=9s, median=[1-9]s\\)|exponential\\(mean=[0-9]ms\\))"
            .prop_map(Value::from),
    ];
    let fault = prop_oneof![
        Just(Value::Null),
        prop::sample::select(vec!["refuse", "silent", "reset", "cut", "malformed"]).prop_map(Value::from),
        (share(0.5), share(0.5)).prop_map(|(a, b)| json!({"reset": a, "cut": b})),
    ];
    let rate = prop::option::of("[1-9][0-9]{0,2}(b|kb|mb)/s");
    let stage = (status, latency, fault, rate).prop_map(
        |(status, latency, fault, rate)| json!({"status": status, "latency": latency, "fault": fault, "byte_rate": rate}),
    );
    let stages = prop::collection::vec(stage, 0..4).prop_map(|mut stages| {
        for (at, stage) in stages.iter_mut().enumerate() {
            stage["at"] = if at == 0 { json!(0) } else { json!(format!("{at}s")) };
        }
        stages
    });
    let headers = prop::collection::btree_map("x-[a-z]{1,4}", "[ -~é]{0,8}", 0..3);
    let capacity = prop::option::of((1..=1_000_000_u32, 0..=1_000_000_u32));
    let rest = (capacity, any::<Option<bool>>(), any::<bool>(), prop::option::of("[1-9]{1,3}(ms|s|h)"));
    (content, stages, headers, prop::option::of("/[a-z/]{0,8}[*]?"), rest).prop_map(
        |((key, content), stages, headers, route, (capacity, etag, last_modified, every))| {
            let capacity = capacity.map(|(workers, queue)| json!({"workers": workers, "queue": queue}));
            json!({
                key: content, "stages": stages, "headers": headers, "route": route, "capacity": capacity,
                "etag": etag, "last_modified": last_modified, "version_every": every,
                "owner": etag.map(|_| "cookie"), "variant": last_modified.then_some("Accept-Language"),
            })
        },
    )
}

/// Offsets of token boundaries, between which a mutation removes or doubles text.
fn boundaries(text: &str) -> Vec<usize> {
    let is_boundary = |(at, char): &(usize, char)| !char.is_alphanumeric() || *at == 0;
    text.char_indices().filter(is_boundary).map(|(at, _)| at).chain([text.len()]).collect()
}

proptest! {
    #[test]
    fn any_text_parses_or_fails_cleanly(text in ".{0,64}") {
        check(&text);
    }

    #[test]
    fn any_punctuation_parses_or_fails_cleanly(text in r#"([\[\]{},:"'\\/*#]|\\u[0-9a-f]{0,4}|"at"|"body"|[0-9.eE+-]|true|null|\s|é|😀){0,40}"#) {
        check(&text);
    }

    #[test]
    fn layout_of_json_does_not_matter(value in jumbled_recipe()) {
        let is_valid = check(&value.to_string()).is_some();
        let pretty = check(&serde_json::to_string_pretty(&value).unwrap());
        prop_assert_eq!(is_valid, pretty.is_some());
    }

    #[test]
    fn recipe_with_a_changed_byte_parses_or_fails_cleanly(file in any::<Index>(), at in any::<Index>(), byte in any::<u8>()) {
        let files = valid_files();
        let mut bytes = file.get(&files).1.clone().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        check(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn truncated_recipe_is_rejected(file in any::<Index>(), at in any::<Index>()) {
        let files = valid_files();
        let text = &file.get(&files).1;
        let at = at.index(text.trim_end().len());
        prop_assert!(check(&text[..at]).is_none());
    }

    #[test]
    fn recipe_with_edited_tokens_parses_or_fails_cleanly(
        file in any::<Index>(),
        edits in prop::collection::vec((any::<Index>(), any::<bool>()), 1..4),
    ) {
        let files = valid_files();
        let mut text = file.get(&files).1.clone();
        for (at, is_doubled) in edits {
            let boundaries = boundaries(&text);
            let at = at.index(boundaries.len().saturating_sub(1).max(1));
            let Some(&[from, to]) = boundaries.get(at..at + 2) else { break };
            let token = text[from..to].to_owned();
            text.replace_range(from..to, &if is_doubled { token.repeat(2) } else { String::new() });
        }
        check(&text);
    }

    #[test]
    fn json_of_a_random_recipe_parses_to_the_same_recipe(value in valid_recipe()) {
        let text = value.to_string();
        let recipes = check(&text);
        prop_assert!(recipes.is_some(), "{text}");
        property::check_round_trip(&recipes.unwrap_or_default(), Path::new(env!("CARGO_MANIFEST_DIR")));
    }

    #[test]
    fn random_recipe_with_a_changed_byte_parses_or_fails_cleanly(value in valid_recipe(), at in any::<Index>(), byte in any::<u8>()) {
        let mut bytes = value.to_string().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Some(recipes) = check(&String::from_utf8_lossy(&bytes)) {
            property::check_round_trip(&recipes, Path::new(env!("CARGO_MANIFEST_DIR")));
        }
    }
}

#[test]
fn json_of_a_known_recipe_parses_to_the_same_recipe() {
    for (name, text) in valid_files() {
        let recipes = try_parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        property::check_round_trip(&recipes, Path::new(env!("CARGO_MANIFEST_DIR")));
    }
}

/// As the fuzz target does.
fn check_input(input: &[u8]) {
    let folder = Path::new("/nonexistent");
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Some(recipes) = property::check(text, folder) {
        property::check_round_trip(&recipes, folder);
    }
}

#[test]
fn corpus_has_the_property() {
    replay("recipe", check_input);
}
