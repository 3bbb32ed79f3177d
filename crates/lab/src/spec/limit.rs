//! `[cache] limit`, as it is written.

use std::{fmt, str::FromStr};

use serde::{
    Deserialize, Deserializer,
    de::{self, Error as _, MapAccess, value::MapAccessDeserializer},
};
use stockade_cache::{Limit, Order, Policy, Strategy, UnknownPolicy};
use stockade_model::units::{UnitError, parse_size};

use super::setup::{Count, Text};
use crate::engine;

/// A limit, or `"none"`.
pub(super) struct Limited(pub(super) Option<Limit>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    entries: Option<Count>,
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
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Option<Limit>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table such as { entries = 36_000 }, or \"none\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Option<Limit>, E> {
                let other = || {
                    E::custom(format!(
                        "`{text}` is no limit: write a table such as {{ entries = 36_000 }}, or \"none\""
                    ))
                };
                if text == "none" { Ok(None) } else { Err(other()) }
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Option<Limit>, A::Error> {
                let limit = Table::deserialize(MapAccessDeserializer::new(map))?.limit();
                let strategy =
                    Strategy { limit: Some(limit), ..Strategy::preset("none").expect("it is a preset") };
                engine::cache(strategy.clone()).check().map_err(A::Error::custom)?;
                Ok(strategy.limit)
            }
        }
        from.deserialize_any(Visitor).map(Self)
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
