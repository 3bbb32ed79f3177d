//! Trials of the lab's verdicts: experiments whose truth is known before they run.
//!
//! - [`equal`]: both arms are the same. Each verdict is a false one, and 95 of 100 intervals contain the ratio 1.
//! - [`noise`]: one arm responds at once, one after 100 ms, and something disturbs the load. A verdict may be open or invalid, and never wrong.
//! - [`planted`]: two programs (one is slower by construction), or the same one twice, for `stockade compare`.
//!
//! A trial runs `stockade` as a child process against addresses of this machine, for seconds. The record of a trial is removed, unless a
//! verdict in it is wrong.

mod disturb;
mod equal;
mod experiment;
mod noise;
mod options;
mod planted;
mod program;
mod record;
mod truth;

pub use options::{Command, USAGE, parse};

/// Errors of the tool itself, shown to the user.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Runs the trials and prints their table; true if no verdict is wrong.
pub fn run(command: &Command) -> Result<bool> {
    match command {
        Command::Equal(options) => equal::run(options),
        Command::Noise(options) => noise::run(options),
        Command::Planted(options) => planted::run(options),
    }
}
