//! The JSON schema of the file, for editors.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::file::ConfigFile;

/// Draft 2020-12. `docs/proxy.schema.json` is this, pretty-printed.
#[must_use]
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12();
    without_null(settings.into_generator().into_root_schema_for::<ConfigFile>().to_value())
}

/// Removes `null`, which TOML does not have.
fn without_null(schema: Value) -> Value {
    let is_null = |schema: &Value| schema.get("type").is_some_and(|kind| kind == "null");
    match schema {
        Value::Object(object) => {
            let mut kept = Map::new();
            for (key, value) in object {
                match (key.as_str(), value) {
                    ("default", _) => {}
                    ("enum", Value::Array(values)) => {
                        kept.insert(key, values.into_iter().filter(|value| !value.is_null()).collect());
                    }
                    ("type", Value::Array(kinds)) => {
                        let mut kinds = kinds.into_iter().filter(|kind| kind != "null");
                        kept.extend(kinds.next().map(|kind| (key, kind)));
                    }
                    ("anyOf", Value::Array(schemas)) => {
                        let mut schemas: Vec<_> =
                            schemas.into_iter().filter(|schema| !is_null(schema)).map(without_null).collect();
                        match (schemas.len(), schemas.pop()) {
                            // The outer description takes precedence.
                            (1, Some(Value::Object(only))) => {
                                for (key, value) in only {
                                    kept.entry(key).or_insert(value);
                                }
                            }
                            (_, last) => {
                                schemas.extend(last);
                                kept.insert(key, schemas.into());
                            }
                        }
                    }
                    (_, value) => {
                        kept.insert(key, without_null(value));
                    }
                }
            }
            // The merged keys were appended.
            kept.sort_keys();
            kept.into()
        }
        Value::Array(list) => list.into_iter().map(without_null).collect(),
        other => other,
    }
}
