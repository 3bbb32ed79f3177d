//! `[cache] limit`, as it is written.

use std::str::FromStr;

use serde::{Deserialize, Deserializer, de::Error as _};
use stockade_cache::{Limit, Order, Policy, Strategy, UnknownPolicy};
use stockade_model::units::{UnitError, parse_size};

use super::setup::{Text, counted, table_or_none};
use crate::engine;

/// A limit, or `"none"`.
pub(super) struct Limited(pub(super) Option<Limit>);

counted! {
    /// How many entries there may be.
    Entries: 1.., "a limit has room for one entry at least";
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    entries: Option<Entries>,
    bytes: Option<Text<Size>>,
    max_object: Option<Text<Size>>,
    policy: Option<Text<Named>>,
    reclaim: Option<f64>,
    order: Option<OrderName>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OrderName {
    PerShard,
    Global,
}

impl<'de> Deserialize<'de> for Limited {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let table: Option<Table> = table_or_none(from, "limit", "{ entries = 36_000 }")?;
        let limit = table.map(Table::limit);
        let strategy = Strategy { limit, ..Strategy::preset("none").expect("it is a preset") };
        engine::cache(strategy.clone()).check().map_err(D::Error::custom)?;
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

/// Bytes, written with a unit. More than this machine can count is as good as all that it can.
struct Size(usize);

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse_size(text).map(|bytes| Self(usize::try_from(bytes).unwrap_or(usize::MAX)))
    }
}
