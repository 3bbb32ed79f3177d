//! `stockade completions`: a script for a shell.

use clap::{Command, CommandFactory};

use crate::{
    cli::{Cli, CompletionsArgs},
    exit::{CommandError, Exit},
    run::print,
};

/// Prints the script.
pub fn completions(args: &CompletionsArgs) -> Result<Exit, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(&Cli::command()), "stockade", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}

/// The command without its hidden arguments and commands, which the scripts would offer.
fn visible(command: &Command) -> Command {
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    let mut visible = Command::new(command.get_name().to_owned())
        .args(arguments.cloned())
        .subcommands(commands.map(visible));
    if let Some(about) = command.get_about() {
        visible = visible.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        visible = visible.version(version.to_owned());
    }
    visible
}
