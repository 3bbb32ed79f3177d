//! Recipes: those of `OriginSimulator`, invalid ones and random ones.

mod bad;
mod fuzz;
mod known;
mod latency;
mod new;
mod property;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

use std::{fs, path::Path};

use stockade_origin::recipe::{Recipe, RecipeError, parse};

/// Stands in recipe files for the address of another origin.
const PLACEHOLDER: &str = "http://ORIGIN";
/// Replaces the placeholder. No test of this module sends a request to it.
const LOCAL: &str = "http://127.0.0.1:8081";

/// The recipes of `OriginSimulator`'s README (`readme-1.json` is its first), examples and tests, by name. Files named
/// `refused-...` are recipes that `OriginSimulator` accepts and never serves.
fn files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/recipes");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let json = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let mut files: Vec<_> = json
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap().replace(PLACEHOLDER, LOCAL);
            (path.file_stem().unwrap().to_str().unwrap().to_owned(), text)
        })
        .collect();
    files.sort();
    files
}

/// The files with valid recipes.
fn valid_files() -> Vec<(String, String)> {
    files().into_iter().filter(|(name, _)| !name.starts_with("refused-")).collect()
}

fn try_parse(text: &str) -> Result<Vec<Recipe>, Box<RecipeError>> {
    parse(text, "recipe.json", Path::new(env!("CARGO_MANIFEST_DIR")))
}

fn parse_one(text: &str) -> Recipe {
    let mut recipes = try_parse(text).unwrap_or_else(|error| panic!("{text}: {}", error.in_one_line()));
    assert_eq!(recipes.len(), 1, "{text}");
    recipes.remove(0)
}
