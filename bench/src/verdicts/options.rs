//! The arguments of `verdict_trials`.

use std::{
    env,
    ffi::OsString,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use lexopt::{
    Parser,
    prelude::{Long, Value, ValueExt},
};

use super::Result;

pub const USAGE: &str = "\
Count the right, open and wrong verdicts of stockade, in trials whose truth is known.

Usage: verdict_trials equal BINARY [--pairs N] [--repeats N] [--seed N] [--out DIR]
       verdict_trials noise BINARY [--trials N] [--repeats N] [--seed N] [--out DIR]
       verdict_trials planted BASELINE OTHER --expect worse|same|better [--pairs N] [--repeats N] [--seed N] [--out DIR]

  --pairs <N>     Pairs of equal arms, or of records [default: 40, planted: 10]
  --trials <N>    Disturbed experiments [default: 50]
  --repeats <N>   Repeats of each experiment [default: 1, planted: 5]
  --expect <HOW>  What the response times of OTHER are compared with those of BASELINE
  --seed <N>      Random seed of requests and disturbances [default: 1]
  --out <DIR>     Folder of the records; those of wrong verdicts stay [default: a temporary folder]
  --help          Show this help";

/// Bounds the time of a run.
const TRIALS: RangeInclusive<u32> = 1..=1_000;
const REPEATS: RangeInclusive<u32> = 1..=30;

#[derive(Debug)]
pub enum Command {
    Equal(Trials),
    Noise(Trials),
    Planted(Planted),
}

#[derive(Clone, Debug)]
pub struct Trials {
    pub program: PathBuf,
    pub count: u32,
    pub repeats: u32,
    pub seed: u64,
    pub out: PathBuf,
}

#[derive(Clone, Debug)]
pub struct Planted {
    /// The program is the baseline.
    pub trials: Trials,
    pub other: PathBuf,
    pub expected: Change,
}

/// A judgement of `stockade compare`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Worse,
    Same,
    Better,
}

impl Change {
    pub fn name(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Same => "same",
            Self::Better => "better",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Worse, Self::Same, Self::Better].into_iter().find(|change| change.name() == name)
    }
}

/// Reads the arguments, without the name of the program. `None`: help is wanted.
pub fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Option<Command>> {
    let mut parser = Parser::from_args(arguments);
    let mut words: Vec<OsString> = Vec::new();
    let (mut count, mut repeats, mut seed, mut out, mut expected) = (None, None, 1, None, None);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("pairs" | "trials") => count = Some(within(&mut parser, TRIALS)?),
            Long("repeats") => repeats = Some(within(&mut parser, REPEATS)?),
            Long("seed") => seed = parser.value()?.parse()?,
            Long("out") => out = Some(PathBuf::from(parser.value()?)),
            Long("expect") => {
                let name = parser.value()?.string()?;
                expected = Some(Change::named(&name).ok_or("--expect is worse, same or better")?);
            }
            Long("help") => return Ok(None),
            Value(word) => words.push(word),
            other => return Err(other.unexpected().into()),
        }
    }
    let temporary = || env::temp_dir().join(format!("stockade-verdict-trials-{}", std::process::id()));
    let out = out.unwrap_or_else(temporary);
    let trials = |program: &OsString, default_count, default_repeats| {
        let program =
            Path::new(program).canonicalize().map_err(|error| format!("{}: {error}", program.display()))?;
        let (count, repeats) = (count.unwrap_or(default_count), repeats.unwrap_or(default_repeats));
        Ok::<_, String>(Trials { program, count, repeats, seed, out: out.clone() })
    };
    let [name, programs @ ..] = words.as_slice() else { return Err("equal, noise or planted?".into()) };
    let command = match (name.to_str(), programs, expected) {
        (Some("equal"), [program], None) => Command::Equal(trials(program, 40, 1)?),
        (Some("noise"), [program], None) => Command::Noise(trials(program, 50, 1)?),
        (Some("planted"), [baseline, other], Some(expected)) => {
            let other = trials(other, 10, 5)?.program;
            Command::Planted(Planted { trials: trials(baseline, 10, 5)?, other, expected })
        }
        _ => return Err(format!("{} does not take these arguments", name.display()).into()),
    };
    Ok(Some(command))
}

fn within(parser: &mut Parser, bounds: RangeInclusive<u32>) -> Result<u32> {
    let number = parser.value()?.parse()?;
    let (least, most) = (bounds.start(), bounds.end());
    if bounds.contains(&number) {
        Ok(number)
    } else {
        Err(format!("{number} is not {least} to {most}").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &str) -> Result<Option<Command>> {
        parse(arguments.split(' ').map(OsString::from))
    }

    #[test]
    fn commands_have_defaults() {
        let Ok(Some(Command::Equal(equal))) = parsed("equal /bin/sh --repeats 3") else { panic!("equal") };
        assert_eq!((equal.count, equal.repeats, equal.seed), (40, 3, 1));
        let Ok(Some(Command::Planted(planted))) = parsed("planted /bin/sh /bin/ls --expect better") else {
            panic!("planted")
        };
        assert_eq!((planted.trials.count, planted.trials.repeats, planted.expected), (10, 5, Change::Better));
        assert!(parsed("noise --help").expect("help").is_none());
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for wrong in [
            "equal",
            "equal /bin/sh /bin/sh",
            "noise /no/such/program",
            "noise /bin/sh --trials 0",
            "noise /bin/sh --repeats 31",
            "planted /bin/sh /bin/sh",
            "planted /bin/sh /bin/sh --expect slower",
            "equal /bin/sh --expect same",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
