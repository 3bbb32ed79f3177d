//! Every error names its place and a remedy in one sentence.

use std::time::Duration;

use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme};
use stockade_origin::recipe::RecipeError;

use crate::recipes::{parse_one, try_parse};

/// Replaces `<U+0000>` by that character, and `<nothing>` by nothing.
fn decode(recipe: &str) -> String {
    let mut text = String::new();
    let mut parts = recipe.split("<U+");
    text += parts.next().unwrap();
    for part in parts {
        let (code, rest) = part.split_once('>').unwrap();
        text.push(char::from_u32(u32::from_str_radix(code, 16).unwrap()).unwrap());
        text += rest;
    }
    text.replace("<nothing>", "")
}

fn error(text: &str) -> Box<RecipeError> {
    try_parse(text).expect_err(text)
}

/// The error in the format of `bad.txt`.
fn describe(text: &str) -> String {
    let error = error(text);
    let help = error.help().unwrap().to_string();
    let description = format!("{}:{}: {error}\n    {help}", error.line(), error.column());
    assert_eq!(error.in_one_line(), format!("recipe.json:{}", description.replace("\n    ", ": ")));
    description
}

#[test]
fn every_error_names_place_and_remedy() {
    let cases = include_str!("bad.txt").trim_end().split("\n\n").skip(1);
    let cases: Vec<_> = cases.filter(|case| !case.starts_with("##")).collect();
    assert!(cases.len() > 170, "{}", cases.len());
    for case in cases {
        let (recipe, expected) = case.split_once("\n    ").unwrap();
        assert_eq!(describe(&decode(recipe)), expected, "{recipe}");
    }
}

#[test]
fn texts_and_lists_are_bounded() {
    let list = |element: &str, count: usize| format!("[{}]", vec![element; count].join(","));
    let recipe = |key: &str, value: &str| format!(r#"{{"body": "a", "{key}": {value}}}"#);
    let stages = |count| {
        let stages: Vec<_> = (0..count).map(|at| format!(r#"{{"at": "{at}ms"}}"#)).collect();
        recipe("stages", &format!("[{}]", stages.join(",")))
    };
    let headers = |count| {
        let headers: Vec<_> = (0..count).map(|name| format!(r#""a{name}": """#)).collect();
        recipe("headers", &format!("{{{}}}", headers.join(",")))
    };
    let recipes = |count| {
        let recipes = (0..count).map(|route| recipe("route", &format!(r#""/{route}""#)));
        format!("[{}]", recipes.collect::<Vec<_>>().join(","))
    };
    assert_eq!(try_parse(&recipes(10_000)).unwrap().len(), 10_000);
    assert_eq!(parse_one(&headers(1_000)).headers.len(), 1_000);
    assert_eq!(parse_one(&stages(10_000)).stages.last().unwrap().at, Duration::from_millis(9_999));
    assert_eq!(
        parse_one(&recipe("capacity", r#"{"workers": 1000000, "queue": 1000000}"#)).capacity.unwrap().queue,
        1_000_000
    );
    let padded = recipe("etag", "true") + &" ".repeat(64 << 20);
    assert!(parse_one(&padded[..64 << 20]).etag);
    // Texts at the bound are rejected for another reason.
    assert!(describe(&("[".repeat(32) + &"]".repeat(32))).contains("a recipe cannot be a list"));
    assert!(describe(&list("0", 1_000_000)).contains("the text has more than 10,000 recipes"));
    for (text, column, message) in [
        ("[".repeat(100_000), 33, "brackets nest more than 32 levels"),
        (r#"{"a":"#.repeat(100_000), 161, "brackets nest more than 32 levels"),
        (list("0", 1_000_001), 2_000_001, "the text has more than a million values up to here"),
        (list("[]", 500_001), 1_500_001, "the text has more than a million values up to here"),
        (" ".repeat((64 << 20) + 1), 1, "the text has more than 64 MiB"),
        (recipes(10_001), 318_892, "the text has more than 10,000 recipes"),
        (stages(10_001), 168_916, "a recipe has at most 10,000 stages"),
        (headers(1_001), 10_917, "a recipe has at most 1,000 headers"),
    ] {
        let error = error(&text);
        assert_eq!((error.line(), error.column(), error.to_string().as_str()), (1, column, message));
    }
}

#[test]
fn terminal_report_shows_the_place_once() {
    let report = |text: &str| {
        let mut report = String::new();
        let theme = GraphicalTheme { characters: miette::ThemeCharacters::ascii(), ..GraphicalTheme::none() };
        let handler = GraphicalReportHandler::new_themed(theme).with_width(100);
        handler.render_report(&mut report, error(text).as_ref()).unwrap();
        "\n".to_owned() + &report
    };
    assert_eq!(
        report("{\n  \"body\": \"é\", \"route\": \"news\",\n  \"etag\": true\n}\n"),
        r#"
  x the route `news` does not begin with `/`
   ,-[recipe.json:2:25]
 1 | {
 2 |   "body": "é", "route": "news",
   :                         ^^^^^^
 3 |   "etag": true
   `----
  help: write a path such as `/news`, or a prefix such as `/news*`
"#
    );
    assert_eq!(
        report(r#"{"body": "a""#),
        r#"
  x the object that begins here is not closed
   ,-[recipe.json:1:1]
 1 | {"body": "a"
   : ^
   `----
  help: write `}` at its end
"#
    );
    let long = "b".repeat(1_000);
    assert_eq!(
        report(&format!(r#"{{"headers": {{"a": "{long}"}}, "body": "é<<1>>{long}"}}"#)),
        r#"
  x `<<1>>` is not a tag
   ,-[recipe.json:1:1034]
 1 | …bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"}, "body": "é<<1>>bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb…
   :                                                             ^^^^^
   `----
  help: write a size in b, kb or mb, such as `<<256kb>>`, or `<<version>>`
"#
    );
    assert!(report("").contains("[recipe.json:1:1]"));
}
