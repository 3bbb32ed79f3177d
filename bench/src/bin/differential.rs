//! The same raw requests to `stockade proxy`, nginx, Varnish, `HAProxy` and Traffic Server, each in front of an origin
//! that records what it receives: every disagreement about framing, and about what is cached.
//!
//! Prints Markdown, and fails if ours is lax in any case: `differential/judge.rs` has the rule. The proxies run with
//! their defaults, as Debian packages them; those that are not installed are named. `differential WORD` runs the cases
//! whose names contain the word, and lists agreements too; `differential smuggling` runs those before real web servers alone. `STOCKADE` is
//! the program, built if it is not set.

use std::{env, error::Error, fs, process::ExitCode};

use stockade_bench::differential::{cases, report, run, smuggling};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let word = env::args().nth(1);
    let mut cases = cases::all();
    if let Some(word) = &word {
        cases.retain(|case| case.name.contains(word.as_str()));
    }
    let folder = env::temp_dir().join(format!("stockade-differential-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let is_smuggling = word.as_deref() == Some("smuggling");
    let run_all = || {
        let findings = if is_smuggling { None } else { Some(run(&cases, &folder)?) };
        let mut lax = 0;
        if let Some(findings) = findings {
            println!("{}", report::markdown(&cases, &findings, word.is_some()));
            lax += report::count_lax(&report::judge_all(&cases, &findings));
        }
        if word.is_none() || is_smuggling {
            let smuggling = smuggling::run(&folder)?;
            println!("{}", smuggling::markdown(&smuggling));
            lax += smuggling::count_lax(&smuggling);
        }
        Ok::<_, Box<dyn Error>>(lax)
    };
    let lax = run_all();
    let removed = fs::remove_dir_all(&folder);
    let lax = lax?;
    removed?;
    Ok(if lax == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
