//! The JSON schema of the file, for editors.

use schemars::{Schema, json_schema};
use serde_json::Value;
use stockade_cache::spec::{
    file_schema,
    value::{SizeValue, TextSchema, duration_schema},
};

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
    file_schema::<ConfigFile>()
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
