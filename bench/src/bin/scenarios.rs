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
};

use stockade_bench::{
    command::machine,
    scenarios::{
        Scenario, all,
        contender::Kind,
        process::{CHILD, line, run_all},
        report,
    },
};
use stockade_record::clock;

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
    let moka = machine::version("moka").ok_or("Cargo.lock has no moka")?;
    // The day of an RFC 3339 time.
    let page = report::markdown(&scenarios, &rows, &moka, &clock::now()[..10]);
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
