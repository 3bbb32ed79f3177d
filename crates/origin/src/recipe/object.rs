//! An object whose keys are known: each is there once or not at all, and no other.

use std::ops::Range;

use jsonc_parser::ast::{Object as Parsed, ObjectProp, Value};
use stockade_model::nearest::remedy;

use super::{
    error::{Wrong, echo},
    json::{beginning, place},
};

/// An object, by its keys.
pub(super) struct Object<'v> {
    known: &'static [&'static str],
    found: Vec<Option<&'v ObjectProp<'v>>>,
    /// Its brace.
    pub at: Range<usize>,
}

impl<'v> Object<'v> {
    /// Takes one that is called `what` apart; `example` says how one is written.
    pub fn read(
        value: &'v Value<'v>,
        what: &str,
        known: &'static [&'static str],
        example: &str,
    ) -> Result<Self, Wrong> {
        let Value::Object(object) = value else { return Err(cannot_be(what, value, example)) };
        let mut found = vec![None; known.len()];
        for (name, property) in named(object) {
            let Some(at) = known.iter().position(|known| *known == name) else {
                let name = echo(name);
                let help = remedy(&name, known.iter().copied());
                return Err(Wrong::new(format!("unknown key `{name}`"), help, place(&property.name)));
            };
            if found[at].replace(property).is_some() {
                return Err(twice(property));
            }
        }
        Ok(Self { known, found, at: beginning(value) })
    }

    /// The value of a key; `null` is as good as none.
    pub fn get(&self, key: &str) -> Option<&'v Value<'v>> {
        let property = self.property(key)?;
        (!matches!(property.value, Value::NullKeyword(_))).then_some(&property.value)
    }

    /// Where a key stands; the brace, where it does not.
    pub fn key(&self, key: &str) -> Range<usize> {
        self.property(key).map_or_else(|| self.at.clone(), |property| place(&property.name))
    }

    fn property(&self, key: &str) -> Option<&'v ObjectProp<'v>> {
        let at = self.known.iter().position(|known| *known == key)?;
        self.found[at]
    }
}

/// Every key and what belongs to it.
pub(super) fn named<'v>(object: &'v Parsed<'v>) -> impl Iterator<Item = (&'v str, &'v ObjectProp<'v>)> {
    object.properties.iter().map(|property| (property.name.as_str(), property))
}

/// A key that has been there before.
pub(super) fn twice(property: &ObjectProp<'_>) -> Wrong {
    let name = echo(property.name.as_str());
    Wrong::new(format!("the key `{name}` is there twice"), "keep one of them", place(&property.name))
}

/// A value of the wrong kind, for a key or whatever `what` names.
pub(super) fn cannot_be(what: &str, value: &Value<'_>, help: impl Into<String>) -> Wrong {
    let (kind, at) = match value {
        Value::StringLit(_) => ("text", place(value)),
        Value::NumberLit(_) => ("a number", place(value)),
        Value::BooleanLit(_) => ("true or false", place(value)),
        Value::NullKeyword(_) => ("null", place(value)),
        Value::Object(_) => ("an object", beginning(value)),
        Value::Array(_) => ("a list", beginning(value)),
    };
    // What has a blank in it is no key: `a recipe`.
    let quote = if what.contains(' ') { "" } else { "`" };
    Wrong::new(format!("{quote}{what}{quote} cannot be {kind}"), help, at)
}
