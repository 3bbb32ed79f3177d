//! What the verdicts of `stockade run` and `stockade compare` are worth: trials whose truth is known before.
//!
//! `verdict_trials equal|noise|planted ...`; `--help` lists the arguments. The module `stockade_bench::verdicts` describes the trials.
//! The exit status is 0 if no verdict is wrong, 1 if one is, 2 for wrong arguments. Verdicts have an error rate of 5 %: two of 40 pairs of equal
//! arms may be wrong. An error that repeats is not due to chance.

use std::{env, process::ExitCode};

use stockade_bench::verdicts::{self, USAGE};

fn main() -> ExitCode {
    let command = match verdicts::parse(env::args_os().skip(1)) {
        Ok(Some(command)) => command,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("verdict_trials: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match verdicts::run(&command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("verdict_trials: {error}");
            ExitCode::FAILURE
        }
    }
}
