//! `stockade man`: the manual page of the program, or of a command.

use clap::{
    Arg, Command, CommandFactory,
    builder::{PossibleValue, Resettable},
};
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};

use crate::{
    cli::{Cli, ManArgs, exit_codes},
    exit::{CommandError, Exit},
    run::print,
};

/// Prints the page.
pub fn man(args: &ManArgs) -> Result<Exit, CommandError> {
    print(&page(args.command.as_deref()).map_err(CommandError::Output)?)?;
    Ok(Exit::Done)
}

fn page(name: Option<&str>) -> std::io::Result<String> {
    let mut program = Cli::command().disable_help_subcommand(true).subcommand_help_heading("COMMANDS");
    program.build();
    let command = name.and_then(|name| program.find_subcommand(name)).unwrap_or(&program).clone();
    let title = command.get_display_name().unwrap_or(command.get_name()).to_uppercase();
    let headings: Vec<_> = command
        .get_arguments()
        .filter_map(|argument| argument.get_help_heading().map(str::to_owned))
        .collect();

    let mut page = Vec::new();
    Man::new(as_in_help(&command))
        .title(title)
        .source(format!("stockade {}", env!("CARGO_PKG_VERSION")))
        // An empty date would vanish, and the fields after it would shift.
        .date(" ")
        .manual("User Commands")
        .render(&mut page)?;
    let mut page = String::from_utf8_lossy(&page).into_owned();
    // Paths and commands are not hyphenated, nor lines stretched.
    page = page.replacen("\n.SH NAME\n", "\n.nh\n.ad l\n.SH NAME\n", 1);
    // Groups of options are parts of the options.
    for heading in headings {
        page = page.replace(&format!("\n.SH {}\n", heading.to_uppercase()), &format!("\n.SS {heading}\n"));
    }

    let mut end = Roff::new();
    if let Some(help) = command.get_after_help() {
        notes(&mut end, &help.to_string());
    }
    end.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in exit_codes(name) {
        end.control("TP", ["4"]);
        end.text([bold(code.to_string())]);
        end.text([roman(*meaning)]);
    }
    if name.is_some() {
        end.control("SH", ["SEE ALSO"]);
        end.text([bold("stockade"), roman("(1)")]);
    }
    Ok(page + &end.render())
}

/// The command with the synopsis and the descriptions of its help, and without the end of the help, which [`notes`] renders.
fn as_in_help(command: &Command) -> Command {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim().trim_start_matches("Usage: ").to_owned();
    command.clone().override_usage(usage).after_help(Resettable::Reset).mut_args(with_values_in_description)
}

/// The argument with its default and its possible values at the end of its description: a list of its own would take a line
/// for each.
fn with_values_in_description(argument: Arg) -> Arg {
    let mut parts: Vec<String> = argument.get_help().map(ToString::to_string).into_iter().collect();
    if argument.get_action().takes_values() {
        let defaults: Vec<_> =
            argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        if !defaults.is_empty() {
            parts.push(format!("[default: {}]", defaults.join(" ")));
        }
        let values = argument.get_possible_values();
        let names: Vec<_> = values.iter().map(PossibleValue::get_name).collect();
        if !names.is_empty() && !argument.is_hide_possible_values_set() {
            parts.push(format!("[possible values: {}]", names.join(", ")));
        }
    }
    argument.help(parts.join(" ")).hide_default_value(true).hide_possible_values(true)
}

/// The end of a help text: a line that ends with a colon is a heading, an indented line with two columns an entry, another
/// indented line is code. Exit codes have a section of their own.
fn notes(page: &mut Roff, help: &str) {
    let mut is_code = false;
    for line in help.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("Exit codes: ")) {
        let entry = line.strip_prefix("  ").and_then(|line| line.trim_start().split_once("  "));
        let continues_code = entry.is_none() && line.starts_with("  ");
        if continues_code != is_code {
            page.control(if continues_code { "nf" } else { "fi" }, []);
            is_code = continues_code;
        }
        match (line.strip_suffix(':'), entry) {
            (Some(heading), None) if !is_code => {
                page.control("SH", [heading.to_uppercase().as_str()]);
            }
            (_, Some((name, summary))) => {
                page.control("TP", []);
                page.text([bold(name)]);
                page.text([roman(summary.trim_start())]);
            }
            _ if is_code => {
                page.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
            }
            _ => {
                page.control("PP", []);
                page.text([roman(line)]);
            }
        }
    }
    if is_code {
        page.control("fi", []);
    }
}
