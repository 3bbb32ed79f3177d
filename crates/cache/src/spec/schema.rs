//! JSON schemas of files, and the schema of `[cache]`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Map, Value};

use super::{
    BreakerSettings, BreakerTable, NoTier, PresetName, RefreshHow, RefreshTable,
    value::{TextSchema, or_none},
};
use crate::PRESETS;

/// The JSON schema (draft 2020-12) of a TOML file that is read as `T`.
#[must_use]
pub fn file_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12();
    without_null(settings.into_generator().into_root_schema_for::<T>().to_value())
}

/// Removes `null`, which TOML does not have, and that a setting is shown in another way.
fn without_null(schema: Value) -> Value {
    let is_null = |schema: &Value| schema.get("type").is_some_and(|kind| kind == "null");
    match schema {
        Value::Object(object) => {
            let mut kept = Map::new();
            for (key, value) in object {
                match (key.as_str(), value) {
                    ("default" | "writeOnly", _) => {}
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

macro_rules! schemas {
    ($($name:ident: $schema:expr;)*) => {$(
        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                $schema(generator)
            }
        }
    )*};
}

schemas! {
    BreakerTable: or_none::<BreakerSettings>;
    RefreshTable: or_none::<RefreshHow>;
}

impl TextSchema for PresetName {
    fn schema() -> Schema {
        json_schema!({ "enum": PRESETS.parsed_names().collect::<Vec<_>>() })
    }
}

impl TextSchema for NoTier {
    fn schema() -> Schema {
        json_schema!(false)
    }
}
