//! The arguments of `stockade load`.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use clap::{
    Args,
    builder::{PossibleValue, TypedValueParser},
};
use stockade_load::{
    keys::Keys,
    report::{Buckets, FORMATS, Render},
    schedule::{ArrivalProcess, Rate},
    settings::RequestSettings,
    targets::log::LogFormat,
};
use stockade_model::{latency::Latency, registry::ReportFormat, units::parse_duration};
use stockade_record::judge::LoadClaims;

use super::{KnownValues, LivePageArgs, OnArgs, TelemetryArgs, exit_codes_line, list, named};

#[derive(Clone, Debug, Args)]
#[command(after_help = after_help())]
pub struct LoadArgs {
    /// URL of the requests; `{key}` in it is replaced by a key of --keys
    #[arg(value_name = "URL")]
    pub url: Option<String>,

    /// Open loop: send N requests per second, however slow the answers: `425/s`, `1000/m`
    #[arg(long, value_name = "N/s", help_heading = "When", group = "when")]
    pub rate: Option<Rate>,
    /// Closed loop: N connections, next request after each answer [default: 10, without --rate, --burst, --schedule and
    /// --replay]
    #[arg(long, short, value_name = "N", help_heading = "When", group = "when", value_parser = some)]
    pub connections: Option<NonZeroUsize>,
    /// Send N requests at the same moment, on open connections
    #[arg(long, value_name = "N", help_heading = "When", group = "when", value_parser = count)]
    pub burst: Option<u64>,
    /// File of phases: rates, ramps, sines, bursts, pauses, closed loops (docs/reference/load.md)
    #[arg(long, value_name = "FILE.toml", help_heading = "When", group = "when")]
    pub schedule: Option<PathBuf>,
    /// Spacing of the requests of a rate: `constant` or `poisson` [default: constant]
    #[arg(long, value_name = "HOW", help_heading = "When", value_parser = arrivals(), hide_possible_values = true)]
    pub arrivals: Option<ArrivalProcess>,
    /// Pause of each connection between an answer and the next request: `50ms`, `10ms..1s`
    #[arg(long, value_name = "D", help_heading = "When")]
    pub think: Option<Latency>,
    /// Stop after this time [default: 10s, without --requests]
    #[arg(long, short, value_name = "D", help_heading = "When", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Stop after N requests
    #[arg(long, short = 'n', value_name = "N", help_heading = "When", value_parser = count)]
    pub requests: Option<u64>,
    /// Send load for this time before the measurement, and count it apart
    #[arg(long, value_name = "D", help_heading = "When", value_parser = parse_duration, default_value = "0")]
    pub warmup: Duration,
    /// Wait this long for outstanding answers [default: --timeout]
    #[arg(long, value_name = "D", help_heading = "When", value_parser = parse_duration)]
    pub drain: Option<Duration>,
    /// Maximum number of outstanding requests of a rate; if it is reached, the load is invalid [default:
    /// rate times timeout, 10000 at least, or as many as the machine allows]
    #[arg(long, value_name = "N", help_heading = "When", value_parser = some)]
    pub max_in_flight: Option<NonZeroUsize>,
    /// Number of sending threads [default: one per core, as far as the load needs them]
    #[arg(long, short, value_name = "N", help_heading = "When", value_parser = threads)]
    pub threads: Option<NonZeroUsize>,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "When")]
    pub seed: u64,

    /// File of targets in Vegeta's format, text or JSON lines; sent in order; `-`: standard input
    #[arg(long, value_name = "FILE", help_heading = "What", group = "what")]
    pub targets: Option<PathBuf>,
    /// File of URLs in siege's format (urls.txt), with variables and POST; `-`: standard input
    #[arg(long, value_name = "FILE", help_heading = "What", group = "what")]
    pub urls: Option<PathBuf>,
    /// Choose targets or URLs at random instead of in order
    #[arg(long, help_heading = "What")]
    pub random: bool,
    /// Replay an access log at its own pace to the server of URL, plain, .gz or .zst; `-`: standard input; may be
    /// repeated, for several files that are one log
    #[arg(long, value_name = "LOG", help_heading = "What", group = "what")]
    pub replay: Vec<PathBuf>,
    /// Format of the logs, as for `stockade plan` [default: recognised by its lines]
    #[arg(long, value_name = "FORMAT", help_heading = "What")]
    pub input: Option<LogFormat>,
    /// Send the host of each line as `Host`; connections go to the server of URL all the same
    #[arg(long, help_heading = "What")]
    pub replay_hosts: bool,
    /// Speed of the replay: 2 is twice as fast as the log [default: 1]
    #[arg(long, value_name = "F", help_heading = "What")]
    pub speed: Option<f64>,
    /// Share of the log to replay, chosen by --seed: 0.1 is every tenth request [default: 1]
    #[arg(long, value_name = "F", help_heading = "What")]
    pub share: Option<f64>,
    /// Distribution of `{key}`: `zipf:N`, `zipf:N:EXPONENT`, `uniform:N` or `scan:N`
    #[arg(long, value_name = "SPEC", help_heading = "What")]
    pub keys: Option<Keys>,
    #[command(flatten)]
    pub request: RequestSettings,

    /// Find the highest rate at which these claims hold: `p99 < 50ms and success >= 0.999`
    #[arg(long, value_name = "EXPR", help_heading = "Capacity", group = "when", conflicts_with = "ui")]
    pub capacity: Option<LoadClaims>,
    /// Lowest rate, tried first [default: 100/s]
    #[arg(long, value_name = "N/s", help_heading = "Capacity")]
    pub from: Option<Rate>,
    /// Highest rate to try [default: none]
    #[arg(long, value_name = "N/s", help_heading = "Capacity")]
    pub to: Option<Rate>,
    /// Trials of each rate; the majority decides [default: 3]
    #[arg(long, value_name = "N", help_heading = "Capacity", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: Option<u32>,
    /// Stop when the rate that holds and the rate that fails are this close, as a share [default: 0.05, which is 5 %]
    #[arg(long, value_name = "F", help_heading = "Capacity", value_parser = precision)]
    pub precision: Option<f64>,

    /// Claim about the load: `p99 < 50ms and success >= 0.999`; may be repeated. Exit with 99 if one is refuted
    #[arg(long, value_name = "EXPR", help_heading = "Verdict", conflicts_with = "capacity")]
    pub expect: Vec<LoadClaims>,

    /// Format of the report on standard output
    #[arg(long, value_name = "FORMAT", default_value = "text", help_heading = "Reports", value_parser = named(&FORMATS))]
    pub format: &'static ReportFormat<Render>,
    /// Bounds of the buckets of vegeta-hist: `0,10ms,100ms,1s`
    #[arg(long, value_name = "D,...", help_heading = "Reports")]
    pub buckets: Option<Buckets>,
    /// Write every sample to this file, in Vegeta's format, JSON or CSV by its extension
    #[arg(long, value_name = "FILE.json|FILE.csv", help_heading = "Reports", value_parser = out)]
    pub out: Option<Out>,

    /// Directory of the record, for `report`, `compare`, `history` and `ui` [default: runs/load/TIME]
    #[arg(long, value_name = "DIR", help_heading = "Reports")]
    pub record: Option<PathBuf>,
    /// Keep no record
    #[arg(long, help_heading = "Reports", conflicts_with = "record")]
    pub no_record: bool,

    #[command(flatten)]
    pub on: OnArgs,
    #[command(flatten)]
    pub ui: LivePageArgs,
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

/// A file of samples.
#[derive(Clone, Debug)]
pub struct Out {
    pub path: PathBuf,
    pub is_csv: bool,
}

pub const EXIT_CODES: [(u8, &str); 5] = [
    (0, "done, and every --expect supported"),
    (1, "every request failed"),
    (2, "bad usage or file"),
    (98, "invalid: interrupted, a limit reached, or an --expect that a late generator leaves open"),
    (99, "an --expect refuted"),
];

fn after_help() -> String {
    let formats = list(FORMATS.summaries());
    format!("Formats:\n{formats}See docs/reference/load.md.\n\n{}", exit_codes_line(&EXIT_CODES))
}

fn arrivals() -> impl TypedValueParser<Value = ArrivalProcess> {
    let process = |text: &str| match text {
        "constant" => Ok(ArrivalProcess::Constant),
        "poisson" => Ok(ArrivalProcess::Poisson),
        _ => Err("write constant or poisson".to_owned()),
    };
    KnownValues::new(process, || ["constant", "poisson"].map(PossibleValue::new).into())
}

fn some(text: &str) -> Result<NonZeroUsize, String> {
    text.replace('_', "").parse().map_err(|_| "write how many, 1 or more, such as 64".to_owned())
}

fn count(text: &str) -> Result<u64, String> {
    match text.replace('_', "").parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err("write how many, 1 or more, such as 1000".to_owned()),
    }
}

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| match parse_duration(text.to_lowercase().as_str()) {
        Ok(_) => format!("how many threads? For how long is `-d {}`", text.to_lowercase()),
        Err(_) => "write how many threads, 1 or more".to_owned(),
    })
}

fn precision(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(precision) if precision > 0.0 && precision < 1.0 => Ok(precision),
        _ => Err("write a number above 0 and below 1, such as 0.05 for 5 %".to_owned()),
    }
}

fn out(text: &str) -> Result<Out, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json" | "jsonl" | "ndjson") => Ok(Out { path, is_csv: false }),
        Some("csv") => Ok(Out { path, is_csv: true }),
        _ => Err("its ending says what is written: FILE.json or FILE.csv".to_owned()),
    }
}
