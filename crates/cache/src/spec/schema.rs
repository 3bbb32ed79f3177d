//! The block as a JSON schema has it.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{
    BreakerSettings, BreakerTable, Capacity, Loads, Nowhere, Preset, Queue, RefreshHow, RefreshTable,
    written::{Words, or_none, whole},
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

impl Words for Preset {
    fn schema() -> Schema {
        json_schema!({ "enum": PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>() })
    }
}

impl Words for Nowhere {
    fn schema() -> Schema {
        json_schema!(false)
    }
}
