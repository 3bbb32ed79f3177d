//! The `limit` key of `[cache]`.

use std::{str::FromStr, sync::Arc};

use bytes::Bytes;

use super::value::{SizeValue, TextValue, bounded_integers, table_or_none};
use crate::{
    Builder, Cache, EvictionOrder, InvalidStrategy, Limit, Policy, Strategy, UnknownName, heap_bytes,
    strategy::preset::NONE,
};
use serde::{Deserialize, Deserializer, de::Error as _};

/// `limit = { entries = 36_000 }`, or `"none"`.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitTable(pub Option<Limit>);

bounded_integers! {
/// Maximum number of entries.
    pub(crate) Entries: 1.., "a limit has room for one entry at least";
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct LimitKeys {
    /// Maximum number of entries.
    entries: Option<Entries>,
    /// Maximum number of bytes: of keys, values, the overhead of entries, and the reservations of loads in flight.
    bytes: Option<TextValue<SizeValue>>,
    /// The largest entry that is stored. Default: "1MiB", or a sixteenth of `bytes` if that is less.
    max_object: Option<TextValue<SizeValue>>,
    /// Eviction policy. Default: "sieve".
    policy: Option<TextValue<PolicyName>>,
    /// Share of the limit that is cleared once it is reached, 0 to 1. Default: 0.0, only what the new entry needs.
    reclaim: Option<f64>,
    /// Scope of the policy: one order in each shard, or one over all entries. Default: "per-shard".
    order: Option<OrderName>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
enum OrderName {
    PerShard,
    Global,
}

impl<'de> Deserialize<'de> for LimitTable {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let table: Option<LimitKeys> = table_or_none(from, "limit", "{ entries = 36_000 }")?;
        let limit = table.map(LimitKeys::limit);
        let strategy = Strategy { limit, ..NONE };
        check_for_documents(&strategy).map_err(D::Error::custom)?;
        Ok(Self(strategy.limit))
    }
}

/// Checks a strategy for a cache of byte strings. Overheads of entries depend on the types of keys and values, and a
/// file has to be valid or not before they are known.
pub(super) fn check_for_documents(strategy: &Strategy) -> Result<(), InvalidStrategy> {
    if strategy.limit.as_ref().is_some_and(Limit::is_zero) {
        return Err(InvalidStrategy::ZERO_LIMIT);
    }
    let builder: Builder<Arc<str>, Bytes> = Cache::builder(strategy.clone()).weigh(heap_bytes);
    builder.check()
}

impl LimitKeys {
    fn limit(self) -> Limit {
        Limit {
            entries: self.entries.map(|entries| entries.0),
            bytes: self.bytes.map(|size| size.0.0),
            max_object: self.max_object.map(|size| size.0.0),
            policy: self.policy.map_or(Policy::SIEVE, |policy| policy.0.0),
            reclaim: self.reclaim.unwrap_or(0.0),
            order: match self.order {
                None | Some(OrderName::PerShard) => EvictionOrder::PerShard,
                Some(OrderName::Global) => EvictionOrder::Global,
            },
        }
    }
}

/// A policy by its name.
struct PolicyName(&'static Policy);

impl FromStr for PolicyName {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Policy::named(name).map(Self)
    }
}

#[cfg(feature = "schema")]
mod schema {
    use std::borrow::Cow;

    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::{LimitKeys, LimitTable, PolicyName};
    use crate::{
        policy::POLICIES,
        spec::value::{TextSchema, or_none},
    };

    impl JsonSchema for LimitTable {
        fn inline_schema() -> bool {
            true
        }
        fn schema_name() -> Cow<'static, str> {
            "Limit".into()
        }
        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            or_none::<LimitKeys>(generator)
        }
    }

    impl TextSchema for PolicyName {
        fn schema() -> Schema {
            json_schema!({ "enum": POLICIES.parsed_names().collect::<Vec<_>>() })
        }
    }
}
