//! The JSON schema of experiment files, for editors.
//!
//! It follows from the tables of the readers. A section has the keys of all kinds of targets, because a test or an arm may
//! change the kind; and no key of a section is required, because the base, a test and an arm may each write a part of it.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};
use stockade_cache::spec::{file_schema, value::TextSchema};
use stockade_load::settings::RequestSettings;

use super::{
    PercentValue, Preamble, ServiceTable,
    app::AppTables,
    engine::{EngineTables, OneOrMany},
    fleet::FleetTables,
    http::{HttpTables, RecipeOriginTable},
    node_js_cache::{self, NodeJsTable},
    targets,
};
use crate::{
    engine::{DocumentCount, RunTierUrl},
    services::RunService,
};

/// Keys of the proxy's file that a run sets, or that the experiment has elsewhere.
const SET_BY_RUN: [&str; 6] = ["listen", "listen_proxy_protocol", "admin", "tls", "origin", "cache"];

/// Draft 2020-12. `proxy` is the schema of the proxy's file, for `[proxy]`.
///
/// # Panics
/// If `proxy` is not the schema of a table.
#[must_use]
pub fn schema(proxy: &Value) -> Value {
    let mut sections = sections();
    sections.insert("proxy".to_owned(), proxy_section(proxy));
    let names: Vec<String> = sections.keys().cloned().collect();
    let reference = |name: &String| (name.clone(), json!({ "$ref": format!("#/$defs/{name}") }));

    let mut schema = resolved::<Preamble>();
    let properties = schema["properties"].as_object_mut().expect("a table");
    properties.extend(names.iter().map(reference));
    properties.insert("test".to_owned(), layers("Tests: one `[[test]]` each. Every test runs with every arm.", {
        let requires = json!({
            "type": "string",
            "description": "File next to the experiment. If it does not exist, the test and its claims are left out.",
        });
        names.iter().map(reference).chain([("requires".to_owned(), requires)])
    }));
    // All arms of a test have the same load.
    let of_arms = names.iter().filter(|name| *name != "load").map(reference);
    properties.insert("arm".to_owned(), layers("Arms: one `[[arm]]` each, which are compared.", of_arms));
    properties.insert("reference".to_owned(), reference_figures());
    schema["title"] = json!("Stockade experiment");
    schema["description"] = json!(
        "The file of `stockade run FILE`. Durations are strings with a unit: \"250ms\", \"30s\", \"6h\". Paths are relative to \
         the file's folder."
    );
    schema["$defs"] = Value::Object(sections);
    schema
}

/// The sections that readers share, each with the keys of all kinds of targets.
fn sections() -> Map<String, Value> {
    let tables = [
        resolved::<EngineTables>(),
        resolved::<HttpTables>(),
        resolved::<AppTables>(),
        resolved::<FleetTables>(),
        json!({ "properties": { "origin": resolved::<RecipeOriginTable>() } }),
        json!({ "properties": { "cache": resolved::<NodeJsTable>() } }),
        json!({ "properties": { "load": resolved::<RequestSettings>() } }),
    ];
    let mut all = tables.into_iter().reduce(joined).expect("there are tables");
    let Value::Object(mut sections) = all["properties"].take() else { return Map::new() };
    sections.values_mut().for_each(make_partial);
    sections
}

/// The keys of the proxy's file that an experiment may set.
fn proxy_section(file: &Value) -> Value {
    let mut section = with_references_resolved(file, file);
    let object = section.as_object_mut().expect("a table");
    object.retain(|key, _| ["type", "properties", "additionalProperties"].contains(&key.as_str()));
    let properties = object["properties"].as_object_mut().expect("a table");
    properties.retain(|key, _| !SET_BY_RUN.contains(&key.as_str()));
    section["description"] = json!("Kind `proxy`: other settings of the proxy's file.");
    make_partial(&mut section);
    section
}

/// `[[test]]` or `[[arm]]`: a name, and sections that are laid over those of the file.
fn layers(description: &str, keys: impl Iterator<Item = (String, Value)>) -> Value {
    let name = json!({
        "type": "string",
        "description": "Its name in claims and reports: letters, digits, `_`, `-` and `:`.",
        "pattern": r"^[\p{L}\p{N}_:-]+$",
    });
    let properties: Map<String, Value> = keys.chain([("name".to_owned(), name)]).collect();
    json!({
        "type": "array",
        "description": description,
        "items": {
            "type": "object",
            "properties": properties,
            "required": ["name"],
            "additionalProperties": false,
        },
    })
}

/// `[reference]`: its keys are paths of figures.
fn reference_figures() -> Value {
    json!({
        "type": "object",
        "description": "Published figures, shown next to the measured ones: \"TEST/ARM.metric\" = \"9ms\".",
        "properties": { "source": { "type": "string", "description": "Where the figures come from." } },
        "additionalProperties": { "type": ["string", "number"] },
    })
}

/// The schema of a table, without references.
fn resolved<T: JsonSchema>() -> Value {
    let mut schema = file_schema::<T>();
    schema = with_references_resolved(&schema, &schema);
    let object = schema.as_object_mut().expect("a table");
    object.remove("$defs");
    schema
}

/// Replaces references by the definitions of `file`. The description next to a reference takes precedence.
fn with_references_resolved(schema: &Value, file: &Value) -> Value {
    match schema {
        Value::Object(object) => {
            let mut resolved = Map::new();
            for (key, value) in object {
                match value.as_str().filter(|_| key == "$ref") {
                    Some(path) => {
                        let definition = file.pointer(path.trim_start_matches('#')).expect("a definition");
                        let definition = with_references_resolved(definition, file);
                        for (key, value) in definition.as_object().expect("a schema") {
                            resolved.entry(key).or_insert_with(|| value.clone());
                        }
                    }
                    None => {
                        resolved.insert(key.clone(), with_references_resolved(value, file));
                    }
                }
            }
            resolved.sort_keys();
            resolved.into()
        }
        Value::Array(list) => list.iter().map(|value| with_references_resolved(value, file)).collect(),
        other => other.clone(),
    }
}

/// The schema of the values that either reader accepts. Of two texts or two lists, the first accepts all that the second
/// accepts.
fn joined(one: Value, other: Value) -> Value {
    match (one, other) {
        (one, other) if one == other => one,
        (Value::Object(mut one), Value::Object(mut other)) => {
            if let (Some(Value::Object(keys)), Some(Value::Object(more))) =
                (one.get_mut("properties"), other.get_mut("properties"))
            {
                for (key, value) in std::mem::take(more) {
                    let joined = match keys.remove(&key) {
                        Some(known) => joined(known, value),
                        None => value,
                    };
                    keys.insert(key, joined);
                }
                keys.sort_keys();
            } else if let (Some(Value::Array(values)), Some(Value::Array(more))) =
                (one.get_mut("enum"), other.get_mut("enum"))
            {
                more.retain(|value| !values.contains(value));
                values.append(more);
            } else if let (Some(item), Some(other)) = (one.get("items"), other.get("items"))
                && item != other
            {
                let items = json!({ "anyOf": [item, other] });
                one.insert("items".to_owned(), items);
            } else if one.get("type") != other.get("type") {
                let texts = [one.remove("description"), other.remove("description")];
                let texts: Vec<_> = texts.iter().flatten().filter_map(Value::as_str).collect();
                return json!({ "description": texts.join(" "), "anyOf": [one, other] });
            }
            one.into()
        }
        (one, _) => one,
    }
}

/// Makes the keys of a section optional, at any depth. Items of lists stay complete, since a list is replaced as a whole.
fn make_partial(schema: &mut Value) {
    if let Some(object) = schema.as_object_mut() {
        object.remove("required");
    }
    make_parts_partial(schema);
}

fn make_parts_partial(schema: &mut Value) {
    for part in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        make_partial(part.1);
    }
    for part in schema.get_mut("anyOf").and_then(Value::as_array_mut).into_iter().flatten() {
        make_partial(part);
    }
    // The required key tells the variants apart.
    for part in schema.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten() {
        make_parts_partial(part);
    }
}

/// Types that stand for those of other crates, or for values that a reader reads by hand.
macro_rules! schemas {
    ($($(#[$what:meta])* $name:ident: $schema:expr;)*) => {$(
        $(#[$what])*
        pub(super) struct $name;

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
    KindName: |_: &mut _| json_schema!({ "type": "string", "enum": targets::kinds().collect::<Vec<_>>() });
    StrategyName: |_: &mut _| {
        json_schema!({ "type": "string", "enum": node_js_cache::STRATEGIES.map(|(name, _)| name) })
    };
    SourceText: |_: &mut _| json_schema!({ "type": "string", "examples": ["sqlite:", "simulated:50"] });
    LatencyText: |_: &mut _| json_schema!({
        "type": "string",
        "pattern": r"^\s*(0\s*$|[0-9.]+\s*[a-zµ]|(normal|lognormal|exponential|empirical)\()",
        "examples": [
            "20ms",
            "10ms..30ms",
            "normal(mean=20ms, sd=5ms)",
            "lognormal(median=20ms, p99=200ms)",
            "exponential(mean=20ms)",
            "empirical(FILE)",
        ],
    });
    RateText: |_: &mut _| json_schema!({ "type": "string", "pattern": "^[^/]*[0-9][^/]*/[^/]*[a-zµ][^/]*$" });
    KeysText: |_: &mut _| json_schema!({ "type": "string", "pattern": r"^\s*(zipf|uniform|scan)\s*:" });
    PopularityForms: |_: &mut _| json_schema!({
        "anyOf": [
            { "const": "uniform" },
            {
                "type": "object",
                "properties": {
                    "zipf": {
                        "type": "number",
                        "description": "Exponent, 0 (all keys alike) to 10; about 1 is usual.",
                        "minimum": 0,
                        "maximum": 10,
                    },
                },
                "additionalProperties": false,
            },
        ],
    });
    PurgeForms: |_: &mut _| json_schema!({ "anyOf": [{ "const": "*" }, { "type": "integer", "minimum": 1 }] });
    /// A file, a recipe or several. `docs/reference/recipes.md` has the keys.
    RecipeForms: |_: &mut _| json_schema!({
        "anyOf": [{ "type": "string" }, { "type": "object" }, { "type": "array", "items": { "type": "object" } }],
    });
    ServiceTables: |generator: &mut SchemaGenerator| {
        let table = generator.subschema_for::<ServiceTable>();
        let properties: Map<String, Value> =
            RunService::ALL.map(|service| (service.name().to_owned(), table.clone().to_value())).into_iter().collect();
        json_schema!({ "type": "object", "properties": properties, "additionalProperties": false })
    };
}

impl TextSchema for DocumentCount {
    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^(scaled|fixed:.+)$" })
    }
}

impl TextSchema for PercentValue {
    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": r"^[0-9.]+\s*%$" })
    }
}

impl TextSchema for RunTierUrl {
    fn schema() -> Schema {
        json_schema!({ "type": "string", "examples": ["redis:", "redis://:PASSWORD@HOST:6379"] })
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "OneOrMany".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        let list = json!({ "type": "array", "items": value, "minItems": 1, "uniqueItems": true });
        json_schema!({ "anyOf": [value, list] })
    }
}

#[cfg(test)]
mod tests;
