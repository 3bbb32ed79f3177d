//! Recipes: those of `OriginSimulator`, bad ones, and what no one has thought of.

mod bad;
mod fuzz;
mod known;
mod latency;
mod new;

use std::{fs, path::Path};

use stockade_origin::recipe::{Recipe, RecipeError, read};

/// What stands for an origin outside.
const PLACEHOLDER: &str = "http://ORIGIN";
/// A local one instead; here it is never asked.
const LOCAL: &str = "http://127.0.0.1:8081";

/// The recipes of `OriginSimulator`'s README (`readme-1.json` is its first), examples and tests, by
/// name. Those that it takes in and never serves are `refused-...`.
fn files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recipes");
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

/// Those that are good.
fn recipes() -> Vec<(String, String)> {
    files().into_iter().filter(|(name, _)| !name.starts_with("refused-")).collect()
}

fn try_read(text: &str) -> Result<Vec<Recipe>, Box<RecipeError>> {
    read(text, "recipe.json", Path::new(env!("CARGO_MANIFEST_DIR")))
}

fn one(text: &str) -> Recipe {
    let mut recipes = try_read(text).unwrap_or_else(|error| panic!("{text}: {}", error.in_one_line()));
    assert_eq!(recipes.len(), 1, "{text}");
    recipes.remove(0)
}
