//! Hours of mixed traffic through `stockade proxy` with faults on a schedule; every byte of every body is checked.
//!
//! `soak --duration 2h --seed 1 --out DIR`. The module `stockade_bench::soak` describes the method and the verdict.
//! The exit status is 0 if everything holds, 1 if not, 2 for wrong arguments. `STOCKADE` is the program to test.

use std::{env, process::ExitCode};

use stockade_bench::soak::{self, Command, USAGE};

fn main() -> ExitCode {
    let outcome = match soak::parse(env::args_os().skip(1)) {
        Ok(Command::Help) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Ok(Command::Origin(options)) => soak::serve_origin(&options).map(|()| true),
        Ok(Command::Run(options)) => soak::run(&options),
        Err(error) => {
            eprintln!("soak: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}
