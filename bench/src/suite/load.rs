//! Processor time of load generators.

use super::{Bench, Better, Figure, Metric, Result, Sitting};
use crate::{
    generators::{generate, responder, stockade, wrk_requests},
    responder::RESPONDER,
};

const ROUNDS: usize = 3;

pub(super) const BENCH: Bench = Bench {
    name: "load",
    shows: "requests a second and processor time a request of `stockade load`, wrk, h2load, oha, Vegeta and siege",
    method: "A closed loop of 64 connections requests 1 KiB. The responder, which finds the ends of heads and writes a prepared response, has \
             the first core and each generator in turn the second. Processor time is of the whole process, from its start on. siege has a \
             thread for each connection, and Vegeta parses every response into a map: they do more work.",
    seconds: 100,
    needs: &["taskset"],
    peers: &["wrk", "h2load", "oha", "vegeta", "siege"],
    metrics: &[
        Metric { name: "requests", unit: "/s", digits: 0, better: Better::Higher, aim: Some(1.0) },
        Metric { name: "CPU a request", unit: "us", digits: 2, better: Better::Lower, aim: Some(1.0) },
    ],
    limits: &[],
    measure,
    child: None,
};

/// Reads the number of responses from the output of a generator.
type ReadRequests = fn(&str) -> Option<f64>;

struct Generator {
    name: &'static str,
    /// The program and its arguments.
    program: Vec<String>,
    requests: ReadRequests,
}

fn measure(sitting: &Sitting) -> Result<Vec<Figure>> {
    let mut generators = generators(sitting.scaled(5, 1))?;
    generators.retain(|generator| generator.name == super::OURS || sitting.has(generator.name));
    let names: Vec<_> = generators.iter().map(|generator| generator.name).collect();
    let responder = responder()?;
    let metrics = ["requests", "CPU a request"];
    sitting.interleave("64 connections, 1 KiB", metrics, &names, ROUNDS, |at| {
        let program: Vec<&str> = generators[at].program.iter().map(String::as_str).collect();
        let (generated, _) = generate(&responder, &program, generators[at].requests)?;
        Ok([generated.requests / generated.seconds, generated.cpu_seconds / generated.requests * 1e6])
    })
}

fn generators(seconds: u32) -> Result<Vec<Generator>> {
    let (url, count) = (format!("http://{RESPONDER}/1"), seconds.to_string());
    let (url, count) = (url.as_str(), count.as_str());
    let (lasts, siege_lasts) = (format!("{seconds}s"), format!("{seconds}S"));
    let stockade = stockade()?;
    let stockade = stockade.to_str().ok_or("a path that is not text")?;
    let all: [(&'static str, Vec<&str>, ReadRequests); 6] = [
        (
            super::OURS,
            vec![stockade, "load", url, "-c", "64", "-t", "1", "-d", &lasts, "--format", "json"],
            |output| in_json(output.lines().next()?, "/status_codes/200"),
        ),
        ("wrk", vec!["wrk", "-t1", "-c64", "-d", &lasts, url], wrk_requests),
        (
            "h2load",
            vec!["h2load", "--h1", "-t1", "-c64", "-D", count, url],
            crate::generators::h2load_requests,
        ),
        (
            "oha",
            vec!["oha", "--no-tui", "-c", "64", "-z", &lasts, "--output-format", "json", url],
            |output| in_json(output, "/statusCodeDistribution/200"),
        ),
        (
            "vegeta",
            vec![
                "sh",
                "-c",
                "echo \"GET $0\" | vegeta attack -rate 0 -max-workers 64 -connections 64 -duration $1 | vegeta report",
                url,
                &lasts,
            ],
            |output| number_after(output, "throughput]"),
        ),
        ("siege", vec!["siege", "-b", "-c", "64", "-t", &siege_lasts, "-j", url], |output| {
            number_after(output, "\"transactions\":")
        }),
    ];
    let generator = |(name, program, requests): (&'static str, Vec<&str>, _)| Generator {
        name,
        program: program.into_iter().map(str::to_owned).collect(),
        requests,
    };
    Ok(all.into_iter().map(generator).collect())
}

fn in_json(text: &str, pointer: &str) -> Option<f64> {
    serde_json::from_str::<serde_json::Value>(text).ok()?.pointer(pointer)?.as_f64()
}

/// The first number after `mark`.
fn number_after(output: &str, mark: &str) -> Option<f64> {
    output.split_once(mark)?.1.split(',').next()?.trim().parse().ok()
}
