//! The generators of a load that other machines have sent.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use stockade_model::units::{format_count, format_duration};

use crate::histogram::{Distribution, Histogram};

/// A generator on another machine, and its part of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentFigures {
    pub name: String,
    /// The measured requests that ended.
    pub requests: u64,
    /// `None`: no reading of its clock arrived.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clock: Option<AgentClockFigures>,
    /// The mean processor time of its sending threads while they sent; 1.0 is one core.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu: Option<f64>,
    /// The share of its processor time that its host gave to other machines, if known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub steal: Option<f64>,
    pub send_lag: Histogram,
    /// Moves of its share.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub moves: Vec<ShareMoveFigures>,
}

/// A move of the share of a generator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShareMoveFigures {
    /// Seconds since the start of the load, warm-up included.
    pub at_s: f64,
    /// The part of all requests from then on.
    pub share: f64,
}

/// The clock of a generator on another machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentClockFigures {
    /// By how much it was ahead of the coordinator's at the start of the load.
    pub offset_ms: f64,
    /// By how many parts per million it is fast. `None`: the load was too short to tell.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub drift_ppm: Option<f64>,
    /// The bound on the error of the offset.
    pub uncertainty_ms: f64,
}

/// An agent over all its loads, in the shape of the JSON contract.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AgentReport {
    pub name: String,
    pub requests: u64,
    /// Of the load for which it is known least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<AgentClockFigures>,
    /// The mean over its loads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// The most of any load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steal: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_lag: Option<Distribution>,
    /// Of all its loads, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<ShareMoveFigures>,
}

impl AgentReport {
    /// A report for each name, in the order of their first loads.
    pub fn of_all<'a>(figures: impl IntoIterator<Item = &'a AgentFigures>) -> Vec<Self> {
        let mut by_name: Vec<Vec<&AgentFigures>> = Vec::new();
        for figures in figures {
            match by_name.iter_mut().find(|of| of[0].name == figures.name) {
                Some(of) => of.push(figures),
                None => by_name.push(vec![figures]),
            }
        }
        by_name.iter().map(|of| Self::of(of)).collect()
    }

    /// Of one agent, with at least one load.
    fn of(figures: &[&AgentFigures]) -> Self {
        let mut send_lag = Histogram::new();
        figures.iter().for_each(|of| send_lag.merge(&of.send_lag));
        let cpus: Vec<f64> = figures.iter().filter_map(|of| of.cpu).collect();
        let uncertainty = |clock: &AgentClockFigures| clock.uncertainty_ms;
        Self {
            name: figures[0].name.clone(),
            requests: figures.iter().map(|of| of.requests).sum(),
            clock: figures
                .iter()
                .filter_map(|of| of.clock)
                .max_by(|a, b| uncertainty(a).total_cmp(&uncertainty(b))),
            cpu: (!cpus.is_empty()).then(|| cpus.iter().sum::<f64>() / cpus.len() as f64),
            steal: figures.iter().filter_map(|of| of.steal).reduce(f64::max),
            send_lag: Distribution::of(&send_lag, None),
            moves: figures.iter().flat_map(|of| of.moves.iter().copied()).collect(),
        }
    }
}

/// `web-1: 6,375 requests, send lag p99 63.8us, 0.02 cores, clock +12.5ms (known to 80us)`
impl fmt::Display for AgentReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let duration = |ms: f64| format_duration(Duration::from_secs_f64(ms.max(0.0) / 1e3));
        let plural = if self.requests == 1 { "" } else { "s" };
        write!(f, "{}: {} request{plural}", self.name, format_count(self.requests))?;
        if let Some(send_lag) = self.send_lag {
            write!(f, ", send lag p99 {}", duration(send_lag.p99_ms))?;
        }
        if let Some(cpu) = self.cpu {
            write!(f, ", {cpu:.2} cores")?;
        }
        if let Some(AgentClockFigures { offset_ms, uncertainty_ms, .. }) = self.clock {
            let sign = if offset_ms < 0.0 { '-' } else { '+' };
            write!(f, ", clock {sign}{} (known to {})", duration(offset_ms.abs()), duration(uncertainty_ms))?;
        }
        for ShareMoveFigures { at_s, share } in &self.moves {
            write!(f, ", {:.0} % of the load from {at_s:.0} s on", share * 100.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_of_an_agent_are_one_report() {
        let figures = |name: &str, requests, ms, uncertainty_ms| AgentFigures {
            name: name.to_owned(),
            requests,
            clock: Some(AgentClockFigures { offset_ms: 5.0, drift_ppm: None, uncertainty_ms }),
            cpu: Some(requests as f64),
            steal: None,
            send_lag: [Duration::from_millis(ms)].into_iter().collect(),
            moves: Vec::new(),
        };
        let all = [figures("b", 1, 2, 0.1), figures("a", 10, 3, 0.1), figures("b", 3, 4, 0.3)];
        let reports = AgentReport::of_all(&all);
        assert_eq!(
            reports.iter().map(|of| (of.name.as_str(), of.requests)).collect::<Vec<_>>(),
            [("b", 4), ("a", 10)]
        );
        assert_eq!((reports[0].cpu, reports[0].clock.unwrap().uncertainty_ms), (Some(2.0), 0.3));
        assert!(reports[0].send_lag.unwrap().max_ms > 3.9);
        assert_eq!(
            reports[0].to_string(),
            "b: 4 requests, send lag p99 4ms, 2.00 cores, clock +5ms (known to 300us)"
        );
    }
}
