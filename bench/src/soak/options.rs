//! The arguments.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};

use lexopt::prelude::{Long, ValueExt};

use super::Result;

pub const USAGE: &str = "\
Test stockade proxy for hours: mixed traffic, faults on a schedule, every byte checked.

Usage: soak [--duration TIME] [--seed N] [--rate N] [--out DIR]

  --duration <TIME>  Length of the traffic: 90s, 10m, 2h [default: 10m]
  --seed <N>         Random seed of bodies, traffic and faults [default: 1]
  --rate <N>         Requests per second, both proxies together [default: 250]
  --out <DIR>        Folder for the report and the records [default: soak-out]
  --help             Show this help";

pub enum Command {
    Help,
    Run(RunOptions),
    /// The origin, which a run starts in a process of its own.
    Origin(OriginOptions),
}

#[derive(Clone, Debug)]
pub struct RunOptions {
    pub duration: Duration,
    pub seed: u64,
    pub rate_per_second: u32,
    pub out: PathBuf,
}

#[derive(Clone, Debug)]
pub struct OriginOptions {
    pub listen: SocketAddr,
    pub seed: u64,
}

/// Reads the arguments, without the name of the program.
pub fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Command> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let (mut seed, mut listen) = (1, None);
    let mut run = RunOptions {
        duration: Duration::from_mins(10),
        seed,
        rate_per_second: 250,
        out: PathBuf::from("soak-out"),
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Long("duration") => run.duration = duration(&parser.value()?.string()?)?,
            Long("seed") => seed = parser.value()?.parse()?,
            Long("rate") => run.rate_per_second = parser.value()?.parse()?,
            Long("out") => run.out = parser.value()?.into(),
            // Only for the child process.
            Long("origin") => listen = Some(parser.value()?.parse()?),
            Long("help") => return Ok(Command::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    if let Some(listen) = listen {
        return Ok(Command::Origin(OriginOptions { listen, seed }));
    }
    if run.duration < Duration::from_mins(1) {
        return Err("--duration has to be 1m or more, so that every fault takes place".into());
    }
    if !(1..=5_000).contains(&run.rate_per_second) {
        return Err("--rate has to be from 1 to 5000".into());
    }
    Ok(Command::Run(RunOptions { seed, ..run }))
}

/// `90s`, `10m` or `2h`.
fn duration(text: &str) -> Result<Duration> {
    let wrong = || format!("--duration: {text:?} is not a time such as 90s, 10m or 2h");
    let (number, seconds) = [("s", 1), ("m", 60), ("h", 3_600)]
        .into_iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))
        .ok_or_else(wrong)?;
    let number: u64 = number.parse().map_err(|_| wrong())?;
    Ok(Duration::from_secs(number.checked_mul(seconds).ok_or_else(wrong)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("2h").expect("hours"), Duration::from_hours(2));
        assert_eq!(duration("90s").expect("seconds"), Duration::from_secs(90));
        for wrong in ["", "5", "h", "-1m", "1d", "99999999999999999999h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn arguments_out_of_bounds_are_refused() {
        for wrong in [&["--duration", "10s"][..], &["--rate", "0"], &["--rate", "9999"], &["--speed"], &["x"]]
        {
            assert!(parse(wrong.iter().map(OsString::from)).is_err(), "{wrong:?}");
        }
    }
}
