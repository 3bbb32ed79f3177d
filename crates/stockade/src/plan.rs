//! `stockade plan`: from logs to a cache.

#[cfg(feature = "http")]
mod live;
#[cfg(feature = "http")]
mod verify;

use std::{fs, io::ErrorKind, path::Path, sync::Mutex, time::Duration};

use stockade_model::{capacity::Capacity, latency::Latency, seed::Seed, units::format_count};

use stockade_plan::{
    KnownValues, LogInput, LogReader, LogSummary, OVERHEAD_BYTES, PlanOptions,
    experiment::experiment,
    outlook::outlook,
    plan as compute,
    read::{DroppedParameters, KeyRules, REQUESTS_MAX, read},
    report::{CachePlan, StrategyRuns, verification_text},
    strategies::{BusiestRequests, OriginModel, run as run_strategies},
};

use crate::{
    cli::PlanArgs,
    exit::{CommandError, Exit},
    progress::{LiveScreen, message},
    run::{default_directory, print},
};

/// How long the origin fails, unless that is given.
const OUTAGE: Duration = Duration::from_mins(1);
/// Loads that wait for a worker of the origin, at most.
const ORIGIN_QUEUE: usize = 1_000;

/// Reads the logs, computes the curves and prints the answer.
pub fn plan(args: &PlanArgs) -> Result<Exit, CommandError> {
    #[cfg(feature = "http")]
    if let Some(url) = &args.live {
        return live::live(url, args);
    }
    if let Some(message) = args.mixed_units() {
        return Err(CommandError::Usage(message));
    }
    let inputs: Vec<LogInput> = args.logs.iter().cloned().map(LogInput::from).collect();
    let reader = LogReader::open(&inputs, args.input.clone())?;
    if args.input.is_none() {
        message(&format!("format: {}", reader.format()));
    }
    let rules = KeyRules {
        statuses: args.status.clone(),
        by_host: args.by_host,
        dropped_parameters: args.drop_parameters.clone(),
    };
    let content = read(reader, &rules, REQUESTS_MAX)?;
    for bad in &content.summary.first_bad {
        message(&format!("left out: {bad}"));
    }
    if let Some(doubt) = doubt(&content.summary) {
        message(&doubt);
    }
    if content.summary.lines == 0 {
        return Err(CommandError::Usage(format!(
            "{}: it is empty: name a log with requests",
            names(&inputs)
        )));
    }
    if !content.trace.requests().iter().any(|request| request.exchange().is_lookup()) {
        return Err(CommandError::Usage(format!(
            "{}: no request of it can be answered by a cache: {} lines, {} other requests; --status and --input change what counts",
            names(&inputs),
            content.summary.lines,
            content.left_out + content.exchanges.other_methods()
        )));
    }
    let options = PlanOptions {
        memory: args.memory,
        ttls: args.ttl.clone(),
        staleness: args.staleness,
        latency: args.origin_latency,
        policies: args.policies(),
        sizes: args.sizes.clone(),
        is_exact: args.exact,
        warmup: args.warmup,
        max_object: args.max_object,
        overhead_bytes: if args.no_overhead { 0 } else { OVERHEAD_BYTES },
    };
    let live = Mutex::new(None);
    let progress = |done: usize, all: usize| {
        if let Ok(mut live) = live.lock() {
            live.get_or_insert_with(|| LiveScreen::steps(all)).reach(done, all, "replays");
        }
    };
    let mut plan = compute(names(&inputs), content, &options, &progress)?;
    drop(live);
    plan.outlook = outlook(&plan, args.traffic);
    plan.strategies = run_busiest(args, &plan)?;
    if let Some(setting) = ignored_query(&args.drop_parameters) {
        plan.assumptions.push(format!("The keys are those of a route of the proxy with {setting}."));
    }
    let render = args.format.render;
    if args.format.name != "text" {
        let exit = confirm(args, &mut plan)?;
        return print_unless_closed(&render(&plan)).map(|()| exit);
    }
    // A person reads the plan while it is verified.
    print_unless_closed(&render(&plan))?;
    let exit = confirm(args, &mut plan)?;
    print_unless_closed(&verification_text(&plan).unwrap_or_default())?;
    Ok(exit)
}

/// A closed pipe is not an error: the reader has seen enough, as `head` has.
fn print_unless_closed(text: &str) -> Result<(), CommandError> {
    match print(text) {
        Err(CommandError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// A sentence about values that an access log lacks, or about its time zone. A trace lacks them by its format.
fn doubt(summary: &LogSummary) -> Option<String> {
    if !summary.format.is_access_log() || summary.requests == 0 {
        return None;
    }
    let KnownValues { times, statuses, sizes, .. } = summary.known;
    let missing: Vec<&str> = [(times, "times"), (statuses, "statuses"), (sizes, "sizes")]
        .into_iter()
        .filter(|(count, _)| *count == 0)
        .map(|(_, what)| what)
        .collect();
    let without_offset = summary.times_without_offset;
    match (missing.is_empty(), without_offset) {
        (false, _) => {
            Some(format!("the log has no {}: the answer does without them", missing.join(" and no ")))
        }
        (true, 1..) => {
            Some(format!("{} times without an offset were read as UTC", format_count(without_offset)))
        }
        (true, 0) => None,
    }
}

/// The setting of a route whose keys leave out the same parameters.
fn ignored_query(dropped: &DroppedParameters) -> Option<String> {
    match dropped {
        DroppedParameters::None => None,
        DroppedParameters::All => Some(r#"ignore_query = ["*"]"#.to_owned()),
        DroppedParameters::Named(names) => Some(format!("ignore_query = {names:?}")),
    }
}

/// Runs the chosen strategies over the busiest part of the log.
fn run_busiest(args: &PlanArgs, plan: &CachePlan) -> Result<Option<StrategyRuns>, CommandError> {
    let candidates = args.strategies();
    let recommendation = match &plan.recommendation {
        Ok(recommendation) if !candidates.is_empty() => recommendation,
        _ => return Ok(None),
    };
    if !plan.has_times {
        return Err(CommandError::Usage(
            "the log has no times, so there is no pace for --strategies: name the column with the time"
                .to_owned(),
        ));
    }
    let latency = Latency::from(Duration::from_nanos(plan.settings.latency_ns));
    let origin = OriginModel {
        latency: args.origin_model.clone().unwrap_or(latency),
        capacity: args
            .origin_workers
            .map(|workers| Capacity { workers: workers as usize, queue: ORIGIN_QUEUE }),
        outage: args.outage.unwrap_or(OUTAGE),
    };
    let busiest = BusiestRequests::from_trace(&plan.trace, &origin);
    let figures = run_strategies(&busiest, &candidates, recommendation, &origin, Seed(1))
        .map_err(|error| CommandError::Usage(error.to_string()))?;
    Ok(Some(StrategyRuns { requests: busiest.requests(), span: busiest.span(), origin, figures }))
}

/// Writes the experiment that confirms the plan, and runs it, where the arguments say so.
fn confirm(args: &PlanArgs, plan: &mut CachePlan) -> Result<Exit, CommandError> {
    #[cfg(feature = "http")]
    let verify = args.verify;
    #[cfg(not(feature = "http"))]
    let verify = false;
    if args.experiment.is_none() && !verify {
        return Ok(Exit::Done);
    }
    let experiment = experiment(plan, args.verify_time)
        .ok_or_else(|| CommandError::Usage("there is no plan to confirm".to_owned()))?;
    let directory = args.experiment.clone().unwrap_or_else(|| default_directory(Path::new("plan")));
    let file = directory.join("plan.toml");
    fs::create_dir_all(&directory)
        .and_then(|()| fs::write(directory.join("requests.jsonl"), &experiment.requests))
        .and_then(|()| fs::write(directory.join("recipe.json"), &experiment.recipe))
        .and_then(|()| fs::write(&file, &experiment.toml))
        .map_err(|error| {
            CommandError::Usage(format!("{}: cannot write the experiment: {error}", directory.display()))
        })?;
    if !verify {
        message(&format!("to confirm the plan: stockade run {}", file.display()));
        return Ok(Exit::Done);
    }
    #[cfg(feature = "http")]
    {
        let verification = verify::verify(&experiment, &file, &directory.join("record"))?;
        Ok(Exit::of_verdict(plan.verification.insert(verification).verdict()))
    }
    #[cfg(not(feature = "http"))]
    Ok(Exit::Done)
}

fn names(inputs: &[LogInput]) -> String {
    match inputs {
        [one] => one.to_string(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
        [] => String::new(),
    }
}
