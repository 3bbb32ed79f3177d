//! What can be typed.

mod load;

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    path::PathBuf,
    time::Duration,
};

use clap::{Args, Parser, Subcommand, ValueEnum, builder::styling::Styles};
use stockade_cache::{PRESETS, Preset, Strategy};
use stockade_lab::{engine::Docs, report::FORMATS};
use stockade_model::{
    latency::Latency,
    units::{parse_duration, parse_size},
};
use stockade_source::SOURCES;

pub use load::{LoadArgs, Out};

/// Load testing of caching strategies, and the cache that survives it.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100, styles = Styles::plain(), after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done and every hypothesis supported; 1 failed; 2 bad usage or file; \
                          98 invalid, interrupted or inconclusive; 99 a hypothesis refuted.";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an experiment and judge its hypotheses
    Run(RunArgs),
    /// Run the published stampede test: N workers, cold cache, every strategy
    Stampede(StampedeArgs),
    /// Serve HTTP as a recipe has it: slow, failing, broken, on schedule
    Origin(OriginArgs),
    /// Answer HTTP from a cache in front of an origin
    Proxy(Box<ProxyArgs>),
    /// Ask an HTTP server, as often as it is told, and tell what became of it
    Load(Box<LoadArgs>),
    /// Report a record in another format
    Report(ReportArgs),
    /// Serve documents through a cache: a part of `run`
    #[command(hide = true)]
    App(AppArgs),
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// The experiment's file
    #[arg(value_name = "EXPERIMENT.toml")]
    pub experiment: PathBuf,
    /// Measure this test alone, or those below it; more of them if given more often
    #[arg(long, value_name = "NAME")]
    pub test: Vec<String>,
    /// Multiply what the file lists as `scaled`
    #[arg(long, value_name = "F", default_value = "1", value_parser = scale)]
    pub scale: f64,
    /// Measure every arm so often, in place of the file's `repeat`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// Where every random choice comes from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Where the record goes [default: runs/NAME/TIME, NAME being the file's]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// What is printed
    #[arg(long, value_enum, default_value_t = RunFormat::Text)]
    pub format: RunFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RunFormat {
    Text,
    Json,
    Md,
}

#[derive(Debug, Args)]
#[command(after_help = registries())]
pub struct StampedeArgs {
    /// How many workers ask at the same moment; several are several starts
    #[arg(default_values = ["10", "100", "1000", "10000"], value_parser = workers)]
    pub workers: Vec<usize>,
    /// Strategies to compare [default: all of the published test]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = preset)]
    pub strategy: Vec<Named>,
    /// Documents to choose from: `fixed:K`, or `scaled` with the workers as published
    #[arg(long, value_name = "fixed:K|scaled", default_value = "scaled")]
    pub docs: Docs,
    /// Where the documents are [default: a SQLite database with 680 generated ones]
    #[arg(long, value_name = "URL")]
    pub source: Option<String>,
    /// Make the source slower: `20ms`, or `10ms..30ms` drawn for every fetch; in real time up to 1 ms
    /// more, for sleeps end late
    #[arg(long, value_name = "D", default_value = "0")]
    pub source_latency: Latency,
    /// Fill the source with these documents, one JSON object with an `_id` a line
    #[arg(long, value_name = "FILE.jsonl")]
    pub docs_from: Option<PathBuf>,
    /// Who writes into the cache: `direct`, or one task with a `mailbox`
    #[arg(long, value_enum, default_value_t = WriterName::Direct)]
    pub writer: WriterName,
    /// What one write costs the mailbox's task [default: 0]
    #[arg(long, value_name = "D", value_parser = parse_duration)]
    pub store_cost: Option<Duration>,
    /// How long a worker waits for the mailbox's task [default: 5s]
    #[arg(long, value_name = "D", value_parser = parse_duration)]
    pub call_timeout: Option<Duration>,
    /// Start workers as they are spawned, as the published test does, not all at the same moment
    #[arg(long)]
    pub no_barrier: bool,
    /// Where every random choice comes from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// What is printed
    #[arg(long, value_enum, default_value_t = StampedeFormat::Text)]
    pub format: StampedeFormat,
}

/// A strategy and the name that it was asked for by.
#[derive(Clone, Debug)]
pub struct Named {
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
#[command(after_help = RECIPES)]
pub struct OriginArgs {
    /// What it serves, and how it behaves when; `-`: standard input [default: nothing, until one is posted]
    #[arg(value_name = "RECIPE.json")]
    pub recipe: Option<PathBuf>,
    /// Where it listens; port 0: any that is free
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080", value_parser = address)]
    pub listen: SocketAddr,
    /// Where `/_admin` is [default: where everything is]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub admin: Option<SocketAddr>,
    /// How many threads serve [default: one a core]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Where every random choice comes from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Let stages begin with `/_admin/start`, not at once
    #[arg(long)]
    pub hold: bool,
    /// End when standard input does: for whoever starts it, and may be gone before
    #[arg(long)]
    pub until_stdin_ends: bool,
    /// Encrypt, with a certificate for localhost that is made at start; `/_admin/certificate` tells it
    #[arg(long)]
    pub tls: bool,
    /// Encrypt, with this certificate in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// The certificate's key in PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
}

const RECIPES: &str = "A recipe:
  {\"route\": \"/news*\", \"random_content\": \"100kb\", \"stages\": [
    {\"at\": 0, \"status\": 200, \"latency\": \"50ms\"},
    {\"at\": \"60s\", \"status\": 503, \"latency\": \"500ms..2s\"}]}
docs/origin.md has the rest. POST one to /_admin/add_recipe at any time.";

/// An address and a port; a port alone is one of the loopback.
fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.trim_start_matches(':').parse() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    let text = text.replace("localhost:", "127.0.0.1:");
    text.parse()
        .map_err(|_| "write an address and a port, such as 127.0.0.1:8080, or a port alone".to_owned())
}

#[derive(Debug, Args)]
#[command(after_help = registries())]
pub struct ProxyArgs {
    /// Where answers come from: `http://HOST:PORT`, `https:`, or a database of documents; in place of
    /// the only origin of a file
    #[arg(long, value_name = "URL", required_unless_present = "config")]
    pub origin: Option<String>,
    /// Where it listens; port 0: any that is free [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub listen: Vec<SocketAddr>,
    /// Where whoever runs it comes in, to look, purge and reload [default: nowhere]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub admin: Option<SocketAddr>,
    /// The token for that, in a file; needed anywhere but on the loopback
    #[arg(long, value_name = "FILE")]
    pub admin_token_file: Option<PathBuf>,
    /// Routes, origins and everything else; flags go before it
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// What is done about a missing answer: one of those below [default: breaker]
    #[arg(long, value_name = "NAME", value_parser = preset)]
    pub strategy: Option<Named>,
    /// How many answers are held at most [default: as many as fit]
    #[arg(long, value_name = "N")]
    pub max_entries: Option<NonZeroUsize>,
    /// How much they may take [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_bytes: Option<usize>,
    /// How much of that is cleared once it is full, 0 to 1
    #[arg(long, value_name = "F")]
    pub reclaim: Option<f64>,
    /// How many threads serve [default: one a core]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// End when standard input does: for whoever starts it, and may be gone before
    #[arg(long)]
    pub until_stdin_ends: bool,
}

fn size(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    usize::try_from(bytes).map_err(|_| format!("`{text}` is more than this machine can address"))
}

#[derive(Debug, Args)]
pub struct AppArgs {
    /// Its `[origin]` and its `[cache]`, as of an experiment
    #[arg(value_name = "FILE.toml")]
    pub config: PathBuf,
    /// End when standard input does: for whoever starts it, and may be gone before
    #[arg(long)]
    pub until_stdin_ends: bool,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The record's directory
    pub record: PathBuf,
    /// What is printed
    #[arg(long, default_value = "md", value_parser = formats())]
    pub format: String,
}

fn formats() -> impl clap::builder::TypedValueParser<Value = String> {
    clap::builder::PossibleValuesParser::new(FORMATS.iter().map(|format| format.name))
}

fn preset(name: &str) -> Result<Named, stockade_cache::UnknownPreset> {
    Strategy::preset(name).map(|strategy| Named { name: name.to_owned(), strategy })
}

fn workers(text: &str) -> Result<usize, String> {
    match text.replace('_', "").parse() {
        Ok(workers @ 1..) => Ok(workers),
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

/// The strategies and the sources that there are, for the end of the help.
fn registries() -> String {
    let strategies = list(PRESETS.iter().map(|preset| (preset.name, preset.summary)));
    let sources = list(SOURCES.iter().map(|kind| (kind.form, kind.summary)));
    format!("Strategies:\n{strategies}\nSources:\n{sources}")
}

/// Names and what they are, in two columns.
fn list<'a>(entries: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> String {
    let width = entries.clone().map(|(name, _)| name.len() + 2).max().unwrap_or_default();
    let lines: Vec<_> = entries.map(|(name, summary)| format!("  {name:width$}{summary}\n")).collect();
    lines.concat()
}

impl StampedeArgs {
    /// The strategies asked for, or else all of the published test.
    pub fn strategies(&mut self) -> Vec<Named> {
        let asked = std::mem::take(&mut self.strategy);
        if !asked.is_empty() {
            return asked;
        }
        let published = PRESETS.iter().filter(|preset| PUBLISHED.contains(&preset.name));
        let named =
            |preset: &Preset| Named { name: preset.name.to_owned(), strategy: preset.strategy.clone() };
        published.map(named).collect()
    }
}
