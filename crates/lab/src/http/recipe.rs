//! What an origin is told: a recipe in a file, or in the experiment itself.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde_json::Value;
use stockade_model::units::{format_duration, parse_duration};

/// What an origin serves, and how it behaves when (docs/origin.md).
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// Where it is.
    pub written: Written,
    /// Where it is served; `None`: anywhere.
    pub listen: Option<SocketAddr>,
    /// Its stages begin so many times as late.
    pub factor: f64,
}

/// Where a recipe is.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// In a file of its own, beside the experiment's.
    File(PathBuf),
    /// In the experiment's.
    Here(Value),
}

impl Recipe {
    /// Its text, read now; a file's path is one below `files`.
    pub(super) fn text(&self, files: &Path) -> Result<String, String> {
        let mut recipe = match &self.written {
            Written::Here(recipe) => recipe.clone(),
            Written::File(path) => {
                let path = files.join(path);
                let text =
                    fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?
            }
        };
        if (self.factor - 1.0).abs() > f64::EPSILON {
            stretch(&mut recipe, self.factor)?;
        }
        Ok(format!("{recipe:#}\n"))
    }
}

/// Has the stages of a recipe, or of several, begin so many times as late.
fn stretch(recipe: &mut Value, factor: f64) -> Result<(), String> {
    match recipe {
        Value::Array(recipes) => recipes.iter_mut().try_for_each(|recipe| stretch(recipe, factor)),
        recipe => {
            let stages = recipe.get_mut("stages").and_then(Value::as_array_mut).into_iter().flatten();
            for at in stages.filter_map(|stage| stage.get_mut("at")) {
                let Some(text) = at.as_str() else { continue };
                let time = parse_duration(text).map_err(|error| format!("a stage's `at`: {error}"))?;
                *at = format_duration(time.mul_f64(factor)).into();
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn stages_begin_later_or_sooner() {
        let written = json!([{ "route": "/a", "stages": [{ "at": 0, "status": 200 }, { "at": "1m", "latency": "5ms" }] }]);
        let recipe = Recipe { written: Written::Here(written), listen: None, factor: 0.05 };
        let text = recipe.text(Path::new("")).expect("a recipe");
        let told: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&told[0]["stages"][0]["at"], &told[0]["stages"][1]["at"]), (&json!(0), &json!("3s")));
        assert_eq!(told[0]["stages"][1]["latency"], "5ms");
        let missing = Recipe { written: Written::File("none.json".into()), listen: None, factor: 1.0 };
        assert!(missing.text(Path::new("/nowhere")).unwrap_err().starts_with("/nowhere/none.json: "));
    }
}
