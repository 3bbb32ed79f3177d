//! Load testing of caching strategies, and the cache that survives it.
//!
//! The command line: what was typed becomes what it means in [`cli`], and one module a command does
//! it. Standard output carries data only, standard error everything else; [`exit`] lists the codes.

mod app;
mod cli;
mod exit;
mod input;
mod lifeline;
mod load;
mod origin;
mod progress;
mod proxy;
mod report;
mod run;
mod stampede;

use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::usage(&error),
    };
    let exit = match cli.command {
        Command::Run(args) => run::run(args),
        Command::Stampede(args) => stampede::stampede(args),
        Command::Origin(args) => origin::origin(args),
        Command::Proxy(args) => proxy::proxy(*args),
        Command::Load(args) => load::load(*args),
        Command::App(args) => app::app(&args),
        Command::Report(args) => report::report(&args),
    };
    exit.map_or_else(exit::explain, ExitCode::from)
}
