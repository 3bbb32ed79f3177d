//! Values that shells complete, with a parser that has messages of its own.

use std::ffi::OsStr;

use clap::{
    Arg, Command, Error,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use stockade_model::registry::{Named, Registry};

/// A thing of a registry, by its name.
pub fn named<T: Named + Sync>(registry: &'static Registry<T>) -> impl TypedValueParser<Value = &'static T> {
    PossibleValuesParser::new(registry.parsed_names())
        .map(|name| registry.named(&name).expect("clap accepts no other names"))
}

/// The names of a registry, with what they mean.
pub fn possible<T: Named>(registry: &'static Registry<T>) -> impl Iterator<Item = PossibleValue> {
    registry.summaries().map(|(name, summary)| PossibleValue::new(name).help(summary))
}

/// A parser with a message of its own for unknown values, and the values that shells complete.
#[derive(Clone)]
pub struct KnownValues<P> {
    parser: P,
    values: fn() -> Vec<PossibleValue>,
}

impl<P> KnownValues<P> {
    pub fn new(parser: P, values: fn() -> Vec<PossibleValue>) -> Self {
        Self { parser, values }
    }
}

impl<P: TypedValueParser> TypedValueParser for KnownValues<P> {
    type Value = P::Value;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<P::Value, Error> {
        self.parser.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.values)().into_iter()))
    }
}
