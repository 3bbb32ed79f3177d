//! JSON objects with known keys: each key occurs at most once, and there is no other.

use std::ops::Range;

use jsonc_parser::ast::{Object, ObjectProp, Value};
use stockade_model::nearest::remedy;

use super::{
    error::{RecipeProblem, abbreviate},
    json::{first_char, span},
};

/// The properties of an object, by key.
pub(super) struct RecipeFields<'v> {
    known: &'static [&'static str],
    properties: Vec<Option<&'v ObjectProp<'v>>>,
    /// The opening brace.
    pub span: Range<usize>,
}

impl<'v> RecipeFields<'v> {
    /// Checks that `value` is an object with only `known` keys. Messages call it `noun` and show `example`.
    pub fn parse(
        value: &'v Value<'v>,
        noun: &str,
        known: &'static [&'static str],
        example: &str,
    ) -> Result<Self, RecipeProblem> {
        let Value::Object(object) = value else { return Err(wrong_type(noun, value, example)) };
        let mut properties = vec![None; known.len()];
        for (name, property) in named_properties(object) {
            let Some(index) = known.iter().position(|known| *known == name) else {
                let name = abbreviate(name);
                let help = remedy(&name, known.iter().copied());
                return Err(RecipeProblem::new(format!("unknown key `{name}`"), help, span(&property.name)));
            };
            if properties[index].replace(property).is_some() {
                return Err(duplicate_key(property));
            }
        }
        Ok(Self { known, properties, span: first_char(value) })
    }

    /// The value of a key. `null` counts as absent.
    pub fn get(&self, key: &str) -> Option<&'v Value<'v>> {
        let property = self.property(key)?;
        (!matches!(property.value, Value::NullKeyword(_))).then_some(&property.value)
    }

    /// The bytes of a key, or of the brace if the key is absent.
    pub fn key_span(&self, key: &str) -> Range<usize> {
        self.property(key).map_or_else(|| self.span.clone(), |property| span(&property.name))
    }

    fn property(&self, key: &str) -> Option<&'v ObjectProp<'v>> {
        let index = self.known.iter().position(|known| *known == key)?;
        self.properties[index]
    }
}

pub(super) fn named_properties<'v>(
    object: &'v Object<'v>,
) -> impl Iterator<Item = (&'v str, &'v ObjectProp<'v>)> {
    object.properties.iter().map(|property| (property.name.as_str(), property))
}

pub(super) fn duplicate_key(property: &ObjectProp<'_>) -> RecipeProblem {
    let name = abbreviate(property.name.as_str());
    RecipeProblem::new(format!("the key `{name}` occurs twice"), "keep one of them", span(&property.name))
}

/// `noun` is a key, or a phrase such as `a recipe`.
pub(super) fn wrong_type(noun: &str, value: &Value<'_>, help: impl Into<String>) -> RecipeProblem {
    let (kind, span) = match value {
        Value::StringLit(_) => ("text", span(value)),
        Value::NumberLit(_) => ("a number", span(value)),
        Value::BooleanLit(_) => ("true or false", span(value)),
        Value::NullKeyword(_) => ("null", span(value)),
        Value::Object(_) => ("an object", first_char(value)),
        Value::Array(_) => ("a list", first_char(value)),
    };
    // Keys are quoted; phrases contain a space and are not.
    let quote = if noun.contains(' ') { "" } else { "`" };
    RecipeProblem::new(format!("{quote}{noun}{quote} cannot be {kind}"), help, span)
}
