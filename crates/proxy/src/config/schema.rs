//! The JSON schema of the file, for editors.

use schemars::{Schema, generate::SchemaSettings, json_schema};
use serde_json::{Map, Value};
use stockade_cache::spec::value::{SizeValue, TextSchema, duration_schema};

use super::{
    file::{
        ConfigFile, HeadSize, Name, PositiveDuration, PositiveDurationOrNone, ProbePath, RateOrNone,
        SocketAddress,
    },
    route::{HostPattern, PathPattern},
    tier::SharedTierUrl,
};

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

/// The schema of a type that parses a string.
macro_rules! words {
    ($($name:ty: $schema:tt;)*) => {$(
        impl TextSchema for $name {
            fn schema() -> Schema {
                json_schema!($schema)
            }
        }
    )*};
}

words! {
    SocketAddress: { "type": "string" };
    Name: { "type": "string", "pattern": "^[A-Za-z0-9_.-]{1,64}$" };
    ProbePath: { "type": "string", "pattern": "^/" };
    HostPattern: { "type": "string" };
    RateOrNone: { "type": "string", "pattern": "^(none|[0-9_]+/[0-9]*[a-z]+)$" };
    PathPattern: { "type": "string", "pattern": "^/[^*?# ]*\\*?$" };
}

impl TextSchema for HeadSize {
    fn schema() -> Schema {
        SizeValue::schema()
    }
}

impl TextSchema for PositiveDuration {
    fn schema() -> Schema {
        duration_schema(false)
    }
}

impl TextSchema for PositiveDurationOrNone {
    fn schema() -> Schema {
        duration_schema(true)
    }
}

impl TextSchema for SharedTierUrl {
    fn schema() -> Schema {
        json_schema!({ "type": "string", "examples": ["redis://127.0.0.1:6379?timeout=50ms"] })
    }
}
