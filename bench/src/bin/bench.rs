//! `make bench`: all benches as one command. `--help` has its options; bench/README.md says how to read its results.

use std::{env, fs, process::ExitCode};

use stockade_bench::{
    command::{
        options::{Command, USAGE, list, parse},
        report,
        runner::{run, sit_here},
    },
    herd,
    origin::serve,
    responder::respond,
    suite::{Result, find},
};

fn main() -> ExitCode {
    match dispatch() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// False if a bench failed.
fn dispatch() -> Result<bool> {
    let arguments: Vec<String> = env::args().collect();
    let words: Vec<&str> = arguments[1..].iter().map(String::as_str).collect();
    // The child processes of a sitting.
    match words.as_slice() {
        ["sit", arguments @ ..] => return sit_here(arguments).map(|()| true),
        ["serve", file] => return serve(fs::read_to_string(file)?).map(|()| true),
        ["respond"] => return respond().map(|()| true),
        ["hold", requests, kib] => return herd::hold(requests.parse()?, kib.parse()?).map(|()| true),
        ["child", bench, arguments @ ..] => {
            let child = find(bench)?.child.ok_or("a bench without child processes")?;
            return child(arguments).map(|()| true);
        }
        _ => {}
    }
    match parse(arguments.iter().skip(1).cloned())? {
        Command::Help => print!("{USAGE}"),
        Command::Run(options) if options.is_report => report::write(&options.out)?,
        Command::Run(options) if options.names.is_empty() => print!("{}", list(options.sittings)),
        Command::Run(options) => return run(&options),
    }
    Ok(true)
}
