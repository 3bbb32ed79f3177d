//! The arguments of `stockade plan`.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{
    Args,
    builder::{PossibleValue, TypedValueParser},
};
use stockade_cache::{PRESETS, spec::strategy_in};
use stockade_model::{
    latency::Latency,
    registry::ReportFormat,
    units::{format_exact_size, parse_duration, parse_percent, parse_size},
};
use stockade_plan::{
    Capacity, LOG_FORMATS, LatencyOption, LogFormat, OVERHEAD_BYTES, POLICIES, Policy, RESERVED_BYTES,
    SizeOption, TtlOption, Warmup,
    read::DroppedParameters,
    report::{FORMATS, Render},
    strategies::Candidate,
};

use super::{named, possible};
#[cfg(feature = "http")]
use stockade_http::client::{HttpUrl, UrlFault};

/// In addition to those that ship: the simplest one, the best known one, and the bound.
const COMPARED: [&str; 3] = ["fifo", "w-tinylfu", "belady"];

/// The arguments of a plan from a log.
#[cfg(feature = "http")]
const LOG_ARGS: [&str; 23] = [
    "logs",
    "input",
    "memory",
    "ttl",
    "staleness",
    "origin_latency",
    "outage",
    "policy",
    "sizes",
    "exact",
    "warmup",
    "max_object",
    "no_overhead",
    "status",
    "drop_parameters",
    "by_host",
    "traffic",
    "strategies",
    "origin_model",
    "origin_workers",
    "experiment",
    "verify",
    "verify_time",
];

/// The largest file with a `[cache]` table.
const STRATEGY_BYTES_MAX: u64 = 16 << 20;

/// Bounds of `--traffic`.
const GROWTH_MIN: f64 = 0.01;
const GROWTH_MAX: f64 = 1_000.0;

/// Bounds of `--verify-time`.
const VERIFY_TIME_MIN: Duration = Duration::from_secs(1);
const VERIFY_TIME_MAX: Duration = Duration::from_hours(1);

/// In less room no entry fits, by default.
const BYTES_MIN: u64 = (16 * (OVERHEAD_BYTES + RESERVED_BYTES) as u64).next_power_of_two();

#[derive(Debug, Args)]
#[cfg_attr(feature = "http", expect(clippy::struct_excessive_bools, reason = "each is a flag of its own"))]
pub struct PlanArgs {
    /// Access logs or traces, plain, .gz or .zst; `-` is standard input
    #[cfg_attr(feature = "http", arg(value_name = "LOG", required_unless_present = "live"))]
    #[cfg_attr(not(feature = "http"), arg(value_name = "LOG", required = true))]
    pub logs: Vec<PathBuf>,
    /// Instead of a log: admin API of a proxy that runs with --shadow; takes --format text, md or json
    #[cfg(feature = "http")]
    #[arg(long, value_name = "URL", value_parser = admin_url, conflicts_with_all = LOG_ARGS)]
    pub live: Option<HttpUrl>,
    /// File with the token of that admin API
    #[cfg(feature = "http")]
    #[arg(long, value_name = "FILE", requires = "live")]
    pub admin_token_file: Option<PathBuf>,
    #[arg(long, value_name = "FORMAT", help = input_help())]
    pub input: Option<LogFormat>,
    /// Size of the cache, such as 512MiB, or a number of entries [default: chosen]
    #[arg(long, value_name = "SIZE", value_parser = capacity)]
    pub memory: Option<Capacity>,
    /// Times for which responses are fresh, such as 10s,1m; `headers`: as the log says; `never`: for ever [default: headers where the
    /// log has them, else 1m]
    #[arg(long, value_name = "D,...", value_delimiter = ',', value_parser = ttl)]
    pub ttl: Vec<TtlOption>,
    /// Greatest age that a response may have
    #[arg(long, value_name = "D", value_parser = parse_duration)]
    pub staleness: Option<Duration>,
    /// Time that a load takes; `log`: the median of the log
    #[arg(long, value_name = "D", default_value = "log", value_parser = latency)]
    pub origin_latency: LatencyOption,
    /// Eviction policies to compare; `all`: every one [default: those that the cache has without auto, fifo, w-tinylfu, belady]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = policies())]
    pub policy: Vec<PolicyChoice>,
    /// Sizes to compare: entries (1000), bytes (64MiB), or percent of all objects (10%) [default: powers of two]
    #[arg(long, value_name = "N|SIZE|P%,...", value_delimiter = ',', value_parser = size)]
    pub sizes: Vec<SizeOption>,
    /// Replay every request for every point of the curves, instead of a sample
    #[arg(long)]
    pub exact: bool,
    /// Requests at the start that fill the cache: a share of all, such as 10%, or a time, such as 1h; hit ratios and loads leave them
    /// out, and the loads of the cold start are printed apart; 0: count all
    #[arg(long, value_name = "P%|D", default_value = "10%", value_parser = warmup)]
    pub warmup: Warmup,
    /// Largest entry that is stored [default: 1MiB, or a sixteenth of the size if that is less]
    #[arg(long, value_name = "SIZE", value_parser = max_object)]
    pub max_object: Option<u64>,
    /// Count the bytes of responses only, not the 1,330 more of an entry: published curves can be reproduced
    #[arg(long, conflicts_with_all = ["strategies", "experiment"])]
    pub no_overhead: bool,
    /// Statuses whose requests count [default: all]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(100..=599))]
    pub status: Vec<u16>,
    /// Query parameters that are not part of the key, such as utm_*; `all`: no part of the query is
    #[arg(long, value_name = "NAME,...", value_parser = dropped_parameters, default_value = "", hide_default_value = true)]
    pub drop_parameters: DroppedParameters,
    /// Make the host a part of the key, where the log has it
    #[arg(long)]
    pub by_host: bool,
    /// Multiple of the log's traffic to show among other conditions: the same requests in less time
    #[arg(long, value_name = "xN", default_value = "x2", value_parser = growth)]
    pub traffic: f64,
    /// Run these strategies of the cache over the busiest part of the log, in virtual time; `all`: every preset; FILE.toml: the
    /// `[cache]` table of a file
    #[arg(long, value_name = "NAME|FILE.toml,...", value_delimiter = ',', value_parser = strategies())]
    pub strategies: Vec<StrategyChoice>,
    /// Latency of the origin under strategies, such as lognormal(median=20ms, p99=200ms) [default: --origin-latency]
    #[arg(long, value_name = "LATENCY", requires = "strategies", value_parser = latency_model)]
    pub origin_model: Option<Latency>,
    /// Loads that the origin works on at once under strategies; 1,000 more wait [default: any number]
    #[arg(long, value_name = "N", requires = "strategies", value_parser = clap::value_parser!(u32).range(1..))]
    pub origin_workers: Option<u32>,
    /// How long the origin fails under strategies, in the busiest time of this length [default: 1m]
    #[arg(long, value_name = "D", requires = "strategies", value_parser = parse_duration)]
    pub outage: Option<Duration>,
    /// Write an experiment that confirms the plan with the real proxy: plan.toml, requests.jsonl, recipe.json
    #[arg(long, value_name = "DIR")]
    pub experiment: Option<PathBuf>,
    /// Run that experiment, which takes some minutes, and print predicted and measured figures
    #[cfg(feature = "http")]
    #[arg(long, conflicts_with = "no_overhead")]
    pub verify: bool,
    /// Time that each cache of that experiment is measured for: a slower replay depends less on a busy machine
    #[arg(long, value_name = "D", default_value = "30s", value_parser = verify_time)]
    pub verify_time: Duration,
    /// Format on standard output
    #[arg(long, default_value = "text", value_parser = named(&FORMATS))]
    pub format: &'static ReportFormat<Render>,
}

/// One or all strategies.
#[derive(Clone, Debug)]
pub enum StrategyChoice {
    All,
    One(Candidate),
}

/// One or all policies.
#[derive(Clone, Copy, Debug)]
pub enum PolicyChoice {
    All,
    One(&'static Policy),
}

impl PlanArgs {
    /// The strategies to run, each once; none: do not run any.
    pub fn strategies(&self) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = Vec::new();
        for choice in &self.strategies {
            let chosen = match choice {
                StrategyChoice::All => PRESETS.iter().map(Candidate::Preset).collect(),
                StrategyChoice::One(one) => vec![one.clone()],
            };
            for candidate in chosen {
                if candidates.iter().all(|known| known.name() != candidate.name()) {
                    candidates.push(candidate);
                }
            }
        }
        candidates
    }

    /// Why the sizes cannot stand in one table.
    pub fn mixed_units(&self) -> Option<String> {
        let sizes = self.sizes.iter().filter_map(|size| match size {
            SizeOption::Fixed(capacity) => Some(*capacity),
            SizeOption::Share(_) => None,
        });
        let all: Vec<Capacity> = sizes.chain(self.memory).collect();
        let entries = all.iter().filter(|capacity| matches!(capacity, Capacity::Entries(_))).count();
        (entries > 0 && entries < all.len()).then(|| {
            "--sizes and --memory have entries (such as 1000) and bytes (such as 64MiB): write all of them in one unit".to_owned()
        })
    }

    /// The policies, each once, in the order of the registry.
    pub fn policies(&self) -> Vec<&'static Policy> {
        let is_chosen = |policy: &&Policy| match &self.policy[..] {
            // `auto` takes as long as all of its candidates.
            [] => policy.shipped.is_some_and(|shipped| !shipped.is_auto()) || COMPARED.contains(&policy.name),
            chosen => chosen.iter().any(|choice| match choice {
                PolicyChoice::All => true,
                PolicyChoice::One(one) => one.name == policy.name,
            }),
        };
        POLICIES.iter().filter(is_chosen).collect()
    }
}

#[cfg(feature = "http")]
fn admin_url(text: &str) -> Result<HttpUrl, String> {
    HttpUrl::parse(text).map_err(|fault| match fault {
        UrlFault::Malformed => {
            "write the URL that `stockade proxy --admin` prints, such as http://127.0.0.1:9180".to_owned()
        }
        UrlFault::Credentials => {
            "a URL with a user or a password is not supported: write --admin-token-file FILE".to_owned()
        }
    })
}

fn input_help() -> String {
    let names: Vec<_> = LOG_FORMATS.parsed_names().filter(|name| *name != "PATTERN").collect();
    let names = names.join(", ");
    format!(
        "Format of the logs: {names}, or a pattern of nginx, Apache or Varnish [default: told by the file]"
    )
}

fn strategies() -> impl TypedValueParser<Value = StrategyChoice> {
    super::KnownValues::new(strategy_choice, || {
        std::iter::once(PossibleValue::new("all").help("every preset")).chain(possible(&PRESETS)).collect()
    })
}

fn strategy_choice(text: &str) -> Result<StrategyChoice, String> {
    if text == "all" {
        return Ok(StrategyChoice::All);
    }
    if Path::new(text).extension().is_some_and(|extension| extension == "toml") {
        return own_strategy(text).map(StrategyChoice::One);
    }
    let preset = PRESETS.named(text).map_err(|unknown| unknown.to_string())?;
    Ok(StrategyChoice::One(Candidate::Preset(preset)))
}

/// The `[cache]` table of a file.
fn own_strategy(path: &str) -> Result<Candidate, String> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(STRATEGY_BYTES_MAX).read_to_string(&mut text))
        .map_err(|error| error.to_string())?;
    let strategy = strategy_in(&text).map_err(|error| {
        let place = error
            .position(&text)
            .map_or(String::new(), |(line, column)| format!("line {line}, column {column}: "));
        let help = error.help.map_or(String::new(), |help| format!(": {help}"));
        format!("{place}{}{help}", error.message)
    })?;
    Ok(Candidate::Own { name: path.to_owned(), strategy: Box::new(strategy) })
}

fn latency_model(text: &str) -> Result<Latency, String> {
    Latency::parse_in(text, Path::new(".")).map_err(|error| error.to_string())
}

fn policies() -> impl TypedValueParser<Value = PolicyChoice> {
    super::KnownValues::new(policy_choice, || {
        std::iter::once(PossibleValue::new("all").help("every policy")).chain(possible(&POLICIES)).collect()
    })
}

fn policy_choice(text: &str) -> Result<PolicyChoice, String> {
    if text == "all" {
        return Ok(PolicyChoice::All);
    }
    Policy::named(text).map(PolicyChoice::One).map_err(|error| error.to_string())
}

/// Entries without a unit, bytes with one.
fn capacity(text: &str) -> Result<Capacity, String> {
    let capacity = match text.replace('_', "").parse::<u64>() {
        Ok(entries) => Capacity::Entries(entries),
        Err(_) => Capacity::Bytes(parse_size(text).map_err(|error| error.to_string())?),
    };
    match capacity {
        Capacity::Entries(0) | Capacity::Bytes(0) => {
            Err("a cache without room has no hits: write at least 1".to_owned())
        }
        Capacity::Bytes(bytes) if bytes < BYTES_MIN => Err(format!(
            "no response fits, since an entry takes a sixteenth of the room at most: write at least {}",
            format_exact_size(BYTES_MIN)
        )),
        capacity => Ok(capacity),
    }
}

fn size(text: &str) -> Result<SizeOption, String> {
    if text.ends_with('%') {
        let share = parse_percent(text).filter(|share| *share > 0.0);
        return share.map(SizeOption::Share).ok_or_else(|| "write a share above 0 %, such as 10%".to_owned());
    }
    capacity(text).map(SizeOption::Fixed)
}

fn max_object(text: &str) -> Result<u64, String> {
    match parse_size(text).map_err(|error| error.to_string())? {
        0 => Err("a cache that stores nothing has no hits: write at least 1B".to_owned()),
        bytes => Ok(bytes),
    }
}

fn growth(text: &str) -> Result<f64, String> {
    let times = text.strip_prefix('x').unwrap_or(text).parse::<f64>().ok();
    times
        .filter(|times| (GROWTH_MIN..=GROWTH_MAX).contains(times))
        .ok_or_else(|| format!("write a number from {GROWTH_MIN} to {GROWTH_MAX}, such as x2"))
}

fn verify_time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    let bounds = VERIFY_TIME_MIN..=VERIFY_TIME_MAX;
    if bounds.contains(&time) { Ok(time) } else { Err("write a time from 1s to 1h, such as 2m".to_owned()) }
}

fn warmup(text: &str) -> Result<Warmup, String> {
    if text == "0" {
        return Ok(Warmup::NONE);
    }
    if text.ends_with('%') {
        let share = parse_percent(text).filter(|share| *share < 1.0);
        return share.map(Warmup::Share).ok_or_else(|| "write a share below 100 %, such as 10%".to_owned());
    }
    parse_duration(text).map(Warmup::Duration).map_err(|error| format!("{error}, or a share, such as `10%`"))
}

fn ttl(text: &str) -> Result<TtlOption, String> {
    match text {
        "headers" => Ok(TtlOption::Headers),
        "never" | "none" => Ok(TtlOption::Never),
        _ => parse_duration(text)
            .map(TtlOption::Fixed)
            .map_err(|error| format!("{error}, or `headers`, or `never`")),
    }
}

fn latency(text: &str) -> Result<LatencyOption, String> {
    match text {
        "log" => Ok(LatencyOption::Log),
        _ => parse_duration(text).map(LatencyOption::Fixed).map_err(|error| format!("{error}, or `log`")),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of a value parser")]
fn dropped_parameters(text: &str) -> Result<DroppedParameters, String> {
    Ok(match text {
        "" => DroppedParameters::None,
        "all" => DroppedParameters::All,
        names => DroppedParameters::Named(names.split(',').map(|name| name.trim().to_owned()).collect()),
    })
}
