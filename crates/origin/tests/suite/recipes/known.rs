//! Recipes of `OriginSimulator` keep their meaning.

use std::{
    fmt::Write,
    iter::{once, successors},
    time::Duration,
};

use stockade_model::{seed::Seed, units::format_duration};
use stockade_origin::recipe::{Content, Recipe, TemplatePart};

use crate::recipes::{LOCAL, PLACEHOLDER, files, try_parse, valid_files};

/// A recipe on one line: route, content, headers, stages.
fn summary(recipe: &Recipe) -> String {
    let content = match &recipe.content {
        Content::Origin(url) => url.to_string().replace(LOCAL, PLACEHOLDER),
        Content::Random(bytes) => format!("{bytes} B"),
        Content::Template(parts) => parts.iter().fold("body: ".to_owned(), |body, part| match part {
            TemplatePart::Text(text) => body + text,
            TemplatePart::Random(bytes) => format!("{body}({bytes} B)"),
            TemplatePart::Version => body + "(version)",
        }),
    };
    let mut headers: Vec<_> =
        recipe.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    headers.sort();
    let headers = if headers.is_empty() { "-".to_owned() } else { headers.join(" + ") };
    let mut line = format!("    {} | {content} | {headers} |", recipe.route);
    let stages = &recipe.stages;
    let first = once(Duration::ZERO).filter(|zero| stages.last_started_at(*zero).is_some());
    let later = successors(stages.next_start_after(Duration::ZERO), |at| stages.next_start_after(*at));
    for at in first.chain(later) {
        let stage = stages.last_started_at(at).unwrap();
        assert_eq!(stage.at, at);
        let behavior = stage.draw(&mut Seed(1).nth(0));
        assert_eq!((behavior.fault, behavior.byte_rate), (None, None));
        let _ = write!(line, " {}: {} {}", format_duration(at), behavior.status.as_u16(), stage.latency);
    }
    line
}

#[test]
fn recipes_of_origin_simulator_keep_their_meaning() {
    let mut found = String::new();
    for (name, text) in valid_files() {
        let _ = writeln!(found, "{name}");
        for recipe in try_parse(&text).unwrap_or_else(|error| panic!("{name}: {}", error.in_one_line())) {
            assert!(!recipe.etag && !recipe.last_modified, "{name}");
            assert_eq!((recipe.capacity, recipe.version_every), (None, None), "{name}");
            let _ = writeln!(found, "{}", summary(&recipe));
        }
    }
    let expected = include_str!("known.txt").lines().skip_while(|line| !line.is_empty()).skip(1);
    assert_eq!(found.lines().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

#[test]
fn recipes_that_origin_simulator_never_serves_are_rejected() {
    let rejected = files().into_iter().filter(|(name, _)| name.starts_with("refused-"));
    let errors: Vec<_> = rejected.map(|(_, text)| try_parse(&text).unwrap_err().in_one_line()).collect();
    assert_eq!(
        errors,
        [
            "recipe.json:1:1: the recipe has no content: write one of `origin`, `body` and `random_content`",
            "recipe.json:24:14: the route `news/entertainment_and_arts` does not begin with `/`: write a path such \
             as `/news`, or a prefix such as `/news*`",
        ]
    );
}
