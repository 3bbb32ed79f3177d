//! `[cache] limit`, as it is written.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, Error as _, MapAccess, value::MapAccessDeserializer},
};
use stockade_cache::{Limit, Order, Policy};
use stockade_model::units::{self, parse_size};

/// A limit, or `"none"`.
#[derive(Default)]
pub(super) struct Limited(pub(super) Option<Limit>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    entries: Option<Count>,
    bytes: Option<Size>,
    max_object: Option<Size>,
    policy: Option<Named>,
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
                limit.check().map_err(A::Error::custom)?;
                Ok(Some(limit))
            }
        }
        from.deserialize_any(Visitor).map(Self)
    }
}

impl Table {
    fn limit(self) -> Limit {
        Limit {
            entries: self.entries.map(|entries| entries.0),
            bytes: self.bytes.map(|size| size.0),
            max_object: self.max_object.map(|size| size.0),
            policy: self.policy.map_or(Policy::SIEVE, |policy| policy.0),
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

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Policy::named(&String::deserialize(from)?).map(Self).map_err(D::Error::custom)
    }
}

/// How many of something there may be: one at least.
pub(super) struct Count(pub(super) usize);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match i64::deserialize(from)? {
            count @ 1.. => usize::try_from(count).map(Self).map_err(D::Error::custom),
            _ => Err(D::Error::custom("one at least")),
        }
    }
}

/// Bytes, written with a unit.
struct Size(usize);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let bytes = parse_size(&units::text::written(from)?).map_err(D::Error::custom)?;
        usize::try_from(bytes).map(Self).map_err(D::Error::custom)
    }
}
