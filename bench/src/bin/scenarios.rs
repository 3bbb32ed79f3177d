//! Scenarios from the trackers of moka, Caffeine, `FusionCache`, foyer and Cachex, on ours and on moka: a loader that
//! panics, a listener that calls the cache, a weight that overflows. Each runs in a process of its own.
//!
//! Prints the page, and with `--write` stores it. `scenarios WORD` runs the scenarios whose names contain the word.
//! Fails if ours did not do what was expected. `scenarios --child SCENARIO CACHE` runs one, in this process: its
//! panics can be read then.

use std::{
    env,
    error::Error,
    fs,
    path::Path,
    process::{ExitCode, exit},
    time::SystemTime,
};

use stockade_bench::scenarios::{
    Scenario, all,
    contender::Kind,
    process::{CHILD, line, run_all},
    report,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PAGE: &str = "../docs/results/scenarios/README.md";

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (word, writes) = match arguments[..] {
        [CHILD, scenario, cache] => run_here(scenario, cache)?,
        [] => ("", false),
        ["--write"] => ("", true),
        [word] if !word.starts_with('-') => (word, false),
        _ => return Err("usage: scenarios [--write | WORD]".into()),
    };
    let scenarios: Vec<&Scenario> = all().filter(|scenario| scenario.name.contains(word)).collect();
    let rows = run_all(&scenarios)?;
    let page = report::markdown(&scenarios, &rows, &moka_version()?, &today());
    if writes {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
        fs::create_dir_all(path.parent().expect("a folder"))?;
        fs::write(path, page)?;
    } else {
        println!("{page}");
    }
    Ok(if report::is_ours_as_expected(&rows) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs a scenario and ends the process, whatever its threads still do.
fn run_here(scenario: &str, cache: &str) -> Result<(&'static str, bool)> {
    let scenario = all().find(|known| known.name == scenario).ok_or("no such scenario")?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == cache).ok_or("no such cache")?;
    let run = scenario.run_of(kind).ok_or("the scenario does not apply to this cache")?;
    println!("{}", line(&run()));
    exit(0);
}

/// The version in `Cargo.lock`.
fn moka_version() -> Result<String> {
    let lock = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.lock"))?;
    let (_, package) = lock.split_once("name = \"moka\"\nversion = \"").ok_or("Cargo.lock has no moka")?;
    Ok(package.split('"').next().unwrap_or_default().to_owned())
}

/// As in `2026-11-27`.
fn today() -> String {
    let date = httpdate::HttpDate::from(SystemTime::now()).to_string();
    let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let mut parts = date.split(' ').skip(1);
    let (day, month, year) = (parts.next(), parts.next(), parts.next());
    let month = month.and_then(|name| months.find(name)).map_or(0, |at| at / 3 + 1);
    format!("{}-{month:02}-{}", year.unwrap_or_default(), day.unwrap_or_default())
}
