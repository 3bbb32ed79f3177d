//! Probes: single requests apart from the load, with an expected status. They are not counted.

use std::{
    thread::{self, JoinHandle},
    time::Duration,
};

use stockade_http::tls::Trust;
use stockade_model::{
    seed::Seed,
    units::{format_duration, milliseconds, stretched},
};
use stockade_record::record;

use super::fetch::{TimedReply, fetch_timed};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreflightProbe {
    /// Time after the load's start; `None`: before the load.
    pub at: Option<Duration>,
    pub path: String,
    /// Adds a unique query parameter to the URL, so that no cache has it.
    pub cache_bust: bool,
    /// The expected status.
    pub status: u16,
}

/// A probe whose response is pending.
pub(super) struct PendingProbe {
    probe: PreflightProbe,
    answer: JoinHandle<TimedReply>,
}

impl PreflightProbe {
    /// Scales its time with the run.
    pub fn scale_duration(&mut self, factor: f64) {
        self.at = self.at.map(|at| stretched(at, factor));
    }

    /// Sends it on a thread of its own.
    pub(super) fn send(&self, url: &str, seed: Seed, trust: &Trust) -> PendingProbe {
        let mut url = format!("{url}{}", self.path);
        if self.cache_bust {
            let joint = if self.path.contains('?') { '&' } else { '?' };
            url = format!("{url}{joint}stockade-probe={:016x}", seed.0);
        }
        let thread = thread::Builder::new().name("probe".to_owned());
        let trust = trust.clone();
        let answer =
            thread.spawn(move || fetch_timed(&url, &trust)).expect("a machine that runs a load has threads");
        PendingProbe { probe: self.clone(), answer }
    }
}

impl PendingProbe {
    pub(super) fn wait(self) -> record::ProbeFigures {
        let Self { probe, answer } = self;
        let (status, took, failed) = match answer.join() {
            Ok(TimedReply { answer: Ok((status, _)), took }) => (Some(status), took, None),
            Ok(TimedReply { answer: Err(error), took }) => (None, took, Some(error)),
            Err(_) => (None, Duration::ZERO, Some("its thread panicked".to_owned())),
        };
        record::ProbeFigures {
            at_ms: probe.at.map(milliseconds),
            path: probe.path,
            expected: probe.status,
            status,
            failed,
            took_ms: milliseconds(took),
        }
    }
}

/// Why the probe makes the run invalid; `None`: the status was as expected.
pub(super) fn mismatch(probe: &record::ProbeFigures) -> Option<String> {
    if probe.status == Some(probe.expected) {
        return None;
    }
    let when = match probe.at_ms {
        Some(at) => format!("at {}", format_duration(Duration::from_secs_f64(at / 1e3))),
        None => "before the load".to_owned(),
    };
    let what = match (probe.status, &probe.failed) {
        (Some(status), _) => format!("was answered with {status}"),
        (None, failed) => format!("was not answered: {}", failed.as_deref().unwrap_or_default()),
    };
    Some(format!("the probe of {} {when} {what}, and not with {}", probe.path, probe.expected))
}
