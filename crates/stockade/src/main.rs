//! Load testing of caching strategies, and the cache that survives it.
//!
//! The command line: [`cli`] parses and validates arguments, and one module a command runs it. Standard output carries data
//! only, standard error everything else; [`exit`] lists the exit codes.

#![allow(missing_docs, reason = "a program has no public API")]

/// Writes a line to standard error. Files, servers and clients name a part of it: a terminal must not obey their characters.
macro_rules! say {
    ($($argument:tt)*) => {
        eprintln!("{}", stockade_model::message::printable_lines(&format!($($argument)*)))
    };
}

#[cfg(feature = "agents")]
mod agents;
#[cfg(all(feature = "http", not(feature = "agents")))]
#[path = "no_agents.rs"]
mod agents;
#[cfg(feature = "http")]
mod allocator;
#[cfg(feature = "http")]
mod app;
#[cfg(feature = "http")]
mod audit;
mod check;
#[cfg(feature = "http")]
mod child;
mod cli;
mod compare;
mod completions;
mod exit;
mod history;
mod init;
#[cfg(feature = "http")]
mod input;
#[cfg(feature = "http")]
mod load;
mod man;
#[cfg(feature = "mcp")]
mod mcp;
#[cfg(feature = "http")]
mod origin;
mod plan;
mod progress;
#[cfg(feature = "http")]
mod proxy;
mod report;
mod run;
mod stampede;
#[cfg(feature = "http")]
mod telemetry;
#[cfg(feature = "http")]
mod ui;

use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::usage(&error),
    };
    #[cfg(feature = "http")]
    if let Err(error) = allocator::return_memory_soon() {
        say!("warning: freed memory is returned to the system after ten seconds only: {error}");
    }
    let exit = match cli.command {
        Command::Init(args) => init::init(&args),
        Command::Check(args) => check::check(args),
        Command::Run(args) => run::run(*args),
        Command::Stampede(args) => stampede::stampede(args),
        Command::Report(args) => report::report(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::History(args) => history::history(&args),
        Command::Plan(args) => plan::plan(&args),
        #[cfg(feature = "http")]
        Command::Ui(args) => ui::ui(&args),
        #[cfg(feature = "mcp")]
        Command::Mcp(args) => mcp::mcp(args),
        Command::Completions(args) => completions::completions(&args),
        Command::Man(args) => man::man(&args),
        #[cfg(feature = "http")]
        Command::Audit(args) => audit::audit(&args),
        #[cfg(feature = "http")]
        Command::Origin(args) => origin::origin(args),
        #[cfg(feature = "http")]
        Command::Proxy(args) => proxy::proxy(*args),
        #[cfg(feature = "http")]
        Command::Load(args) => load::load(&args),
        #[cfg(feature = "http")]
        Command::Agent(args) => agents::agent(*args),
        #[cfg(feature = "http")]
        Command::App(args) => app::app(&args),
        #[cfg(not(feature = "http"))]
        Command::Other(words) => Err(cli::unavailable(&words)),
    };
    exit.map_or_else(exit::explain, ExitCode::from)
}
