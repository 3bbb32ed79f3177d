//! The arguments of the servers: origin, proxy, app.

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    path::PathBuf,
};

use clap::Args;
use stockade_model::units::parse_size;

use super::{NamedStrategy, preset, registries};

/// For a parent process.
#[derive(Debug, Args)]
pub struct ParentArgs {
    /// End when standard input ends: for a parent process that may die first
    #[arg(long)]
    pub until_stdin_ends: bool,
    /// Print one line of JSON when ready: `{"listen": ["http:..."], "admin": "http:..."}`
    #[arg(long, hide = true)]
    pub ready_json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = RECIPES)]
pub struct OriginArgs {
    /// File of the recipe; `-`: standard input [default: none, until one is posted]
    #[arg(value_name = "RECIPE.json")]
    pub recipe: Option<PathBuf>,
    /// Address to listen on; port 0: any free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080", value_parser = address)]
    pub listen: SocketAddr,
    /// Address of the admin API, `/_admin` [default: that of --listen]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub admin: Option<SocketAddr>,
    /// Name that requests to the admin API may have as their host, in addition to addresses and localhost; repeatable
    #[arg(long = "admin-host", value_name = "NAME")]
    pub admin_hosts: Vec<String>,
    /// Number of threads [default: one per core]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Start the clock of the stages with `/_admin/start` instead of at once
    #[arg(long)]
    pub hold: bool,
    #[command(flatten)]
    pub parent: ParentArgs,
    /// Use TLS with a new self-signed certificate for localhost; `/_admin/certificate` returns it
    #[arg(long)]
    pub tls: bool,
    /// Use TLS with this certificate chain, in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
}

const RECIPES: &str = "A recipe:
  {\"route\": \"/news*\", \"random_content\": \"100kb\", \"stages\": [
    {\"at\": 0, \"status\": 200, \"latency\": \"50ms\"},
    {\"at\": \"60s\", \"status\": 503, \"latency\": \"500ms..2s\"}]}
docs/reference/recipes.md has all fields. POST it to /_admin/add_recipe at any time.";

/// An address and a port; a port alone is on the loopback.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.trim_start_matches(':').parse() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    let text = text.replace("localhost:", "127.0.0.1:");
    text.parse()
        .map_err(|_| "write an address and a port, such as 127.0.0.1:8080, or a port alone".to_owned())
}

#[derive(Debug, Args)]
#[command(after_help = registries(), arg_required_else_help = true)]
pub struct ProxyArgs {
    /// Origin: `http://HOST:PORT`, `https://HOST:PORT`, or a database of documents; overrides the only origin of the file
    #[arg(long, value_name = "URL", required_unless_present = "config")]
    pub origin: Option<String>,
    /// Address to listen on; port 0: any free port; may be repeated [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub listen: Vec<SocketAddr>,
    /// Address of the admin API (metrics, purge, reload) [default: none]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub admin: Option<SocketAddr>,
    /// File with the token of the admin API; required unless it listens on the loopback
    #[arg(long, value_name = "FILE")]
    pub admin_token_file: Option<PathBuf>,
    /// File with routes, origins and all other settings; flags override it
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// Check the file, the flags and the files that they name; print `ok`, or the problems and exit with 2
    #[arg(long)]
    pub check: bool,
    /// Strategy of the cache, one of those below [default: breaker]
    #[arg(long, value_name = "NAME", value_parser = preset(), hide_possible_values = true)]
    pub strategy: Option<NamedStrategy>,
    /// Maximum number of cached responses [default: as many as fit]
    #[arg(long, value_name = "N")]
    pub max_entries: Option<NonZeroUsize>,
    /// Maximum memory of the cache [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_bytes: Option<usize>,
    /// Share of the entries to remove when the cache is full, 0 to 1
    #[arg(long, value_name = "F")]
    pub reclaim: Option<f64>,
    /// Keep the cached responses in this file, so that a restarted proxy has them
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<PathBuf>,
    /// Simulate other sizes, policies and ttls alongside the cache, over a sample of the keys: figures in the admin API, and for
    /// `plan --live`
    #[arg(long)]
    pub shadow: bool,
    /// Number of threads [default: one per core]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    #[command(flatten)]
    pub parent: ParentArgs,
}

fn size(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    usize::try_from(bytes).map_err(|_| format!("`{text}` is more than this machine can address"))
}

#[derive(Debug, Args)]
pub struct AppArgs {
    /// File with `[origin]` and `[cache]`, as in an experiment
    #[arg(value_name = "FILE.toml")]
    pub config: PathBuf,
    #[command(flatten)]
    pub parent: ParentArgs,
}
