//! Recipes: bad ones, and what they can say.

mod bad;
mod new;

use std::path::Path;

use stockade_origin::recipe::{Recipe, RecipeError, read};

fn try_read(text: &str) -> Result<Vec<Recipe>, Box<RecipeError>> {
    read(text, "recipe.json", Path::new(env!("CARGO_MANIFEST_DIR")))
}

fn one(text: &str) -> Recipe {
    let mut recipes = try_read(text).unwrap_or_else(|error| panic!("{text}: {}", error.in_one_line()));
    assert_eq!(recipes.len(), 1, "{text}");
    recipes.remove(0)
}
