//! The arguments of `stockade load`.

use std::{num::NonZeroUsize, path::PathBuf, str::FromStr, time::Duration};

use clap::{
    Args,
    builder::{PossibleValue, TypedValueParser},
};
use http::{HeaderName, HeaderValue, Method};
use stockade_load::{
    ConnectToRule, ResolveRule, Sha256Digest,
    keys::Keys,
    report::{Buckets, FORMATS, Render},
    schedule::{ArrivalProcess, Rate},
    search::Bounds,
    targets::log::LogFormat,
    template::CONNECTION_HEADERS,
};
use stockade_model::{latency::Latency, registry::ReportFormat, units::parse_duration};

use super::{KnownValues, LivePageArgs, OnArgs, TelemetryArgs, exit_codes_line, list, named};

#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
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
    /// Format of the logs, as for `stockade plan` [default: told by the file]
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
    /// Add a unique query parameter to every URL
    #[arg(long, help_heading = "What")]
    pub cache_bust: bool,
    /// Distribution of `{key}`: `zipf:N`, `zipf:N:EXPONENT`, `uniform:N` or `scan:N`
    #[arg(long, value_name = "SPEC", help_heading = "What")]
    pub keys: Option<Keys>,
    /// Add a header to every request; may be repeated
    #[arg(long, short = 'H', value_name = "K: V", help_heading = "What", value_parser = header)]
    pub header: Vec<(HeaderName, HeaderValue)>,
    /// Request method [default: GET, or POST with --body]
    #[arg(long, short = 'X', value_name = "M", help_heading = "What", value_parser = method)]
    pub method: Option<Method>,
    /// File to send as the body of every request; `-`: standard input
    #[arg(long, value_name = "FILE", help_heading = "What")]
    pub body: Option<PathBuf>,

    /// Time out each attempt after this time
    #[arg(long, value_name = "D", help_heading = "How", value_parser = parse_duration, default_value = "30s")]
    pub timeout: Duration,
    /// Use HTTP/2 only
    #[arg(long, help_heading = "How")]
    pub http2: bool,
    /// Open a new connection for every request
    #[arg(long, help_heading = "How", conflicts_with = "http2")]
    pub no_keepalive: bool,
    /// Refuse responses that break RFC 9112, also those that common clients accept
    #[arg(long, help_heading = "How")]
    pub strict: bool,
    /// Do not verify certificates
    #[arg(long, help_heading = "How", conflicts_with = "ca")]
    pub insecure: bool,
    /// Trust only the certificate authorities of this file (PEM)
    #[arg(long, value_name = "FILE", help_heading = "How")]
    pub ca: Option<PathBuf>,
    /// Show this certificate to servers that ask for one (PEM)
    #[arg(long, value_name = "FILE", help_heading = "How", requires = "key")]
    pub cert: Option<PathBuf>,
    /// Private key of --cert (PEM, without a passphrase)
    #[arg(long, value_name = "FILE", help_heading = "How", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Connect to this Unix socket instead of the host of the URLs
    #[arg(long, value_name = "PATH", help_heading = "How")]
    pub unix: Option<PathBuf>,
    /// Connect to this address instead of those of a host's name, as HOST:PORT:ADDR; further addresses follow after commas; `*` is any
    /// host; may be repeated
    #[arg(long, value_name = "RULE", help_heading = "How", conflicts_with = "unix")]
    pub resolve: Vec<ResolveRule>,
    /// Connect to another host and port, as HOST1:PORT1:HOST2:PORT2; an empty first one is any, an empty second one stays; may be
    /// repeated
    #[arg(long, value_name = "RULE", help_heading = "How", conflicts_with = "unix")]
    pub connect_to: Vec<ConnectToRule>,
    /// Follow at most N redirects per request
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "How", value_parser = clap::value_parser!(u32).range(0..=50))]
    pub redirects: u32,
    /// Retry at most N times after a failure, a timeout, 408, 429, 500, 502, 503 or 504
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "How", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub retries: u32,
    /// Wait this long before each retry
    #[arg(long, value_name = "D", help_heading = "How", value_parser = parse_duration, default_value = "100ms")]
    pub retry_backoff: Duration,
    /// Bound of all retries, as a share of all requests: 0.1 is one for every ten
    #[arg(long, value_name = "F", default_value_t = 0.1, help_heading = "How", value_parser = share)]
    pub retry_budget: f64,
    /// Verify the SHA-256 of every decoded body, in hex
    #[arg(long, value_name = "HEX", help_heading = "How", value_parser = digest)]
    pub sha256: Option<Sha256Digest>,

    /// Find the highest rate at which these bounds hold: `p99 < 50ms and success >= 0.999`
    #[arg(long, value_name = "BOUNDS", help_heading = "Capacity", group = "when", conflicts_with = "ui")]
    pub capacity: Option<Bounds>,
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
    #[arg(long, value_name = "BOUNDS", help_heading = "Verdict", conflicts_with = "capacity")]
    pub expect: Vec<Bounds>,

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
    record: Option<PathBuf>,
    /// Keep no record
    #[arg(long, help_heading = "Reports", conflicts_with = "record")]
    no_record: bool,

    #[command(flatten)]
    pub on: OnArgs,
    #[command(flatten)]
    pub ui: LivePageArgs,
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

impl LoadArgs {
    /// The directory of the record: `None` without a record, `Some(None)` for the default.
    pub fn record(&self) -> Option<Option<PathBuf>> {
        (!self.no_record).then(|| self.record.clone())
    }
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

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) =
        text.split_once(':').ok_or("write a name, a colon and a value, such as `X-Team: web`")?;
    let name = HeaderName::from_str(name.trim())
        .map_err(|_| format!("`{}` is not a name of a header", name.trim()))?;
    if CONNECTION_HEADERS.contains(&name) {
        return Err(format!("{name} is for the connection to say: --body and --no-keepalive make it"));
    }
    let value =
        HeaderValue::from_str(value.trim()).map_err(|_| "its value has characters that no header has")?;
    Ok((name, value))
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

fn method(text: &str) -> Result<Method, String> {
    let upper = text.to_uppercase();
    match text.parse::<Method>() {
        Ok(method) if text == upper => Ok(method),
        Ok(_) => Err(format!("methods are case-sensitive: write {upper}")),
        Err(_) => Err("write a method, such as GET, POST or PURGE".to_owned()),
    }
}

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| match parse_duration(text.to_lowercase().as_str()) {
        Ok(_) => format!("how many threads? For how long is `-d {}`", text.to_lowercase()),
        Err(_) => "write how many threads, 1 or more".to_owned(),
    })
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("write a number from 0 to 1, such as 0.1".to_owned()),
    }
}

fn precision(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(precision) if precision > 0.0 && precision < 1.0 => Ok(precision),
        _ => Err("write a number above 0 and below 1, such as 0.05 for 5 %".to_owned()),
    }
}

fn digest(text: &str) -> Result<Sha256Digest, String> {
    let remedy = || "write 64 hex digits, as sha256sum prints them".to_owned();
    let text = text.strip_prefix("sha256:").unwrap_or(text);
    if text.len() != 64 || !text.is_ascii() {
        return Err(remedy());
    }
    let mut digest = Sha256Digest::default();
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| remedy())?;
    }
    Ok(digest)
}

fn out(text: &str) -> Result<Out, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json" | "jsonl" | "ndjson") => Ok(Out { path, is_csv: false }),
        Some("csv") => Ok(Out { path, is_csv: true }),
        _ => Err("its ending says what is written: FILE.json or FILE.csv".to_owned()),
    }
}
