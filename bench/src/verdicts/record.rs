//! The verdicts in `record.json`, and the changes that `stockade compare` prints.

use std::{fs, path::Path};

use serde_json::Value;

use super::Result;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Supported,
    Refuted,
    Inconclusive,
    Invalid,
}

impl Verdict {
    pub const ALL: [Self; 4] = [Self::Supported, Self::Refuted, Self::Inconclusive, Self::Invalid];

    fn of(value: &Value) -> Result<Self> {
        let name = value.as_str().ok_or("a verdict is not text")?;
        let named = Self::ALL.into_iter().find(|verdict| verdict.name() == name);
        named.ok_or_else(|| format!("the verdict {name} is unknown").into())
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Supported => "supported",
            Self::Refuted => "refuted",
            Self::Inconclusive => "inconclusive",
            Self::Invalid => "invalid",
        }
    }
}

/// The verdict on a claim with one comparison.
#[derive(Clone, Debug)]
pub struct Judged {
    pub claim: String,
    pub verdict: Verdict,
    pub reason: String,
    /// Of left / right, at the level of the record; `None`: no figure.
    pub interval: Option<(f64, f64)>,
}

/// The verdicts of a record, in the order of the experiment's claims.
pub fn verdicts(folder: &Path) -> Result<Vec<Judged>> {
    let record: Value = serde_json::from_str(&fs::read_to_string(folder.join("record.json"))?)?;
    let hypotheses = record["hypotheses"].as_array().ok_or("a record without hypotheses")?;
    let judged = |hypothesis: &Value| {
        let expectation = &hypothesis["expect"][0];
        let effect = &expectation["effect"];
        Ok(Judged {
            claim: expectation["expr"].as_str().unwrap_or_default().to_owned(),
            verdict: Verdict::of(&expectation["verdict"])?,
            reason: expectation["reason"].as_str().unwrap_or_default().to_owned(),
            interval: effect["low"].as_f64().zip(effect["high"].as_f64()),
        })
    };
    hypotheses.iter().map(judged).collect()
}

/// A metric in the output of `stockade compare --format json`.
#[derive(Clone, Debug)]
pub struct Compared {
    pub metric: String,
    /// `worse`, `better`, `same` or `unknown`.
    pub verdict: String,
    /// after / before - 1; `None`: one of them is 0.
    pub change: Option<f64>,
    pub interval: Option<(f64, f64)>,
}

pub fn changes(comparison: &str) -> Result<Vec<Compared>> {
    let comparison: Value = serde_json::from_str(comparison)?;
    let metrics = comparison["metrics"].as_array().ok_or("a comparison without metrics")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let compared = |metric: &Value| Compared {
        metric: text(&metric["metric"]),
        verdict: text(&metric["verdict"]),
        change: metric["change"].as_f64(),
        interval: metric["interval"][0].as_f64().zip(metric["interval"][1].as_f64()),
    };
    Ok(metrics.iter().map(compared).collect())
}
