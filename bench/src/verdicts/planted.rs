//! Records of two programs (one is slower by construction) or of the same one, judged by `stockade compare`.

use std::{path::PathBuf, time::Duration};

use super::{
    Result, experiment,
    options::{Change, Planted, Trials},
    program::{Folder, RunPlan, compare, run as run_program},
    record::{Compared, changes},
};
use crate::statistics::{median, range};

const RATE: u32 = 1_000;
const SECONDS: u32 = 2;
/// The response time of hits that has to be judged.
const METRIC: &str = "response.p50";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Right,
    Open,
    Wrong,
}

pub fn run(options: &Planted) -> Result<bool> {
    let Planted { trials, other, expected } = options;
    let (mut outcomes, mut measured) = (Vec::new(), Vec::new());
    for pair in 0..trials.count {
        let programs = [("a", &trials.program), ("b", other)];
        let folders = programs.map(|(side, _)| {
            Folder::create(&trials.out, &format!("planted-{}-{pair}-{side}", expected.name()))
        });
        let [before, after] = folders;
        let folders = [before?, after?];
        // The order alternates, since the first program may find the machine in another state.
        for at in [0, 1].map(|at| (at + pair as usize) % 2) {
            measure(trials, programs[at].1, pair, &folders[at])?;
        }
        let [before, after] = folders.each_ref().map(Folder::record);
        let changes = changes(&compare(&trials.program, &before, &after)?)?;
        let of_metric = changes.iter().find(|change| change.metric == METRIC);
        measured.extend(of_metric.and_then(|change| change.change));
        let outcome = outcome(*expected, &changes);
        if outcome != Outcome::Right {
            print_decided(pair, outcome, &changes);
        }
        for folder in folders {
            folder.close(outcome == Outcome::Wrong)?;
        }
        outcomes.push(outcome);
    }
    let count = |wanted| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    let (least, most) = range(&measured);
    println!(
        "| expected | pairs | repeats | right | open | wrong | change of {METRIC} |\n|---|---|---|---|---|---|---|"
    );
    println!(
        "| {} | {} | {} | {} | {} | {} | {:+.0} % ({:+.0} to {:+.0} %) |",
        expected.name(),
        trials.count,
        trials.repeats,
        count(Outcome::Right),
        count(Outcome::Open),
        count(Outcome::Wrong),
        median(measured) * 100.0,
        least * 100.0,
        most * 100.0
    );
    Ok(count(Outcome::Wrong) == 0)
}

fn measure(trials: &Trials, program: &PathBuf, pair: u32, folder: &Folder) -> Result<()> {
    let plan = RunPlan {
        program,
        experiment: &experiment::hits(RATE, SECONDS),
        repeats: trials.repeats,
        seed: trials.seed + u64::from(pair),
        load: Duration::from_secs((SECONDS * trials.repeats).into()),
        core: None,
    };
    run_program(&plan, folder)
}

/// Of equal programs nothing may be better or worse; of others the metric has to be, and may not be the opposite.
fn outcome(expected: Change, changes: &[Compared]) -> Outcome {
    let is_decided = |change: &&Compared| ["worse", "better"].contains(&change.verdict.as_str());
    if expected == Change::Same {
        return if changes.iter().any(|change| is_decided(&change)) {
            Outcome::Wrong
        } else {
            Outcome::Right
        };
    }
    let verdict = changes.iter().find(|change| change.metric == METRIC).map(|change| change.verdict.as_str());
    match verdict {
        Some(verdict) if verdict == expected.name() => Outcome::Right,
        None | Some("unknown") => Outcome::Open,
        Some(_) => Outcome::Wrong,
    }
}

/// The metrics that are better or worse.
fn print_decided(pair: u32, outcome: Outcome, changes: &[Compared]) {
    let name = if outcome == Outcome::Wrong { "WRONG" } else { "open" };
    let percent = |share: f64| share * 100.0;
    for Compared { metric, verdict, change, interval } in changes {
        if verdict != "same" && (verdict != "unknown" || metric == METRIC) {
            let change = percent(change.unwrap_or_default());
            let interval = interval.map_or("no interval".to_owned(), |(low, high)| {
                format!("{:+.1} to {:+.1} %", percent(low), percent(high))
            });
            eprintln!("{name}, pair {pair}: {metric} is {verdict}: {change:+.1} % ({interval})");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(metric: &str, verdict: &str) -> Compared {
        Compared { metric: metric.to_owned(), verdict: verdict.to_owned(), change: Some(0.5), interval: None }
    }

    #[test]
    fn equal_programs_may_not_differ_and_others_have_to() {
        for (expected, verdict, is_right) in [
            (Change::Worse, "worse", Outcome::Right),
            (Change::Worse, "unknown", Outcome::Open),
            (Change::Worse, "same", Outcome::Wrong),
            (Change::Better, "worse", Outcome::Wrong),
            (Change::Same, "unknown", Outcome::Right),
            (Change::Same, "same", Outcome::Right),
            (Change::Same, "better", Outcome::Wrong),
        ] {
            let changes = [compared("hit_ratio", "same"), compared(METRIC, verdict)];
            assert!(outcome(expected, &changes) == is_right, "{} is {verdict}", expected.name());
        }
        let other = [compared("proxy.cpu.mean", "worse"), compared(METRIC, "same")];
        assert!(outcome(Change::Same, &other) == Outcome::Wrong);
    }
}
