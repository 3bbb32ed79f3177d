//! The arguments of every command.

#[cfg(feature = "http")]
mod agents;
#[cfg(feature = "http")]
mod audit;
mod help;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "http")]
mod load;
#[cfg(feature = "mcp")]
mod mcp;
mod plan;
#[cfg(feature = "http")]
mod telemetry;
mod values;

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum, builder::TypedValueParser};
use stockade_cache::{PRESETS, Preset, Strategy};
use stockade_lab::{engine::DocumentCount, run::UntilDecided};
#[cfg(feature = "http")]
use stockade_load::TargetPattern;
use stockade_model::{
    latency::Latency,
    nearest::{nearest, remedy},
    registry::ReportFormat,
    units::{parse_duration, parse_percent},
};
use stockade_record::{
    compare, history,
    metrics::{METRICS, Metric, names_with_last_part},
    report::{FORMATS, Render},
};
use stockade_source::SOURCES;

#[cfg(feature = "agents")]
pub use agents::NatsArgs;
#[cfg(feature = "http")]
pub use agents::{AgentArgs, OnArgs, PlaceArgs};
#[cfg(feature = "http")]
pub use audit::AuditArgs;
pub use help::{CompletionsArgs, ManArgs};
#[cfg(feature = "http")]
pub use http::{AppArgs, OriginArgs, ParentArgs, ProxyArgs};
#[cfg(feature = "http")]
pub use load::{LoadArgs, Out};
#[cfg(feature = "mcp")]
pub use mcp::McpArgs;
pub use plan::PlanArgs;
#[cfg(feature = "http")]
pub use telemetry::{LivePageArgs, TelemetryArgs, UiArgs};
use values::{KnownValues, named, possible};

/// Load testing of caching strategies, and the cache that survives it.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100, after_help = exit_codes_line(&EXIT_CODES))]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// Exit codes and their meanings, of every command without codes of its own.
const EXIT_CODES: [(u8, &str); 5] = [
    (0, "done and every hypothesis supported"),
    (1, "failed"),
    (2, "bad usage or file"),
    (98, "invalid, interrupted or inconclusive"),
    (99, "a hypothesis refuted"),
];

/// The exit codes of a command, or of the program.
pub fn exit_codes(command: Option<&str>) -> &'static [(u8, &'static str)] {
    match command {
        Some("init" | "plan") => &[(0, "done"), (1, "failed"), (2, "bad usage or file")],
        Some("check") => &[(0, "done"), (1, "failed"), (2, "bad usage or file"), (98, "interrupted")],
        Some("compare") => &[
            (0, "no figure is worse"),
            (1, "failed"),
            (2, "bad usage or file"),
            (98, "some changes cannot be told"),
            (99, "a figure is worse"),
        ],
        #[cfg(feature = "http")]
        Some("load") => &load::EXIT_CODES,
        #[cfg(feature = "http")]
        Some("audit") => &audit::EXIT_CODES,
        _ => &EXIT_CODES,
    }
}

/// The exit codes, for the end of the help.
fn exit_codes_line(codes: &[(u8, &str)]) -> String {
    let codes: Vec<_> = codes.iter().map(|(code, meaning)| format!("{code} {meaning}")).collect();
    format!("Exit codes: {}.", codes.join("; "))
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write an experiment file to start from
    Init(InitArgs),
    /// Check an experiment: its file, its servers, its memory and time
    Check(ExperimentArgs),
    /// Run an experiment and judge its hypotheses
    Run(Box<RunArgs>),
    /// Run the published stampede test: N workers, cold cache, every strategy
    Stampede(StampedeArgs),
    /// Examine an HTTP cache: play its origin and its users, and say what it does
    #[cfg(feature = "http")]
    Audit(AuditArgs),
    /// Serve HTTP by a recipe: slow, failing, broken, on schedule
    #[cfg(feature = "http")]
    Origin(OriginArgs),
    /// Serve HTTP from a cache in front of an origin
    #[cfg(feature = "http")]
    Proxy(Box<ProxyArgs>),
    /// Send load to an HTTP server and report the results
    #[cfg(feature = "http")]
    Load(Box<LoadArgs>),
    /// Send a share of the loads of `load --on` and `run --on` from this machine, or run their servers
    #[cfg(feature = "http")]
    Agent(Box<AgentArgs>),
    /// Plan a cache for an access log or a trace: size, policy, ttl
    Plan(Box<PlanArgs>),
    /// Print a record in another format
    Report(ReportArgs),
    /// Compare two records: better, worse, the same, or cannot tell
    Compare(CompareArgs),
    /// Show figures over many records, and where they changed
    History(HistoryArgs),
    /// Show records in a browser: browse, filter, overlay, compare
    #[cfg(feature = "http")]
    Ui(UiArgs),
    /// Serve tools for coding agents: the Model Context Protocol on standard input and output
    #[cfg(feature = "mcp")]
    Mcp(McpArgs),
    /// Print a script that completes commands, flags and values in a shell
    Completions(CompletionsArgs),
    /// Print the manual page of the program or of a command
    Man(ManArgs),
    /// Serve documents through a cache: a child process of `run`
    #[cfg(feature = "http")]
    #[command(hide = true)]
    App(AppArgs),
    #[cfg(not(feature = "http"))]
    #[command(external_subcommand)]
    Other(Vec<String>),
}

/// Why a command is not in this build.
#[cfg(not(feature = "http"))]
pub fn unavailable(words: &[String]) -> crate::exit::CommandError {
    let command = words.first().map_or("", String::as_str);
    crate::exit::CommandError::Usage(match command {
        "agent" | "audit" | "load" | "origin" | "proxy" => format!(
            "this build has no command `{command}`: build it with the default features, or with `--features http`"
        ),
        _ => format!("unknown command `{command}`: see `stockade --help`"),
    })
}

/// An experiment file, and the selected tests and arms.
#[derive(Debug, Args)]
pub struct ExperimentArgs {
    /// File of the experiment
    #[arg(value_name = "EXPERIMENT.toml")]
    pub file: PathBuf,
    /// Only this test and the tests below it; may be repeated
    #[arg(long, value_name = "NAME")]
    pub test: Vec<String>,
    /// Only these arms
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub arms: Vec<String>,
    /// Multiply the settings that the file lists as `scaled`
    #[arg(long, value_name = "F", default_value = "1", value_parser = scale)]
    pub scale: f64,
    /// Measure every arm N times [default: `repeat` of the file]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// Server that loads over HTTP may reach, as its URL names it, such as `127.0.0.0/8` or `*.staging.example:443`; may be repeated
    /// [default: all]
    #[cfg(feature = "http")]
    #[arg(long, value_name = "PATTERN")]
    pub allow_target: Vec<TargetPattern>,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub experiment: ExperimentArgs,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Directory of the record [default: runs/NAME/TIME, NAME from the file]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Repeat until each comparison of times has its verdict
    #[arg(long)]
    pub until_decided: bool,
    /// With --until-decided: the most repeats [default: 30; with --budget: 1000]
    #[arg(long, value_name = "N", requires = "until_decided", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub at_most: Option<u32>,
    /// With --until-decided: start no repeat that would end after this time
    #[arg(long, value_name = "D", requires = "until_decided", value_parser = parse_duration)]
    pub budget: Option<Duration>,
    /// Format of the report on standard output
    #[arg(long, value_parser = named(&FORMATS), default_value = "text")]
    pub format: &'static ReportFormat<Render>,
    #[cfg(feature = "http")]
    #[command(flatten)]
    pub on: OnArgs,
    #[cfg(feature = "http")]
    #[command(flatten)]
    pub place: PlaceArgs,
    #[cfg(feature = "http")]
    #[command(flatten)]
    pub ui: LivePageArgs,
    #[cfg(feature = "http")]
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

impl RunArgs {
    /// The bounds of `--until-decided`.
    pub fn until_decided(&self) -> Option<UntilDecided> {
        let default = if self.budget.is_some() { 1_000 } else { 30 };
        self.until_decided
            .then(|| UntilDecided { repeats_max: self.at_most.unwrap_or(default), budget: self.budget })
    }
}

#[derive(Debug, Args)]
pub struct InitArgs {
    /// File to write; its JSON schema is written next to it
    #[arg(value_name = "EXPERIMENT.toml", default_value = "experiment.toml")]
    pub file: PathBuf,
    /// The cache that is tested: in this process, at a URL, or `stockade proxy`
    #[arg(long, value_enum, default_value_t = TargetName::Engine)]
    pub target: TargetName,
    /// Record of `stockade audit`: the experiment asks one of its questions again
    #[cfg(feature = "http")]
    #[arg(long, value_name = "RECORD", conflicts_with = "target")]
    pub from_audit: Option<PathBuf>,
    /// Question of the record, such as `herd.cold` [default: that with the worst answer]
    #[cfg(feature = "http")]
    #[arg(long, value_name = "ID", requires = "from_audit")]
    pub answer: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TargetName {
    Engine,
    Url,
    Proxy,
}

#[derive(Debug, Args)]
#[command(after_help = registries())]
pub struct StampedeArgs {
    /// Workers that send a request at the same moment; one burst for each number
    #[arg(default_values = ["10", "100", "1000", "10000"], value_parser = positive_count)]
    pub workers: Vec<usize>,
    /// Strategies to compare [default: those of the published test]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = preset(), hide_possible_values = true)]
    pub strategy: Vec<NamedStrategy>,
    /// Number of documents: `fixed:K`, or `scaled` with the workers as published
    #[arg(long, value_name = "fixed:K|scaled", default_value = "scaled")]
    pub docs: DocumentCount,
    /// Source of the documents [default: a SQLite database with 680 generated ones]
    #[arg(long, value_name = "URL")]
    pub source: Option<String>,
    /// Add latency to the source: `20ms`, or `10ms..30ms` drawn for every fetch; in real time up to 1 ms more, since
    /// sleeps end late
    #[arg(long, value_name = "D", default_value = "0")]
    pub source_latency: Latency,
    /// Fill the source with the documents of this file: a JSON object with an `_id` on each line
    #[arg(long, value_name = "FILE.jsonl")]
    pub docs_from: Option<PathBuf>,
    /// Writer of the cache: `direct`, or one task with a `mailbox`
    #[arg(long, value_enum, default_value_t = WriterName::Direct)]
    pub writer: WriterName,
    /// Time that the mailbox's task takes for each write [default: 0]
    #[arg(long, value_name = "D", value_parser = parse_duration)]
    pub store_cost: Option<Duration>,
    /// Bound of a worker's wait for the mailbox's task [default: 5s]
    #[arg(long, value_name = "D", value_parser = parse_duration)]
    pub call_timeout: Option<Duration>,
    /// Let each worker send its request when it starts, as in the published test
    #[arg(long)]
    pub no_barrier: bool,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Output format
    #[arg(long, value_enum, default_value_t = StampedeFormat::Text)]
    pub format: StampedeFormat,
}

/// A preset by its name.
#[derive(Clone, Debug)]
pub struct NamedStrategy {
    pub name: String,
    pub strategy: Strategy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WriterName {
    Direct,
    Mailbox,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StampedeFormat {
    Text,
    Json,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Directory of a record; or of several, such as `runs` or `runs/NAME`, for the one that was started last
    #[arg(default_value = "runs")]
    pub record: PathBuf,
    /// Format of the report on standard output
    #[arg(long, default_value = "md", value_parser = named(&FORMATS))]
    pub format: &'static ReportFormat<Render>,
}

#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Directory of the record before the change, or of several; the latest counts
    pub before: PathBuf,
    /// Directory of the record after it, or of several
    pub after: PathBuf,
    /// Least change that counts
    #[arg(long, value_name = "P%", default_value = "5%", value_parser = min_effect)]
    pub min_effect: f64,
    /// End with 99 if something became worse, and else with 0: open changes do not fail
    #[arg(long, value_enum, value_name = "WHAT")]
    pub fail_on: Option<FailOn>,
    /// Format of the comparison on standard output
    #[arg(long, default_value = "text", value_parser = named(&compare::report::FORMATS))]
    pub format: &'static ReportFormat<compare::report::Render>,
}

#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Directory of records, such as `runs` or `runs/NAME`; their index, history.jsonl, is kept in it
    #[arg(value_name = "DIR", default_value = "runs")]
    pub records: PathBuf,
    /// Show this metric, also where it did not change [default: those that `compare` compares]
    #[arg(long, value_name = "NAME", value_parser = metric)]
    pub metric: Option<&'static Metric>,
    /// Least change that counts
    #[arg(long, value_name = "P%", default_value = "5%", value_parser = min_effect)]
    pub min_effect: f64,
    /// Read every record again, instead of the index
    #[arg(long)]
    pub rebuild: bool,
    /// Format on standard output
    #[arg(long, default_value = "text", value_parser = named(&history::report::FORMATS))]
    pub format: &'static ReportFormat<history::report::Render>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    Regression,
}

fn metric(name: &str) -> Result<&'static Metric, String> {
    let all = METRICS.parsed_names();
    let longer = names_with_last_part(name);
    let has_longer = nearest(name, all.clone()).is_none() && longer.clone().next().is_some();
    let remedy = || if has_longer { remedy(name, longer) } else { remedy(name, all) };
    Metric::named(name).ok_or_else(|| format!("unknown metric: {}", remedy()))
}

fn min_effect(text: &str) -> Result<f64, String> {
    parse_percent(text).ok_or_else(|| "write a share in percent, such as 5%".to_owned())
}

fn preset() -> impl TypedValueParser<Value = NamedStrategy> {
    let named =
        |name: &str| Strategy::preset(name).map(|strategy| NamedStrategy { name: name.to_owned(), strategy });
    KnownValues::new(named, || possible(&PRESETS).collect())
}

fn positive_count(text: &str) -> Result<usize, String> {
    match text.replace('_', "").parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err("write how many, 1 or more, such as 1000".to_owned()),
    }
}

fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor > 0.0 => Ok(factor),
        _ => Err("write a number above 0, such as 0.1".to_owned()),
    }
}

/// The strategies of the published test.
const PUBLISHED: [&str; 4] = ["none", "async", "stampede", "stampede_async"];

/// All strategies and sources, for the end of the help.
fn registries() -> String {
    let strategies = list(PRESETS.summaries());
    let sources = list(SOURCES.summaries());
    format!("Strategies:\n{strategies}\nSources:\n{sources}")
}

/// Names and descriptions, in two columns.
fn list<'a>(entries: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> String {
    let width = entries.clone().map(|(name, _)| name.len() + 2).max().unwrap_or_default();
    let lines: Vec<_> = entries.map(|(name, summary)| format!("  {name:width$}{summary}\n")).collect();
    lines.concat()
}

impl StampedeArgs {
    /// The chosen strategies, or all of the published test.
    pub fn strategies(&mut self) -> Vec<NamedStrategy> {
        let named = std::mem::take(&mut self.strategy);
        if !named.is_empty() {
            return named;
        }
        let published = PRESETS.iter().filter(|preset| PUBLISHED.contains(&preset.name));
        let named = |preset: &Preset| NamedStrategy {
            name: preset.name.to_owned(),
            strategy: preset.strategy.clone(),
        };
        published.map(named).collect()
    }
}
