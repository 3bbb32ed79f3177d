//! What recipes of `OriginSimulator` mean.

use std::{
    fmt::Write,
    iter::{once, successors},
    time::Duration,
};

use stockade_model::{seed::Seed, units::format_duration};
use stockade_origin::recipe::{Content, Part, Recipe};

use crate::{LOCAL, PLACEHOLDER, files, recipes, try_read};

/// A recipe in one line: route; content; headers; stages.
fn told(recipe: &Recipe) -> String {
    let content = match &recipe.content {
        Content::Origin(url) => url.to_string().replace(LOCAL, PLACEHOLDER),
        Content::Random(bytes) => format!("{bytes} B"),
        Content::Template(parts) => parts.iter().fold("body: ".to_owned(), |body, part| match part {
            Part::Text(text) => body + text,
            Part::Random(bytes) => format!("{body}({bytes} B)"),
            Part::Version => body + "(version)",
        }),
    };
    let mut headers: Vec<_> =
        recipe.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    headers.sort();
    let headers = if headers.is_empty() { "-".to_owned() } else { headers.join(" + ") };
    let mut line = format!("    {} | {content} | {headers} |", recipe.route);
    let stages = &recipe.stages;
    let begin = once(Duration::ZERO).filter(|zero| stages.at(*zero).is_some());
    let later = successors(stages.next_after(Duration::ZERO), |at| stages.next_after(*at));
    for at in begin.chain(later) {
        let stage = stages.at(at).unwrap();
        assert_eq!(stage.at, at);
        let plan = stage.plan(&mut Seed(1).nth(0));
        assert_eq!((plan.fault, plan.byte_rate), (None, None));
        let _ = write!(line, " {}: {} {}", format_duration(at), plan.status.as_u16(), stage.latency);
    }
    line
}

#[test]
fn recipes_of_origin_simulator_mean_here_what_they_mean_there() {
    let mut found = String::new();
    for (name, text) in recipes() {
        let _ = writeln!(found, "{name}");
        for recipe in try_read(&text).unwrap_or_else(|error| panic!("{name}: {}", error.in_one_line())) {
            assert!(!recipe.etag && !recipe.last_modified, "{name}");
            assert_eq!((recipe.capacity, recipe.version_every), (None, None), "{name}");
            let _ = writeln!(found, "{}", told(&recipe));
        }
    }
    let expected = include_str!("known.txt").lines().skip_while(|line| !line.is_empty()).skip(1);
    assert_eq!(found.lines().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

#[test]
fn what_origin_simulator_takes_in_and_never_serves_is_refused() {
    let refused = files().into_iter().filter(|(name, _)| name.starts_with("refused-"));
    let told: Vec<_> = refused.map(|(_, text)| try_read(&text).unwrap_err().in_one_line()).collect();
    assert_eq!(
        told,
        [
            "recipe.json:1:1: the recipe has no content: write one of `origin`, `body` and `random_content`",
            "recipe.json:24:14: the route `news/entertainment_and_arts` does not begin with `/`: write a path such \
             as `/news`, or `/news*` for all that begin so",
        ]
    );
}
