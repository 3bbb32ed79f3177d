//! The arguments of the command.

use std::path::PathBuf;

use lexopt::prelude::*;

use crate::suite::{BENCHES, Bench, Result, find};

pub const USAGE: &str = "\
usage: bench [OPTIONS] [NAME...|all]

Without a name, list the benches. Otherwise run them and write RESULTS.md.

  --sittings N   Sittings of each bench, one after the other over all benches [default: 5]
  --seed N       Random seed of the orders [default: 1]
  --smoke        One tiny sitting of each bench, to see that it works; write nothing
  --report       Write RESULTS.md from the records and run nothing
  --out DIR      Folder of RESULTS.md and of the records [default: the folder bench]
";

#[derive(Debug)]
pub struct Options {
    /// Empty: list the benches.
    pub names: Vec<&'static str>,
    pub sittings: u32,
    pub seed: u64,
    pub is_smoke: bool,
    pub is_report: bool,
    pub out: PathBuf,
}

/// The command of the arguments.
#[derive(Debug)]
pub enum Command {
    Help,
    Run(Options),
}

pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Command> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut options = Options {
        names: Vec::new(),
        sittings: 5,
        seed: 1,
        is_smoke: false,
        is_report: false,
        out: env!("CARGO_MANIFEST_DIR").into(),
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(Command::Help),
            Long("sittings") => options.sittings = parser.value()?.parse()?,
            Long("seed") => options.seed = parser.value()?.parse()?,
            Long("smoke") => options.is_smoke = true,
            Long("report") => options.is_report = true,
            Long("out") => options.out = parser.value()?.into(),
            Value(name) if name == "all" => options.names.extend(BENCHES.iter().map(|bench| bench.name)),
            Value(name) => options.names.push(find(&name.string()?)?.name),
            _ => return Err(argument.unexpected().into()),
        }
    }
    if options.sittings == 0 {
        return Err("--sittings 0: a bench needs at least one sitting".into());
    }
    if options.is_smoke {
        options.sittings = 1;
        if options.names.is_empty() {
            options.names.extend(BENCHES.iter().map(|bench| bench.name));
        }
    }
    let mut seen = Vec::new();
    options.names.retain(|name| {
        !seen.contains(name) && {
            seen.push(*name);
            true
        }
    });
    Ok(Command::Run(options))
}

/// The list of benches: names, minutes of `sittings` sittings, and what they show.
#[must_use]
pub fn list(sittings: u32) -> String {
    let line = |bench: &Bench| {
        let minutes = (bench.seconds * u64::from(sittings)).div_ceil(60);
        format!("  {:<10} {minutes:>3} min  {}\n", bench.name, bench.shows)
    };
    let total = BENCHES.iter().map(|bench| bench.seconds).sum::<u64>() * u64::from(sittings);
    format!(
        "Benches, and their time in {sittings} sittings:\n\n{}\n  {:<10} {:>3} min\n\n\
         Run one with `make bench NAME=hits`, all with `make bench NAME=all`. Results: bench/RESULTS.md.\n",
        BENCHES.iter().map(line).collect::<String>(),
        "all",
        total.div_ceil(60)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Result<Options> {
        match parse(arguments.iter().map(|text| (*text).to_owned()))? {
            Command::Run(options) => Ok(options),
            Command::Help => Err("help".into()),
        }
    }

    #[test]
    fn names_are_benches_and_each_runs_once() {
        let chosen = options(&["hits", "proxy", "hits", "--sittings", "3"]).unwrap();
        assert_eq!((chosen.names.as_slice(), chosen.sittings), (["hits", "proxy"].as_slice(), 3));
        assert_eq!(options(&["all"]).unwrap().names.len(), BENCHES.len());
        assert!(options(&["nginx"]).unwrap_err().to_string().contains("choose from hits, "));
        assert!(options(&["--sittings", "0"]).is_err());
    }

    #[test]
    fn smoke_runs_all_in_one_sitting() {
        let smoke = options(&["--smoke"]).unwrap();
        assert_eq!((smoke.names.len(), smoke.sittings), (BENCHES.len(), 1));
    }

    #[test]
    fn list_names_every_bench() {
        assert!(BENCHES.iter().all(|bench| list(5).contains(bench.shows)));
    }
}
