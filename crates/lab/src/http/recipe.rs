//! The recipe of the origin: a file, or a part of the experiment.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use stockade_model::units::{format_duration, milliseconds, parse_duration};
use stockade_record::record::OriginStage;

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

    /// The stages of all routes; empty for a recipe that cannot be read, or whose behavior does not change.
    pub(super) fn stages(&self, folder: &Path) -> Vec<OriginStage> {
        let recipe = self.text(folder).ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let routes = match recipe {
            Some(Value::Array(routes)) => routes,
            Some(route) => vec![route],
            None => Vec::new(),
        };
        let mut stages: Vec<OriginStage> = Vec::new();
        for route in &routes {
            let prefix = match (routes.len(), route.get("route").and_then(Value::as_str)) {
                (2.., Some(path)) => format!("{path}: "),
                _ => String::new(),
            };
            let of_route = route.get("stages").and_then(Value::as_array).into_iter().flatten();
            stages.extend(of_route.filter_map(|stage| origin_stage(stage, &prefix)));
        }
        stages.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
        if stages.len() > routes.len() { stages } else { Vec::new() }
    }
}

fn origin_stage(stage: &Value, prefix: &str) -> Option<OriginStage> {
    let at = match stage.get("at")? {
        Value::String(text) => parse_duration(text).ok()?,
        _ => Duration::ZERO,
    };
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let settings = stage.as_object()?.iter().filter(|(name, _)| *name != "at");
    let behavior: Vec<String> = settings.map(|(name, value)| format!("{name} {}", shown(value))).collect();
    Some(OriginStage { at_ms: milliseconds(at), behavior: format!("{prefix}{}", behavior.join(", ")) })
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

    #[test]
    fn stages_are_those_of_all_routes_in_the_order_of_time() {
        let stages = |recipe: Value| {
            let spec = RecipeSpec { source: RecipeSource::Inline(recipe), listen: None, factor: 0.5 };
            let stages = spec.stages(Path::new(""));
            stages.into_iter().map(|stage| (stage.at_ms, stage.behavior)).collect::<Vec<_>>()
        };
        let changing = json!([{ "at": 0, "status": 200 }, { "at": "1m", "status": 503, "latency": "1s" }]);
        let of_one = stages(json!([{ "route": "/*", "stages": changing }]));
        assert_eq!(of_one, [(0.0, "status 200".to_owned()), (30_000.0, "latency 1s, status 503".to_owned())]);
        let constant = json!([{ "at": 0, "latency": "5ms" }]);
        let of_two =
            stages(json!([{ "route": "/a", "stages": changing }, { "route": "/b", "stages": constant }]));
        assert_eq!(of_two.len(), 3);
        assert_eq!(of_two[2].1, "/a: latency 1s, status 503");
        assert_eq!(stages(json!([{ "route": "/*", "stages": constant }])), []);
    }
}
