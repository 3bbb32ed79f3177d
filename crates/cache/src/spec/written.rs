//! Values that files write as text, or as a table or a word.

use std::{fmt::Display, marker::PhantomData, ops::RangeBounds, str::FromStr, time::Duration};

use serde::{
    Deserialize, Deserializer,
    de::{self, Error as _, MapAccess, value::MapAccessDeserializer},
};
use stockade_model::units::{self, UnitError};

/// Something written as text that its own type reads; a bare number is told what it lacks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Text<T>(pub T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        units::text::written(from)?.parse().map(Self).map_err(D::Error::custom)
    }
}

/// A duration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Plain(pub Duration);

impl FromStr for Plain {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        units::parse_duration(text).map(Self)
    }
}

/// A duration, or `none`: without an end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ending(pub Option<Duration>);

impl FromStr for Ending {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text == "none" { Ok(Self(None)) } else { units::parse_duration(text).map(|time| Self(Some(time))) }
    }
}

/// Bytes, written with a unit. More than this machine can count is as good as all that it can.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size(pub usize);

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        units::parse_size(text).map(|bytes| Self(usize::try_from(bytes).unwrap_or(usize::MAX)))
    }
}

/// A table such as `example`, or `"none"`.
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
            let other =
                || E::custom(format!("`{text}` is no {what}: write a table such as {example}, or \"none\""));
            if text == "none" { Ok(None) } else { Err(other()) }
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Option<T>, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(Some)
        }
    }
    from.deserialize_any(Visitor { what, example, table: PhantomData })
}

/// A whole number within bounds, and what is said of any other.
pub fn count<'de, D: Deserializer<'de>>(
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

/// Types of whole numbers within bounds, and what is said of any other: `Name: 1..=9, "a hand has 1 to 9";`. Whoever
/// uses it has serde.
#[macro_export]
#[doc(hidden)]
macro_rules! __counted {
    ($($(#[$what:meta])* $name:ident: $bounds:expr, $otherwise:literal;)*) => {$(
        $(#[$what])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub(crate) struct $name(pub(crate) usize);

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::spec::written::count(from, $bounds, $otherwise).map(Self)
            }
        }
    )*};
}
#[doc(inline)]
pub use __counted as counted;

/// Words that [`Text`] is read from, as a JSON schema has them.
#[cfg(feature = "schema")]
pub trait Words {
    /// Text, and of which form.
    fn schema() -> schemars::Schema;
}

#[cfg(feature = "schema")]
mod schema {
    use std::borrow::Cow;

    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::{Ending, Plain, Size, Text, Words};

    impl<T: Words> JsonSchema for Text<T> {
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

    /// A duration, or else `"none"` where that is let be written.
    #[must_use]
    pub fn duration_schema(has_none: bool) -> Schema {
        let written = r"0|\s*[0-9.]+\s*(ns|us|µs|ms|s|m|h|d)\s*";
        let none = if has_none { "none|" } else { "" };
        json_schema!({ "type": "string", "pattern": format!("^({none}{written})$") })
    }

    impl Words for Plain {
        fn schema() -> Schema {
            duration_schema(false)
        }
    }

    impl Words for Ending {
        fn schema() -> Schema {
            duration_schema(true)
        }
    }

    impl Words for Size {
        fn schema() -> Schema {
            json_schema!({ "type": "string", "pattern": r"^(0|\s*[0-9.]+\s*(B|KiB|MiB|GiB|[kK]B|MB|GB)\s*)$" })
        }
    }

    /// A table, or `"none"`.
    pub(crate) fn or_none<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [table, { "const": "none" }] })
    }

    /// A whole number.
    pub(crate) fn whole(least: u32) -> Schema {
        json_schema!({ "type": "integer", "minimum": least })
    }
}
#[cfg(feature = "schema")]
pub use schema::duration_schema;
#[cfg(feature = "schema")]
pub(crate) use schema::{or_none, whole};
