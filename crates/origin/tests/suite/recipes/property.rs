//! The property of the recipe parser that holds for every text. The target in `fuzz/` has this file as its module.

use std::path::Path;

use serde_json::Value;
use stockade_origin::recipe::{Recipe, parse};

/// Parses a text, whose files are in `folder`. Returns valid recipes.
///
/// - Every error has a place in the text, a message and a remedy.
/// - A valid text is JSON, but for line breaks in strings.
pub(crate) fn check(text: &str, folder: &Path) -> Option<Vec<Recipe>> {
    let error = match parse(text, "recipe.json", folder) {
        Ok(recipes) => {
            let is_object = text.trim_start().starts_with('{');
            let json = if is_object { text.replace(['\n', '\r'], "") } else { text.to_owned() };
            assert!(serde_json::from_str::<Value>(&json).is_ok(), "not JSON: {text}");
            return Some(recipes);
        }
        Err(error) => error,
    };
    let line = text.split('\n').nth(error.line().wrapping_sub(1));
    assert!(line.is_some(), "line {} of {text:?}", error.line());
    let columns = line.unwrap_or_default().chars().count() + 1;
    assert!((1..=columns).contains(&error.column()), "column {} of {text:?}", error.column());
    let one_line = error.in_one_line();
    assert!(!error.to_string().is_empty() && !one_line.contains(char::is_control), "{one_line:?}");
    let help = miette::Diagnostic::help(error.as_ref()).map(|help| help.to_string());
    assert!(help.is_some_and(|help| !help.is_empty()));
    let mut report = String::new();
    miette::GraphicalReportHandler::new()
        .render_report(&mut report, error.as_ref())
        .expect("it can be shown");
    None
}

/// The `json` of each recipe parses to the same recipe.
pub(crate) fn check_round_trip(recipes: &[Recipe], folder: &Path) {
    for recipe in recipes {
        for key in ["origin", "body", "random_content", "headers", "stages", "route"] {
            assert!(recipe.json.get(key).is_some(), "{key} of {}", recipe.json);
        }
        let again = check(&recipe.json.to_string(), folder).unwrap_or_default();
        assert_eq!(again.as_slice(), std::slice::from_ref(recipe));
    }
}
