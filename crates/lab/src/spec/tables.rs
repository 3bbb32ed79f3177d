//! TOML tables that keep the places of their keys.

use std::{ops::Range, path::PathBuf};

use serde::de::DeserializeOwned;
use stockade_cache::spec::{Span, TomlError};
use stockade_source::secrets::masked_file;
use toml::{
    Spanned,
    de::{DeTable, DeValue, Deserializer},
};

pub(super) type TomlTable<'i> = DeTable<'i>;

/// A `[[test]]` or an `[[arm]]`: its name, and the table to lay over the base.
#[derive(Default)]
pub(super) struct Layer<'i> {
    pub(super) name: String,
    /// The file without which the test is left out.
    pub(super) requires: Option<PathBuf>,
    pub(super) table: TomlTable<'i>,
}

/// Lays `over` over `base`: tables merge by key, other values are replaced.
pub(super) fn merge<'i>(mut base: TomlTable<'i>, over: &TomlTable<'i>) -> TomlTable<'i> {
    for (key, value) in over {
        let below = base.remove(key);
        let merged = match (below.map(Spanned::into_inner), value.get_ref()) {
            (Some(DeValue::Table(below)), DeValue::Table(above)) => {
                Spanned::new(value.span(), DeValue::Table(merge(below, above)))
            }
            _ => value.clone(),
        };
        base.insert(key.clone(), merged);
    }
    base
}

pub(super) fn read<T: DeserializeOwned>(table: TomlTable<'_>, span: Range<usize>) -> Result<T, TomlError> {
    T::deserialize(Deserializer::from(Spanned::new(span, table))).map_err(|error| unreadable(&error))
}

/// The keys of a table, as its reader declares them.
#[cfg(feature = "http")]
pub(super) fn keys_of<T: DeserializeOwned>() -> &'static [&'static str] {
    struct Keys<'a>(&'a mut &'static [&'static str]);

    impl<'de> serde::Deserializer<'de> for Keys<'_> {
        type Error = serde::de::value::Error;

        fn deserialize_struct<V: serde::de::Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, Self::Error> {
            *self.0 = fields;
            self.deserialize_any(visitor)
        }

        fn deserialize_any<V: serde::de::Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
            Err(serde::de::Error::custom("there is no value"))
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct
            seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    let mut keys: &[&str] = &[];
    let _ = T::deserialize(Keys(&mut keys));
    keys
}

/// The place of a key.
pub(super) fn find(table: &TomlTable<'_>, name: &str) -> Span {
    table.keys().find(|key| key.get_ref() == name).map(Spanned::span)
}

/// A section of an arm in TOML, without secrets; `None`: it has none.
pub(super) fn written(
    base: &TomlTable<'_>,
    arm: &Layer<'_>,
    section: &str,
    span: &Range<usize>,
) -> Result<Option<String>, TomlError> {
    let mut merged = merge(base.clone(), &arm.table);
    let Some(taken) = take(&mut merged, section)? else { return Ok(None) };
    let taken: toml::Table = read(taken, span.clone())?;
    let text = toml::to_string(&toml::Table::from_iter([(section.to_owned(), taken.into())]));
    Ok(text.ok().map(|text| masked_file(&text)))
}

/// Removes and returns a table.
pub(super) fn take<'i>(table: &mut TomlTable<'i>, name: &str) -> Result<Option<TomlTable<'i>>, TomlError> {
    let Some(key) = table.keys().find(|key| key.get_ref() == name).cloned() else { return Ok(None) };
    match table.remove(&key).map(Spanned::into_inner) {
        Some(DeValue::Table(taken)) => Ok(Some(taken)),
        _ => Err(TomlError::new(format!("write it as one table: [{name}]"), Some(key.span()))),
    }
}

/// The `[[name]]` tables. Their names are removed from the tables and validated.
pub(super) fn layers<'i>(table: &mut TomlTable<'i>, kind: &str) -> Result<Vec<Layer<'i>>, TomlError> {
    let Some(key) = table.keys().find(|key| key.get_ref() == kind).cloned() else { return Ok(Vec::new()) };
    let at = Some(key.span());
    let written_wrong =
        || TomlError::new(format!("write each {kind} as a table of its own, under [[{kind}]]"), at.clone());
    let Some(DeValue::Array(array)) = table.remove(&key).map(Spanned::into_inner) else {
        return Err(written_wrong());
    };
    let mut layers: Vec<Layer<'i>> = Vec::new();
    for value in array {
        let here = value.span();
        let DeValue::Table(mut table) = value.into_inner() else { return Err(written_wrong()) };
        let key = table.keys().find(|key| key.get_ref() == "name").cloned();
        let name = key.and_then(|key| table.remove(&key));
        let (name, at) = match &name {
            Some(value) => (value.get_ref().as_str().unwrap_or_default(), value.span()),
            None => {
                return Err(TomlError::new(
                    format!("this {kind} has no name: write name = \"...\""),
                    Some(here),
                ));
            }
        };
        // Names are parts of expressions, in which `.` and `/` separate and spaces end them.
        let is_plain = |c: char| c.is_alphanumeric() || "_-:".contains(c);
        if name.is_empty() || !name.chars().all(is_plain) {
            let message = format!("names of {kind}s are made of letters, digits, `_`, `-` and `:`");
            return Err(TomlError::new(message, Some(at)));
        }
        if layers.iter().any(|layer| layer.name == name) {
            return Err(TomlError::new(format!("there are two {kind}s named `{name}`"), Some(at)));
        }
        let requires = if kind == "test" { requires(&mut table)? } else { None };
        layers.push(Layer { name: name.to_owned(), requires, table });
    }
    Ok(layers)
}

fn requires(table: &mut TomlTable<'_>) -> Result<Option<PathBuf>, TomlError> {
    let Some(key) = table.keys().find(|key| key.get_ref() == "requires").cloned() else { return Ok(None) };
    match table.remove(&key).map(Spanned::into_inner) {
        Some(DeValue::String(file)) => Ok(Some(file.as_ref().into())),
        _ => Err(TomlError::new("a test requires a file: write requires = \"access.log\"", Some(key.span()))),
    }
}

pub(super) fn unreadable(error: &toml::de::Error) -> TomlError {
    TomlError::from_toml(error, &HINTS)
}

/// Remedies for unclear messages of the TOML parser.
const HINTS: [(&str, &str); 4] = [
    ("missing field `target`", "say what is tested: [target] kind = \"engine\""),
    (
        "missing field `load`",
        "say what the load is: [load] burst = 1000, or rate = \"425/s\" and duration = \"60s\"",
    ),
    ("missing field `at`", "say when the stage begins: at = \"60s\""),
    (
        "expected a sequence",
        "write a list: [[hypothesis]] for each claim, expect = [\"...\"] for its comparisons",
    ),
];
