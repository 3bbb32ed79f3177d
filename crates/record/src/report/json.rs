//! A run in the shape of the JSON contract.

use std::collections::BTreeMap;

use crate::record::{AgentReport, Record, Role, Verdict};
use serde::Serialize;

use crate::metrics::{ArmFigures, Results};

#[derive(Serialize)]
struct RecordJson<'a> {
    experiment: &'a str,
    verdict: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<&'a str>,
    interrupted: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    in_progress: bool,
    /// The value of `--scale`; absent for the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    scale: Option<f64>,
    hypotheses: &'a [crate::record::Hypothesis],
    arms: BTreeMap<String, ArmFigures>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    agents: Vec<AgentReport>,
    /// The agents that ran servers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    servers: BTreeMap<Role, &'a str>,
}

/// One object on one line.
#[must_use]
pub fn render(record: &Record, results: &Results) -> String {
    report(record, results, None)
}

/// The same with the directory of the record.
#[must_use]
#[expect(clippy::missing_panics_doc, reason = "figures are always JSON")]
pub fn report(record: &Record, results: &Results, directory: Option<&str>) -> String {
    let mut arms = BTreeMap::new();
    for test in &record.tests {
        for arm in &record.arms {
            if let Some(figures) = ArmFigures::of(results, test, &arm.name) {
                let name = if test.is_empty() { arm.name.clone() } else { format!("{test}/{}", arm.name) };
                arms.insert(name, figures);
            }
        }
    }
    let report = RecordJson {
        experiment: &record.experiment,
        verdict: record.verdict,
        record: directory,
        interrupted: record.interrupted && !record.in_progress,
        in_progress: record.in_progress,
        scale: record.is_scaled().then_some(record.scale),
        hypotheses: &record.hypotheses,
        arms,
        agents: AgentReport::of_all(record.agents()),
        servers: record.servers(),
    };
    serde_json::to_string(&report).expect("figures are JSON") + "\n"
}
