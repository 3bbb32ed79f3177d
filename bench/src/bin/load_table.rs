//! Processor time per request of `stockade load`, wrk, oha, Vegeta and siege.
//!
//! A closed loop of 64 connections requests 1 KiB. The responder, which finds the ends of heads and writes a prepared
//! response, has the first core, and each generator in turn the second; rounds are interleaved. "of wrk" is the ratio
//! within a round, the median of all (least to most). Processor time is of the whole process, from its start on.
//!
//! wrk and `taskset` have to be installed; other generators are left out if they are missing.

use std::{env, error::Error, process::Command};

use stockade_bench::{
    generators::{Generated, generate, responder, stockade, wrk_requests},
    origin::Server,
    responder::{RESPONDER, respond},
    statistics::{median, range},
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const ROUNDS: usize = 7;
const SECONDS: &str = "5";

/// The command of a generator, and a function that reads the number of responses from its output.
struct Generator {
    name: &'static str,
    program: Vec<String>,
    requests: fn(&str) -> Option<f64>,
}

fn main() -> Result<()> {
    if env::args().nth(1).as_deref() == Some("respond") {
        return respond();
    }
    let generators = generators()?;
    let responder = responder()?;
    let mut rounds: Vec<Vec<Generated>> = Vec::new();
    for round in 0..ROUNDS {
        let mut generated = vec![None; generators.len()];
        // The order alternates, since the first generator may find the machine in another state.
        for at in (0..generators.len()).map(|at| (at + round) % generators.len()) {
            generated[at] = Some(run(&responder, &generators[at])?);
        }
        rounds.push(generated.into_iter().flatten().collect());
    }
    println!("| generator | requests a second | of wrk | CPU a request, us | of wrk | responder busy |");
    println!("|---|---|---|---|---|---|");
    for (at, generator) in generators.iter().enumerate() {
        let of = |figure: fn(&Generated) -> f64| {
            let figures = rounds.iter().map(|round| figure(&round[at])).collect();
            let ratios: Vec<f64> =
                rounds.iter().map(|round| figure(&round[at]) / figure(&round[0])).collect();
            let (least, most) = range(&ratios);
            (median(figures), format!("{:.2} ({least:.2} to {most:.2})", median(ratios)))
        };
        let (rate, of_rate) = of(|one| one.requests / one.seconds);
        let (cpu, of_cpu) = of(|one| one.cpu_seconds / one.requests);
        let (busy, _) = of(|one| one.responder_busy);
        let name = generator.name;
        println!("| {name} | {rate:.0} | {of_rate} | {:.2} | {of_cpu} | {:.0} % |", cpu * 1e6, busy * 100.0);
    }
    Ok(())
}

fn run(responder: &Server, generator: &Generator) -> Result<Generated> {
    let program: Vec<&str> = generator.program.iter().map(String::as_str).collect();
    Ok(generate(responder, &program, generator.requests)?.0)
}

fn generators() -> Result<Vec<Generator>> {
    let url = format!("http://{RESPONDER}/1");
    let lasts = format!("{SECONDS}s");
    let stockade = stockade()?;
    let stockade = stockade.to_str().ok_or("a path that is no text")?;
    let all = [
        (
            "wrk",
            vec!["wrk", "-t1", "-c64", "-d", &lasts, &url],
            wrk_requests as fn(&str) -> Option<f64>,
        ),
        (
            "stockade load",
            vec![stockade, "load", &url, "-c", "64", "-t", "1", "-d", &lasts, "--format", "json"],
            |output| {
                let report: serde_json::Value = serde_json::from_str(output.lines().next()?).ok()?;
                report["status_codes"]["200"].as_f64()
            },
        ),
        (
            "oha",
            vec!["oha", "--no-tui", "-c", "64", "-z", &lasts, "--output-format", "json", &url],
            |output| {
                let report: serde_json::Value = serde_json::from_str(output).ok()?;
                report["statusCodeDistribution"]["200"].as_f64()
            },
        ),
        (
            "vegeta",
            vec![
                "sh",
                "-c",
                "echo \"GET $0\" | vegeta attack -rate 0 -max-workers 64 -connections 64 -duration $1 | vegeta report",
                &url,
                &lasts,
            ],
            |output| number_after(output, "throughput]"),
        ),
        ("siege", vec!["siege", "-b", "-c", "64", "-t", "5S", "-j", &url], |output| {
            number_after(output, "\"transactions\":")
        }),
    ];
    let is_there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let kept = all.into_iter().filter(|(_, program, _)| is_there(program[0]));
    Ok(kept
        .map(|(name, program, requests)| Generator {
            name,
            program: program.into_iter().map(str::to_owned).collect(),
            requests,
        })
        .collect())
}

/// The first number after `mark`.
fn number_after(output: &str, mark: &str) -> Option<f64> {
    output.split_once(mark)?.1.split(',').next()?.trim().parse().ok()
}
