//! `[cache] limit`, as it is written.

use std::str::FromStr;

use super::{
    documents,
    written::{Size, Text, counted, table_or_none},
};
use crate::{Limit, Order, Policy, Strategy, UnknownPolicy, preset::NONE};
use serde::{Deserialize, Deserializer, de::Error as _};

/// `limit = { entries = 36_000 }`, or `"none"`.
pub struct Limited(pub Option<Limit>);

counted! {
    /// How many entries there may be.
    Entries: 1.., "a limit has room for one entry at least";
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct Table {
    /// How many entries there may be.
    entries: Option<Entries>,
    /// How many bytes it may hold, of keys, values, what entries cost besides, and loads under way.
    bytes: Option<Text<Size>>,
    /// The largest entry that is stored. Default: "1MiB", or a sixteenth of `bytes` if that is less.
    max_object: Option<Text<Size>>,
    /// Who goes when room is needed. Default: "sieve".
    policy: Option<Text<Named>>,
    /// How much of the limit is cleared once it is reached, 0 to 1. Default: 0.0, as much as is needed.
    reclaim: Option<f64>,
    /// Whether the policy sees all entries at once. Default: "per-shard".
    order: Option<OrderName>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
enum OrderName {
    PerShard,
    Global,
}

impl<'de> Deserialize<'de> for Limited {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let table: Option<Table> = table_or_none(from, "limit", "{ entries = 36_000 }")?;
        let limit = table.map(Table::limit);
        let strategy = Strategy { limit, ..NONE };
        documents(strategy.clone()).check().map_err(D::Error::custom)?;
        Ok(Self(strategy.limit))
    }
}

impl Table {
    fn limit(self) -> Limit {
        Limit {
            entries: self.entries.map(|entries| entries.0),
            bytes: self.bytes.map(|size| size.0.0),
            max_object: self.max_object.map(|size| size.0.0),
            policy: self.policy.map_or(Policy::SIEVE, |policy| policy.0.0),
            reclaim: self.reclaim.unwrap_or(0.0),
            order: match self.order {
                None | Some(OrderName::PerShard) => Order::PerShard,
                Some(OrderName::Global) => Order::Global,
            },
        }
    }
}

/// A policy by its name.
struct Named(&'static Policy);

impl FromStr for Named {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Policy::named(name).map(Self)
    }
}

#[cfg(feature = "schema")]
mod schema {
    use std::borrow::Cow;

    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::{Entries, Limited, Named, Table};
    use crate::{
        policy::POLICIES,
        spec::written::{Words, or_none, whole},
    };

    impl JsonSchema for Limited {
        fn inline_schema() -> bool {
            true
        }
        fn schema_name() -> Cow<'static, str> {
            "Limit".into()
        }
        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            or_none::<Table>(generator)
        }
    }

    impl JsonSchema for Entries {
        fn inline_schema() -> bool {
            true
        }
        fn schema_name() -> Cow<'static, str> {
            "Entries".into()
        }
        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            whole(1)
        }
    }

    impl Words for Named {
        fn schema() -> Schema {
            json_schema!({ "enum": POLICIES.each_ref().map(|policy| policy.name) })
        }
    }
}
