//! The highest rate at which claims hold: one trial after the other.

use serde_json::json;
use stockade_lab::host;
use stockade_load::{
    LoadRecord,
    generator::LoadTestRun,
    schedule::Rate,
    search::{Search, SearchOptions, SearchResult, SearchStatus, TrialVerdict},
};
use stockade_model::units::format_duration;
use stockade_record::judge::LoadClaims;

use super::{live::LiveReport, resolve, sender};
use crate::{
    cli::LoadArgs,
    exit::{CommandError, Exit},
    progress::stop_on_signals,
    run::print,
    telemetry::Telemetry,
};

/// Agents start at the first number of a round over all of them, so a trial may use more numbers than it has requests.
const NUMBERS_BETWEEN: u64 = 1_000_000;

/// Each trial is a line on standard error; the result is on standard output.
pub fn search(args: &LoadArgs, claims: &LoadClaims) -> Result<Exit, CommandError> {
    let is_json = match args.format.name {
        "json" => true,
        "text" => false,
        other => {
            return Err(CommandError::Usage(format!("--capacity has --format text or json, not {other}")));
        }
    };
    if args.out.is_some() {
        return Err(CommandError::Usage("--capacity makes many runs: remove --out".to_owned()));
    }
    let least = SearchOptions::new(args.from.unwrap_or(resolve::LEAST));
    let settings = SearchOptions {
        to: args.to,
        repeats: args.repeats.unwrap_or(least.repeats),
        precision: args.precision.unwrap_or(least.precision),
        ..least
    };
    let mut search = Search::new(settings).map_err(|error| CommandError::Usage(error.to_string()))?;
    let mut load = resolve::trial(args, settings.from)?;
    let telemetry = Telemetry::start(&args.telemetry, None)?;
    let stop = stop_on_signals();
    let loads = sender(&args.on, &stop)?;
    let head = host::new_record("", load.seed);
    while let Some(trial) = search.next_trial() {
        load.plan = resolve::trial_plan(trial.rate, args)?;
        let record = LoadRecord::start(&load, head.clone(), args.on.on.is_none(), None, super::screen(&load));
        let mut live = LiveReport::new(&load, (None, None), telemetry.figures(), record)?;
        let LoadTestRun { summary, end } = loads.prepare(&load)?.run(&mut live, &stop)?;
        drop(live);
        if end.was_cancelled {
            break;
        }
        if summary.generator.is_incomplete {
            summary.generator.invalid_reasons.iter().for_each(|reason| say!("INVALID: {reason}"));
            break;
        }
        // New numbers, so that a trial does not find the entries of the last one in a cache.
        load.first_request += summary.measured.requests() + summary.dropped + NUMBERS_BETWEEN;
        let held = summary.judge_trial(claims);
        let p99 = summary.measured.latencies().quantile(0.99).map_or_else(|| "-".to_owned(), format_duration);
        say!("{:>12}  trial {}  p99 {p99:>8}  {held}", trial.rate.to_string(), trial.repeat + 1);
        search.record(trial, held).expect("the trial that was due");
    }
    let found = search.result();
    let report = if is_json { as_json(claims, &found) } else { as_text(claims, &found) };
    print(&report)?;
    let is_found = found.highest_passed.is_some()
        && found.status != SearchStatus::Running
        && !found.is_generator_limited();
    Ok(if is_found { Exit::Done } else { Exit::Undecided })
}

fn as_text(claims: &LoadClaims, found: &SearchResult<'_>) -> String {
    let mut text = format!("{claims}: {found}\n");
    if !found.unsteady.is_empty() {
        let rates: Vec<_> = found.unsteady.iter().map(ToString::to_string).collect();
        text.push_str(&["its trials disagreed at ", &rates.join(", "), "\n"].concat());
    }
    if found.status == SearchStatus::Running {
        text.push_str("INVALID: interrupted before the search ended\n");
    }
    if found.is_generator_limited() {
        text.push_str("INVALID: the generator was too slow, or its limit of requests in flight too low; the server may bear more\n");
    }
    text
}

fn as_json(claims: &LoadClaims, found: &SearchResult<'_>) -> String {
    let trials: Vec<_> = found
        .trials
        .iter()
        .map(|(trial, held)| {
            json!({"rate_per_s": trial.rate.per_second(), "trial": trial.repeat + 1, "held": *held == TrialVerdict::Held,
                "told": held.to_string()})
        })
        .collect();
    let end = match found.status {
        SearchStatus::Running => "open",
        SearchStatus::Converged => "between",
        SearchStatus::HighestPassed => "upper",
        SearchStatus::LowestFailed => "lower",
    };
    let report = json!({
        "schema": "stockade.capacity/1",
        "bounds": claims.to_string(),
        "held_rate_per_s": found.highest_passed.map(Rate::per_second),
        "broke_rate_per_s": found.lowest_failed.map(Rate::per_second),
        "end": end,
        "unsteady_rates_per_s": found.unsteady.iter().map(|rate| rate.per_second()).collect::<Vec<_>>(),
        "valid": found.status != SearchStatus::Running && !found.is_generator_limited(),
        "trials": trials,
    });
    format!("{report}\n")
}
