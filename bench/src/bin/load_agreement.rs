//! The figures of wrk, oha, Vegeta and `stockade load` compared with those of the server.
//!
//! The responder, on the first core, responds after 4 ms, and after 200 ms to one request in 200: the mean is 4.98 ms, p50,
//! p90 and p99 are 4 ms, the maximum is 200 ms. It records the times from the arrival of each request to its response.
//! The generators run in turn on the second core, with four loads:
//!
//! 1. 500 requests per second.
//! 2. 150 requests per second over one connection: each request that is due during a stall waits for the connection.
//! 3. A closed loop of 20 connections.
//! 4. A closed loop of one connection.
//!
//! A cell has the printed figure, and the server's own in brackets. Cells are medians of all rounds, which are interleaved.
//! The last column is the ratio of both p99 within a round: the median (least to most).
//!
//! `taskset` has to be installed; generators are left out if they are missing. The argument is the number of rounds.

use std::{env, error::Error, process::Command};

use serde_json::Value;
use stockade_bench::{
    generators::{generate, responder, stockade, wrk_requests},
    responder::{RESPONDER, get, respond},
    statistics::{median, range},
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const ROUNDS: usize = 5;
const LASTS: &str = "10s";

/// Requests, requests per second, then the mean, p50, p90, p99 and maximum in ms.
type Figures = [f64; 7];
const P99: usize = 5;

#[derive(Clone, Copy)]
enum Load {
    /// A rate per second, over as many connections as the generator opens, or over this number.
    Open(u32, Option<u32>),
    /// A closed loop over this number of connections.
    Closed(u32),
}

const LOADS: [Load; 4] = [Load::Open(500, None), Load::Open(150, Some(1)), Load::Closed(20), Load::Closed(1)];

impl Load {
    fn name(self) -> String {
        match self {
            Self::Open(rate, None) => format!("{rate}/s"),
            Self::Open(rate, Some(connections)) => format!("{rate}/s, {connections} connection"),
            Self::Closed(1) => "1 connection".to_owned(),
            Self::Closed(connections) => format!("{connections} connections"),
        }
    }
}

struct Generator {
    name: &'static str,
    /// Has to be installed; `None`: built here.
    program: Option<&'static str>,
    /// The command for a load and a URL; none if the generator does not have this kind of load.
    command: fn(Load, &str) -> Option<String>,
    /// The figures in its output.
    figures: fn(&str) -> Option<Figures>,
}

/// The printed figures, and those of the server.
struct Round {
    printed: Figures,
    served: Figures,
}

fn main() -> Result<()> {
    let argument = env::args().nth(1);
    if argument.as_deref() == Some("respond") {
        return respond();
    }
    let rounds = argument.map_or(Ok(ROUNDS), |rounds| rounds.parse())?;
    let stockade = stockade()?;
    let generators: Vec<_> =
        GENERATORS.into_iter().filter(|generator| generator.program.is_none_or(is_there)).collect();
    let cells: Vec<_> =
        LOADS.iter().flat_map(|load| generators.iter().map(move |one| (*load, one))).collect();
    let mut measured: Vec<Vec<Round>> = cells.iter().map(|_| Vec::new()).collect();
    let responder = responder()?;
    let url = format!("http://{RESPONDER}/known");
    for round in 0..rounds {
        // The order alternates, since the first generator may find the machine in another state.
        for at in (0..cells.len()).map(|at| (at + round) % cells.len()) {
            let (load, generator) = cells[at];
            let Some(command) = (generator.command)(load, &url) else { continue };
            served()?;
            let program = ["env", &format!("STOCKADE={}", stockade.display()), "sh", "-c", &command];
            let (_, output) = generate(&responder, &program, |_| Some(0.0))?;
            let printed =
                (generator.figures)(&output).ok_or_else(|| format!("{command} printed {output}"))?;
            measured[at].push(Round { printed, served: served()? });
        }
    }
    println!("| load | generator | requests | per s | mean, ms | p50 | p90 | p99 | max | p99 / server's |");
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for ((load, generator), rounds) in cells.iter().zip(&measured) {
        if let Some(row) = row(*load, generator.name, rounds) {
            println!("{row}");
        }
    }
    Ok(())
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// The server's figures since the last call.
fn served() -> Result<Figures> {
    let record = get("/record")?;
    let figures: Vec<f64> = record.split(' ').map(str::parse).collect::<std::result::Result<_, _>>()?;
    figures.try_into().map_err(|_| format!("the record is {record}").into())
}

/// None if the option of the generator has no meaning in this load.
fn row(load: Load, generator: &str, rounds: &[Round]) -> Option<String> {
    let name = load.name();
    if rounds.is_empty() {
        return matches!(load, Load::Open(..))
            .then(|| format!("| {name} | {generator} | has no rate | | | | | | | |"));
    }
    let cell = |at: usize| {
        let of = |figures: fn(&Round) -> &Figures| {
            shown(median(rounds.iter().map(|round| figures(round)[at]).collect()))
        };
        format!("{} ({})", of(|round| &round.printed), of(|round| &round.served))
    };
    let cells: Vec<String> = (0..7).map(cell).collect();
    let ratios: Vec<f64> = rounds.iter().map(|round| round.printed[P99] / round.served[P99]).collect();
    let (least, most) = range(&ratios);
    let ratio = median(ratios);
    let cells = cells.join(" | ");
    Some(format!("| {name} | {generator} | {cells} | {ratio:.2} ({least:.2} to {most:.2}) |"))
}

/// A figure with three significant digits.
fn shown(figure: f64) -> String {
    let decimals = match figure {
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{figure:.decimals$}")
}

const GENERATORS: [Generator; 6] = [
    Generator {
        name: "wrk",
        program: Some("wrk"),
        command: |load, url| match load {
            Load::Open(..) => None,
            Load::Closed(connections) => Some(format!("wrk -t1 -c{connections} -d {LASTS} --latency {url}")),
        },
        figures: wrk_figures,
    },
    Generator {
        name: "oha",
        program: Some("oha"),
        command: |load, url| Some(oha(load, url, "")),
        figures: oha_figures,
    },
    Generator {
        name: "oha --latency-correction",
        program: Some("oha"),
        command: |load, url| match load {
            Load::Open(..) => Some(oha(load, url, "--latency-correction")),
            Load::Closed(_) => None,
        },
        figures: oha_figures,
    },
    Generator {
        name: "vegeta",
        program: Some("vegeta"),
        command: |load, url| {
            let options = match load {
                Load::Open(rate, None) => format!("-rate {rate}"),
                Load::Open(rate, Some(connections)) => format!("-rate {rate} {}", workers(connections)),
                Load::Closed(connections) => format!("-rate 0 {}", workers(connections)),
            };
            let report = "vegeta report -type=json";
            Some(format!("echo GET {url} | vegeta attack {options} -duration {LASTS} | {report}"))
        },
        figures: vegeta_figures,
    },
    Generator {
        name: "`stockade load`",
        program: None,
        command: |load, url| Some(stockade_load(load, url)),
        figures: vegeta_figures,
    },
    Generator {
        name: "`stockade load`, service",
        program: None,
        command: |load, url| match load {
            Load::Open(..) => Some(stockade_load(load, url)),
            Load::Closed(_) => None,
        },
        figures: service_figures,
    },
];

fn oha(load: Load, url: &str, option: &str) -> String {
    let options = match load {
        Load::Open(rate, connections) => {
            let connections = connections.map_or_else(String::new, |connections| format!("-c {connections}"));
            format!("-q {rate} {connections}")
        }
        Load::Closed(connections) => format!("-c {connections}"),
    };
    format!("oha --no-tui {options} {option} -z {LASTS} --output-format json {url}")
}

fn workers(connections: u32) -> String {
    format!("-workers {connections} -max-workers {connections} -connections {connections}")
}

fn stockade_load(load: Load, url: &str) -> String {
    let options = match load {
        Load::Open(rate, connections) => {
            let most = connections.map_or_else(String::new, |most| format!("--max-in-flight {most}"));
            format!("--rate {rate}/s {most}")
        }
        Load::Closed(connections) => format!("-c {connections}"),
    };
    format!("\"$STOCKADE\" load {url} -t 1 {options} -d {LASTS} --format json")
}

/// `Latency     4.98ms   13.8ms 204.12ms   99.5%` has the mean and the maximum, `50%    4.05ms` a percentile.
fn wrk_figures(output: &str) -> Option<Figures> {
    let after = |mark: &str, at: usize| -> Option<&str> {
        let line = output.lines().find_map(|line| line.trim_start().strip_prefix(mark))?;
        line.split_whitespace().nth(at)
    };
    let requests = wrk_requests(output)?;
    let rate = after("Requests/sec:", 0)?.parse().ok()?;
    // The heading of the percentiles is "Latency Distribution".
    let times = [("Latency  ", 0), ("50%", 0), ("90%", 0), ("99%", 0), ("Latency  ", 2)];
    let [mean, p50, p90, p99, max] = times.map(|(mark, at)| after(mark, at).and_then(wrk_ms));
    Some([requests, rate, mean?, p50?, p90?, p99?, max?])
}

/// `4.05ms`, `980.00us`, `1.20s`
fn wrk_ms(text: &str) -> Option<f64> {
    let units = [("us", 1e-3), ("ms", 1.0), ("s", 1e3)];
    let (number, unit) =
        units.iter().find_map(|(unit, ms)| text.strip_suffix(unit).map(|number| (number, ms)))?;
    Some(number.parse::<f64>().ok()? * unit)
}

fn oha_figures(output: &str) -> Option<Figures> {
    let report: Value = serde_json::from_str(output).ok()?;
    let (summary, percentiles) = (&report["summary"], &report["latencyPercentiles"]);
    Some([
        report["statusCodeDistribution"]["200"].as_f64()?,
        summary["requestsPerSec"].as_f64()?,
        summary["average"].as_f64()? * 1e3,
        percentiles["p50"].as_f64()? * 1e3,
        percentiles["p90"].as_f64()? * 1e3,
        percentiles["p99"].as_f64()? * 1e3,
        summary["slowest"].as_f64()? * 1e3,
    ])
}

/// The report of Vegeta, which is also that of `stockade load`.
fn vegeta_figures(output: &str) -> Option<Figures> {
    let report: Value = serde_json::from_str(output.lines().next()?).ok()?;
    let ms = |name: &str| report["latencies"][name].as_f64().map(|ns| ns / 1e6);
    Some([
        report["requests"].as_f64()?,
        report["throughput"].as_f64()?,
        ms("mean")?,
        ms("50th")?,
        ms("90th")?,
        ms("99th")?,
        ms("max")?,
    ])
}

fn service_figures(output: &str) -> Option<Figures> {
    let report: Value = serde_json::from_str(output.lines().next()?).ok()?;
    let ms = |name: &str| report["stockade"]["service"][name].as_f64();
    Some([
        report["requests"].as_f64()?,
        report["throughput"].as_f64()?,
        ms("mean_ms")?,
        ms("p50_ms")?,
        ms("p90_ms")?,
        ms("p99_ms")?,
        ms("max_ms")?,
    ])
}
