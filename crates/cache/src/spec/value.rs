//! Values that a file writes as a string, as a number within bounds, or as a table or `"none"`.

use std::{fmt::Display, marker::PhantomData, ops::RangeBounds, str::FromStr, time::Duration};

use serde::{
    Deserialize, Deserializer,
    de::{self, Error as _, MapAccess, value::MapAccessDeserializer},
};
use stockade_model::units::{self, UnitError};

use crate::strategy::HedgeAfter;

/// A value that a file writes as a string and that `T` parses. A bare number is refused with the hint that its
/// unit is missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextValue<T>(pub T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for TextValue<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        units::text::parsed(from).map(Self)
    }
}

/// A duration with a unit, such as `1500ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DurationValue(pub Duration);

impl FromStr for DurationValue {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        units::parse_duration(text).map(Self)
    }
}

/// A duration with a unit, or `none` for no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptionalDuration(pub Option<Duration>);

impl FromStr for OptionalDuration {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text == "none" { Ok(Self(None)) } else { units::parse_duration(text).map(|time| Self(Some(time))) }
    }
}

/// How long a load takes before it is hedged: `15s`, `learned` or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HedgeAfterValue(pub Option<HedgeAfter>);

impl FromStr for HedgeAfterValue {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        Ok(Self(match text {
            "none" => None,
            "learned" => Some(HedgeAfter::Learned),
            time => Some(HedgeAfter::Time(units::parse_duration(time)?)),
        }))
    }
}

/// A number of bytes with a unit, such as `64MiB`. A number that exceeds `usize` is read as `usize::MAX`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeValue(pub usize);

impl FromStr for SizeValue {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        units::parse_size(text).map(|bytes| Self(usize::try_from(bytes).unwrap_or(usize::MAX)))
    }
}

/// Reads a table such as `example`, or `"none"`. `what` is the key's name in error messages.
pub fn table_or_none<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
    what: &'static str,
    example: &'static str,
) -> Result<Option<T>, D::Error> {
    struct Visitor<T> {
        what: &'static str,
        example: &'static str,
        table: PhantomData<T>,
    }
    impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visitor<T> {
        type Value = Option<T>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "a table such as {}, or \"none\"", self.example)
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<Option<T>, E> {
            let Self { what, example, .. } = self;
            let other = || {
                E::custom(format!(
                    "`{text}` is not a valid {what}: write a table such as {example}, or \"none\""
                ))
            };
            if text == "none" { Ok(None) } else { Err(other()) }
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Option<T>, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(Some)
        }
    }
    from.deserialize_any(Visitor { what, example, table: PhantomData })
}

/// Reads an integer within `bounds`; `otherwise` is the error message for any other.
pub fn bounded_integer<'de, D: Deserializer<'de>>(
    from: D,
    bounds: impl RangeBounds<i64>,
    otherwise: &str,
) -> Result<usize, D::Error> {
    let number = i64::deserialize(from)?;
    if !bounds.contains(&number) {
        return Err(D::Error::custom(otherwise));
    }
    usize::try_from(number).map_err(D::Error::custom)
}

/// Defines types of integers within bounds, each with the error message for any other integer:
/// `pub Replicas: 1..=9, "there are 1 to 9 replicas";`. The calling crate has to depend on serde, and with a feature `schema`
/// on schemars.
#[macro_export]
#[doc(hidden)]
macro_rules! __bounded_integers {
    ($($(#[$what:meta])* $visibility:vis $name:ident: $bounds:expr, $otherwise:literal;)*) => {$(
        $(#[$what])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
        $visibility struct $name($visibility usize);

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::spec::value::bounded_integer(from, $bounds, $otherwise).map(Self)
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $crate::spec::value::integer_schema($bounds)
            }
        }
    )*};
}
#[doc(inline)]
pub use __bounded_integers as bounded_integers;

/// The JSON schema of the strings that a [`TextValue`] accepts.
#[cfg(feature = "schema")]
pub trait TextSchema {
    /// A schema of type string, or an enumeration of strings.
    fn schema() -> schemars::Schema;
}

#[cfg(feature = "schema")]
mod schema {
    use std::{
        borrow::Cow,
        ops::{Bound, RangeBounds},
    };

    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::{DurationValue, HedgeAfterValue, OptionalDuration, SizeValue, TextSchema, TextValue};

    impl<T: TextSchema> JsonSchema for TextValue<T> {
        fn inline_schema() -> bool {
            true
        }
        fn schema_name() -> Cow<'static, str> {
            "Text".into()
        }
        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            T::schema()
        }
    }

    /// A duration, or `"none"` where that is valid.
    #[must_use]
    pub fn duration_schema(has_none: bool) -> Schema {
        let written = r"0|\s*[0-9.]+\s*(ns|us|µs|ms|s|m|h|d)\s*";
        let none = if has_none { "none|" } else { "" };
        json_schema!({ "type": "string", "pattern": format!("^({none}{written})$") })
    }

    impl TextSchema for DurationValue {
        fn schema() -> Schema {
            duration_schema(false)
        }
    }

    impl TextSchema for OptionalDuration {
        fn schema() -> Schema {
            duration_schema(true)
        }
    }

    impl TextSchema for HedgeAfterValue {
        fn schema() -> Schema {
            json_schema!({ "anyOf": [duration_schema(true), { "const": "learned" }] })
        }
    }

    impl TextSchema for SizeValue {
        fn schema() -> Schema {
            json_schema!({ "type": "string", "pattern": r"^(0|\s*[0-9.]+\s*(B|KiB|MiB|GiB|[kK]B|MB|GB)\s*)$" })
        }
    }

    /// A table, or `"none"`.
    pub(crate) fn or_none<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [table, { "const": "none" }] })
    }

    /// An integer within bounds.
    pub fn integer_schema(bounds: impl RangeBounds<i64>) -> Schema {
        let mut schema = json_schema!({ "type": "integer" });
        if let Bound::Included(min) = bounds.start_bound() {
            schema.insert("minimum".to_owned(), (*min).into());
        }
        if let Bound::Included(max) = bounds.end_bound() {
            schema.insert("maximum".to_owned(), (*max).into());
        }
        schema
    }
}
#[cfg(feature = "schema")]
pub(crate) use schema::or_none;
#[cfg(feature = "schema")]
pub use schema::{duration_schema, integer_schema};
