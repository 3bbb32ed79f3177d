//! The arguments of the commands that describe the program, and values that its parsers know.

use std::ffi::OsStr;

use clap::{
    Arg, Args, Command, Error,
    builder::{PossibleValue, TypedValueParser},
};
use clap_complete::Shell;

#[derive(Debug, Args)]
#[command(after_help = PLACES)]
pub struct CompletionsArgs {
    /// Shell that reads the script
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

const PLACES: &str = "Where to put the script:
  bash  stockade completions bash > ~/.local/share/bash-completion/completions/stockade
  zsh   stockade completions zsh > ~/.zfunc/_stockade; in ~/.zshrc before compinit: fpath+=~/.zfunc
  fish  stockade completions fish > ~/.config/fish/completions/stockade.fish";

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
