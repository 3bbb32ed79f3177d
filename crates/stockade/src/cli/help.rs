//! The arguments of `completions` and `man`.

use clap::{
    Args, CommandFactory,
    builder::{PossibleValue, TypedValueParser},
};
use clap_complete::Shell;
use stockade_model::nearest::remedy;

use super::{Cli, values::KnownValues};

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

#[derive(Debug, Args)]
#[command(after_help = READING)]
pub struct ManArgs {
    /// Command that the page describes [default: the program]
    #[arg(value_name = "COMMAND", value_parser = command_name(), hide_possible_values = true)]
    pub command: Option<String>,
}

const READING: &str = "To read a page:
  stockade man load | man -l -";

fn command_name() -> impl TypedValueParser<Value = String> {
    let known = |name: &str| {
        let commands = command_names();
        if commands.iter().any(|command| command == name) {
            return Ok(name.to_owned());
        }
        Err(format!("unknown command `{name}`: {}", remedy(name, commands.iter().map(String::as_str))))
    };
    KnownValues::new(known, || command_names().into_iter().map(PossibleValue::new).collect())
}

/// The commands that the help lists.
fn command_names() -> Vec<String> {
    let program = Cli::command();
    let shown = program.get_subcommands().filter(|command| !command.is_hide_set());
    shown.map(|command| command.get_name().to_owned()).collect()
}
