//! The same raw requests to several caching proxies, and the behaviour of each.
//!
//! [`cases`] has the bytes, [`judge`] the rule. A [`case::Case`] runs on a proxy ([`peers`]) in front of an
//! [`origin`] that records every byte; [`observation`] answers its questions, and [`report`] lists the disagreements.
//! [`smuggling`] has cases before [`real_origins`].

use std::{error::Error, path::Path, thread};

pub mod case;
pub mod cases;
pub mod client;
pub mod judge;
pub mod observation;
pub mod origin;
pub mod peers;
pub mod real_origins;
pub mod report;
pub mod smuggling;
pub mod table;
pub mod wire;

use self::{
    case::Case,
    observation::{Observation, observe},
    origin::Origin,
    peers::{PEERS, RunningPeer},
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// All observations.
pub struct Findings {
    /// Ours is the first.
    pub peers: Vec<RunningPeer>,
    /// The names of proxies that are not installed.
    pub missing: Vec<&'static str>,
    /// For each case, one observation of each of `peers`.
    pub observations: Vec<Vec<Observation>>,
}

/// Runs all cases on all proxies: the proxies at the same time, the cases of each in turn.
pub fn run(cases: &[Case], folder: &Path) -> Result<Findings> {
    let (mut peers, mut missing) = (Vec::new(), Vec::new());
    for peer in &PEERS {
        match peer.start(folder).map_err(|error| format!("{}: {error}", peer.name))? {
            Some(running) => peers.push(running),
            None => missing.push(peer.name),
        }
    }
    let columns = thread::scope(|scope| {
        let runs: Vec<_> = peers.iter().map(|peer| scope.spawn(|| run_one(peer, cases))).collect();
        let join =
            |run: thread::ScopedJoinHandle<'_, _>| run.join().map_err(|_| "a run has panicked".to_owned());
        runs.into_iter().map(|run| join(run)?).collect::<std::result::Result<Vec<_>, String>>()
    })?;
    let row = |case: usize| columns.iter().map(|column: &Vec<Observation>| column[case].clone()).collect();
    let observations = (0..cases.len()).map(row).collect();
    Ok(Findings { peers, missing, observations })
}

fn run_one(peer: &RunningPeer, cases: &[Case]) -> std::result::Result<Vec<Observation>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", peer.name);
    let origin = Origin::start(peer.origin).map_err(failed)?;
    let observed = cases.iter().enumerate().map(|(number, case)| {
        observe(peer.address, &origin, case, &format!("case{number:04}")).map_err(failed)
    });
    observed.collect()
}
