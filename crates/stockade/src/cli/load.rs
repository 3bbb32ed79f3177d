//! What can be typed after `stockade load`, and what it means.

use std::{num::NonZeroUsize, path::PathBuf, str::FromStr, time::Duration};

use clap::Args;
use http::{HeaderName, HeaderValue, Method};
use stockade_load::{
    Digest,
    report::{Buckets, FORMATS, Format},
    schedule::{Arrivals, Rate},
    search::Bounds,
    traffic::{Keys, OF_THE_CONNECTION},
};
use stockade_model::{latency::Latency, units::parse_duration};

use super::list;

#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[derive(Clone, Debug, Args)]
#[command(after_help = after_help())]
pub struct LoadArgs {
    /// What is asked for; `{key}` in it stands for one of --keys
    #[arg(value_name = "URL")]
    pub url: Option<String>,

    /// So many requests per time, evenly spaced, whatever becomes of them: `425/s`, `1000/m`
    #[arg(long, value_name = "N/s", help_heading = "When", group = "when")]
    pub rate: Option<Rate>,
    /// So many users on a connection each, who ask, wait for the answer, and ask again
    #[arg(long, short, value_name = "N", help_heading = "When", group = "when", value_parser = some)]
    pub connections: Option<NonZeroUsize>,
    /// So many requests at the same moment, on connections that are open
    #[arg(long, value_name = "N", help_heading = "When", group = "when", value_parser = count)]
    pub burst: Option<u64>,
    /// Phases one after the other: rates, ramps, sines, bursts, pauses, users (docs/load.md)
    #[arg(long, value_name = "FILE.toml", help_heading = "When", group = "when")]
    pub schedule: Option<PathBuf>,
    /// How requests of a rate are spread: `constant` (evenly) or `poisson`
    #[arg(long, value_name = "HOW", help_heading = "When", value_parser = arrivals)]
    pub arrivals: Option<Arrivals>,
    /// How long users think between an answer and their next request: `50ms`, `10ms..1s`
    #[arg(long, value_name = "D", help_heading = "When")]
    pub think: Option<Latency>,
    /// For how long [default: 10s, where --requests does not say when to end]
    #[arg(long, short, value_name = "D", help_heading = "When", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Until so many requests have been made
    #[arg(long, short = 'n', value_name = "N", help_heading = "When", value_parser = count)]
    pub requests: Option<u64>,
    /// For so long before, requests are made and counted apart
    #[arg(long, value_name = "D", help_heading = "When", value_parser = parse_duration, default_value = "0")]
    pub warmup: Duration,
    /// How long answers are waited for once all has been sent [default: --timeout]
    #[arg(long, value_name = "D", help_heading = "When", value_parser = parse_duration)]
    pub drain: Option<Duration>,
    /// How many requests of a rate may be under way; what is due beyond that waits [default: 10000, or what the
    /// machine allows]
    #[arg(long, value_name = "N", help_heading = "When", value_parser = some)]
    pub max_in_flight: Option<NonZeroUsize>,
    /// How many threads send [default: one a core, as far as the load needs them]
    #[arg(long, short, value_name = "N", help_heading = "When", value_parser = threads)]
    pub threads: Option<NonZeroUsize>,
    /// Where every random choice comes from
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "When")]
    pub seed: u64,

    /// Targets as Vegeta has them, text or JSON lines; one after the other
    #[arg(long, value_name = "FILE", help_heading = "What", group = "what")]
    pub targets: Option<PathBuf>,
    /// URLs as siege has them (urls.txt), with variables and POST
    #[arg(long, value_name = "FILE", help_heading = "What", group = "what")]
    pub urls: Option<PathBuf>,
    /// Targets or URLs at random, not in turn
    #[arg(long, help_heading = "What")]
    pub random: bool,
    /// An access log's requests, at their own pace, to the server that URL names: Common, Combined or JSON lines, .gz
    #[arg(long, value_name = "LOG", help_heading = "What", group = "what")]
    pub replay: Option<PathBuf>,
    /// So many times as fast as the log was written
    #[arg(long, value_name = "F", help_heading = "What")]
    pub speed: Option<f64>,
    /// So much of the log, chosen by --seed: 0.1 is every tenth request
    #[arg(long, value_name = "F", help_heading = "What")]
    pub share: Option<f64>,
    /// Makes every URL another one, so that no cache has it
    #[arg(long, help_heading = "What")]
    pub cache_bust: bool,
    /// What `{key}` is: `zipf:N`, `zipf:N:EXPONENT`, `uniform:N` or `scan:N`
    #[arg(long, value_name = "SPEC", help_heading = "What")]
    pub keys: Option<Keys>,
    /// A header of every request
    #[arg(long, short = 'H', value_name = "K: V", help_heading = "What", value_parser = header)]
    pub header: Vec<(HeaderName, HeaderValue)>,
    /// The method [default: GET, or POST with --body]
    #[arg(long, short = 'X', value_name = "M", help_heading = "What", value_parser = method)]
    pub method: Option<Method>,
    /// A file that every request sends; `-`: standard input
    #[arg(long, value_name = "FILE", help_heading = "What")]
    pub body: Option<PathBuf>,

    /// When an attempt is given up
    #[arg(long, value_name = "D", help_heading = "How", value_parser = parse_duration, default_value = "30s")]
    pub timeout: Duration,
    /// HTTP/2, and nothing else
    #[arg(long, help_heading = "How")]
    pub http2: bool,
    /// A new connection for every request
    #[arg(long, help_heading = "How", conflicts_with = "http2")]
    pub no_keepalive: bool,
    /// Believe every certificate
    #[arg(long, help_heading = "How", conflicts_with = "ca")]
    pub insecure: bool,
    /// Believe the authorities in this file (PEM), and no others
    #[arg(long, value_name = "FILE", help_heading = "How")]
    pub ca: Option<PathBuf>,
    /// Connect to this socket, whatever the URLs say
    #[arg(long, value_name = "PATH", help_heading = "How")]
    pub unix: Option<PathBuf>,
    /// Follow so many redirects in a row
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "How", value_parser = clap::value_parser!(u32).range(0..=50))]
    pub redirects: u32,
    /// Ask again so often after a failure, a timeout, 408, 429, 500, 502, 503 or 504
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "How", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub retries: u32,
    /// How long to wait before asking again
    #[arg(long, value_name = "D", help_heading = "How", value_parser = parse_duration, default_value = "100ms")]
    pub retry_backoff: Duration,
    /// How many retries there may be for each request, over all: 0.1 is one for every ten
    #[arg(long, value_name = "F", default_value_t = 0.1, help_heading = "How", value_parser = share)]
    pub retry_budget: f64,
    /// What every body has to be, decoded: its SHA-256 in hex
    #[arg(long, value_name = "HEX", help_heading = "How", value_parser = digest)]
    pub sha256: Option<Digest>,

    /// Find the highest rate at which this holds: `p99 < 50ms and success >= 0.999`
    #[arg(long, value_name = "BOUNDS", help_heading = "Capacity", group = "when")]
    pub capacity: Option<Bounds>,
    /// The lowest rate, tried first [default: 100/s]
    #[arg(long, value_name = "N/s", help_heading = "Capacity")]
    pub from: Option<Rate>,
    /// The highest rate [default: as high as it goes]
    #[arg(long, value_name = "N/s", help_heading = "Capacity")]
    pub to: Option<Rate>,
    /// How often each rate is tried; most of the trials decide [default: 3]
    #[arg(long, value_name = "N", help_heading = "Capacity", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: Option<u32>,
    /// How far apart the rate that holds and the one that does not may be [default: 0.05, which is 5 %]
    #[arg(long, value_name = "F", help_heading = "Capacity", value_parser = precision)]
    pub precision: Option<f64>,

    /// What is printed
    #[arg(long, value_name = "FORMAT", default_value = "text", help_heading = "Reports", value_parser = format())]
    pub format: &'static Format,
    /// The bounds of vegeta-hist's buckets: `0,10ms,100ms,1s`
    #[arg(long, value_name = "D,...", help_heading = "Reports")]
    pub buckets: Option<Buckets>,
    /// Where every sample goes as well, as Vegeta's results; by its ending JSON or CSV
    #[arg(long, value_name = "FILE.json|FILE.csv", help_heading = "Reports", value_parser = out)]
    pub out: Option<Out>,
}

/// A file of samples.
#[derive(Clone, Debug)]
pub struct Out {
    pub path: PathBuf,
    pub is_csv: bool,
}

fn after_help() -> String {
    let formats = list(FORMATS.iter().map(|format| (format.name, format.about)));
    format!(
        "Formats:\n{formats}\nA run whose generator was the bottleneck ends with 98, failed requests are data. \
         docs/load.md has the rest."
    )
}

fn format() -> impl clap::builder::TypedValueParser<Value = &'static Format> {
    use clap::builder::TypedValueParser;
    clap::builder::PossibleValuesParser::new(FORMATS.iter().map(|format| format.name))
        .map(|name| stockade_load::report::format(&name).expect("one of them"))
}

fn arrivals(text: &str) -> Result<Arrivals, String> {
    match text {
        "constant" => Ok(Arrivals::Constant),
        "poisson" => Ok(Arrivals::Poisson),
        _ => Err("write constant or poisson".to_owned()),
    }
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) =
        text.split_once(':').ok_or("write a name, a colon and a value, such as `X-Team: web`")?;
    let name =
        HeaderName::from_str(name.trim()).map_err(|_| format!("`{}` is no name of a header", name.trim()))?;
    if OF_THE_CONNECTION.contains(&name) {
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
        Ok(_) => Err(format!("methods are told apart by case: write {upper}")),
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

fn digest(text: &str) -> Result<Digest, String> {
    let remedy = || "write 64 hex digits, as sha256sum prints them".to_owned();
    let text = text.strip_prefix("sha256:").unwrap_or(text);
    if text.len() != 64 || !text.is_ascii() {
        return Err(remedy());
    }
    let mut digest = Digest::default();
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
