//! Measurements over HTTP in the formats of the programs that ran the published tests: Vegeta and siege.

use std::{fmt::Write, time::Duration};

use crate::record::{HttpFigures, Record};

use super::{siege::SiegeReport, vegeta::VegetaReport};
use crate::metrics::{Evidence, Metric, Results};

/// `vegeta report` of every measurement.
#[must_use]
pub fn vegeta(record: &Record, results: &Results) -> String {
    all(record, results, vegeta_text)
}

/// The summary of siege, of every measurement.
#[must_use]
pub fn siege(record: &Record, results: &Results) -> String {
    all(record, results, siege_text)
}

fn all(record: &Record, results: &Results, text: fn(&Evidence, &HttpFigures) -> String) -> String {
    let mut all = String::new();
    for evidence in results.runs() {
        if let Some(http) = &evidence.run.http {
            let _ = writeln!(all, "# {}\n{}", id(record, evidence), text(evidence, http).trim_end());
            all.push('\n');
        }
    }
    if all.is_empty() { "nothing was measured over HTTP\n".to_owned() } else { all }
}

/// Identifies a measurement: `2026-01-31T10:00:00Z 100k/limited, repeat 1, scaled by 0.1`.
fn id(record: &Record, evidence: &Evidence) -> String {
    let run = &evidence.run;
    let test = if run.test.is_empty() { String::new() } else { format!("{}/", run.test) };
    let scale = if record.is_scaled() { format!(", scaled by {}", record.scale) } else { String::new() };
    format!("{} {test}{}, repeat {}{scale}", record.started_at, run.arm, run.repeat)
}

/// The first repeat of each arm of a test, in the format of the published test: siege's for connections, Vegeta's for
/// rates.
pub(super) fn texts(record: &Record, results: &Results, test: &str) -> Vec<(String, String)> {
    let firsts = record.arms.iter().filter_map(|arm| results.repeats(test, &arm.name).first().copied());
    let texts = firsts.filter_map(|evidence| {
        let http = evidence.run.http.as_ref()?;
        let (program, text) = match http.users {
            Some(_) => ("siege", siege_text(evidence, http)),
            None => ("Vegeta", vegeta_text(evidence, http)),
        };
        Some((format!("{}, in the format of {program}", id(record, evidence)), text.trim_end().to_owned()))
    });
    texts.collect()
}

fn vegeta_text(evidence: &Evidence, http: &HttpFigures) -> String {
    let run = &evidence.run;
    let (requests, failed) = (run.outcomes.requests(), run.outcomes.error);
    let (attack, wait) = (time(http.attack_ms), time(http.wait_ms));
    let per = |time: Duration, count: u64| {
        if time.is_zero() { count as f64 } else { count as f64 / time.as_secs_f64() }
    };
    let by_request = |count: u64| if requests == 0 { 0.0 } else { count as f64 / requests as f64 };
    let text = VegetaReport {
        requests,
        rates: [per(attack, requests), per(attack + wait, requests - failed)],
        attack,
        wait,
        latencies: ["min", "mean", "p50", "p90", "p95", "p99", "max"].map(|stat| response(evidence, stat)),
        bytes_in: (run.bytes_in, by_request(run.bytes_in)),
        bytes_out: (0, 0.0),
        success: by_request(requests - failed),
        status_codes: http.status_codes.clone(),
        errors: run.errors.keys().cloned().collect(),
    };
    text.to_string()
}

fn siege_text(evidence: &Evidence, http: &HttpFigures) -> String {
    let answered = http.status_codes.iter().filter(|(status, _)| **status != 0).map(|(_, count)| count).sum();
    let text = SiegeReport {
        status_codes: &http.status_codes,
        elapsed: time(http.attack_ms + http.wait_ms),
        wire_bytes_in: http.wire_bytes_in,
        answered,
        mean: response(evidence, "mean"),
        longest: response(evidence, "max"),
        shortest: response(evidence, "min"),
    };
    text.to_string()
}

/// Of the answered requests.
fn response(evidence: &Evidence, stat: &str) -> Duration {
    let metric = Metric::named(&format!("response.{stat}"));
    time(metric.and_then(|metric| evidence.figure(metric, None)).unwrap_or_default())
}

fn time(milliseconds: f64) -> Duration {
    Duration::from_secs_f64(milliseconds / 1e3)
}
