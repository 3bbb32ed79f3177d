//! The JSON schema of `[cache]`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{
    BreakerSettings, BreakerTable, Capacity, Loads, NoTier, PresetName, Queue, RefreshHow, RefreshTable,
    value::{TextSchema, or_none, whole},
};
use crate::PRESETS;

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
    Loads: |_| whole(1);
    Queue: |_| whole(0);
    Capacity: |_| whole(1);
}

impl TextSchema for PresetName {
    fn schema() -> Schema {
        json_schema!({ "enum": PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>() })
    }
}

impl TextSchema for NoTier {
    fn schema() -> Schema {
        json_schema!(false)
    }
}
