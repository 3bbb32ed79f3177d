//! Requests that are asked apart from the load, and not counted with it: whether all is as it is meant to be.

use std::{
    thread::{self, JoinHandle},
    time::Duration,
};

use stockade_model::{
    record,
    seed::Seed,
    units::{format_duration, milliseconds, stretched},
};

use super::ask::{Asked, ask};

/// One request, and how it has to be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// When, counted from the load's start; `None`: before it.
    pub at: Option<Duration>,
    /// For what.
    pub path: String,
    /// Its URL is new, so that no cache has it.
    pub cache_bust: bool,
    /// What has to come.
    pub status: u16,
}

/// A probe that has been sent.
pub(super) struct Sent {
    probe: Probe,
    answer: JoinHandle<Asked>,
}

impl Probe {
    /// The same of a run that takes so many times as long.
    pub fn stretch(&mut self, factor: f64) {
        self.at = self.at.map(|at| stretched(at, factor));
    }

    /// Sends it, and waits for nothing.
    pub(super) fn send(&self, url: &str, seed: Seed) -> Sent {
        let mut url = format!("{url}{}", self.path);
        if self.cache_bust {
            let joint = if self.path.contains('?') { '&' } else { '?' };
            url = format!("{url}{joint}stockade-probe={:016x}", seed.0);
        }
        Sent { probe: self.clone(), answer: thread::spawn(move || ask(&url)) }
    }
}

impl Sent {
    /// What has come.
    pub(super) fn answered(self) -> record::Probe {
        let Self { probe, answer } = self;
        let (status, took, failed) = match answer.join() {
            Ok(Asked { answer: Ok((status, _)), took }) => (Some(status), took, None),
            Ok(Asked { answer: Err(error), took }) => (None, took, Some(error.to_string())),
            Err(_) => (None, Duration::ZERO, Some("it was lost".to_owned())),
        };
        record::Probe {
            at_ms: probe.at.map(milliseconds),
            path: probe.path,
            expected: probe.status,
            status,
            failed,
            took_ms: milliseconds(took),
        }
    }
}

/// Why a run is not what it was meant to be, where a probe says so.
pub(super) fn complaint(probe: &record::Probe) -> Option<String> {
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
