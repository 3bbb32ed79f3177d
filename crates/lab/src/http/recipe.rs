//! The recipe of the origin: a file, or a part of the experiment.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use stockade_model::units::{format_duration, parse_duration};

#[derive(Clone, Debug, PartialEq)]
pub struct RecipeSpec {
    pub source: RecipeSource,
    /// `None`: any free port of the loopback.
    pub listen: Option<SocketAddr>,
    /// Multiplies the times of its stages.
    pub factor: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RecipeSource {
    /// Relative to the experiment's folder.
    File(PathBuf),
    Inline(Value),
}

impl RecipeSpec {
    /// At the same address, an origin that answers every request with `body`, which no cache stores.
    pub(super) fn answering(&self, body: &str) -> Self {
        let recipe = json!([{
            "route": "/*", "body": body, "headers": { "cache-control": "no-store" }, "stages": [{ "at": 0 }],
        }]);
        Self { source: RecipeSource::Inline(recipe), listen: self.listen, factor: 1.0 }
    }

    /// The text with scaled stages. Files are read from `folder`.
    pub(super) fn text(&self, folder: &Path) -> Result<String, String> {
        let mut recipe = match &self.source {
            RecipeSource::Inline(recipe) => recipe.clone(),
            RecipeSource::File(path) => {
                let path = folder.join(path);
                let text =
                    fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?
            }
        };
        if (self.factor - 1.0).abs() > f64::EPSILON {
            scale_stages(&mut recipe, self.factor)?;
        }
        Ok(format!("{recipe:#}\n"))
    }
}

/// Multiplies the times of the stages of a recipe, or of a list of recipes.
fn scale_stages(recipe: &mut Value, factor: f64) -> Result<(), String> {
    match recipe {
        Value::Array(recipes) => recipes.iter_mut().try_for_each(|recipe| scale_stages(recipe, factor)),
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
    fn stage_times_are_scaled() {
        let written = json!([{ "route": "/a", "stages": [{ "at": 0, "status": 200 }, { "at": "1m", "latency": "5ms" }] }]);
        let recipe = RecipeSpec { source: RecipeSource::Inline(written), listen: None, factor: 0.05 };
        let text = recipe.text(Path::new("")).expect("a recipe");
        let scaled: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&scaled[0]["stages"][0]["at"], &scaled[0]["stages"][1]["at"]), (&json!(0), &json!("3s")));
        assert_eq!(scaled[0]["stages"][1]["latency"], "5ms");
        let missing =
            RecipeSpec { source: RecipeSource::File("none.json".into()), listen: None, factor: 1.0 };
        assert!(missing.text(Path::new("/nowhere")).unwrap_err().starts_with("/nowhere/none.json: "));
    }
}
