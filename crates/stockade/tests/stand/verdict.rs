//! Whether Stockade does at least as well as the best of nginx and Varnish: pure.

use crate::{http::status, run::Outcome};

/// Exchanges of a complaint, at most.
const EXCHANGES_MAX: usize = 8;

/// Every row in which Stockade does worse, with the heads.
pub fn complaints(outcomes: &[Outcome]) -> Vec<String> {
    let ours = outcomes.iter().filter(|outcome| outcome.cache.is_ours());
    ours.filter_map(|ours| {
        let peers: Vec<_> = outcomes
            .iter()
            .filter(|other| other.row.name == ours.row.name && !other.cache.is_ours())
            .collect();
        let reasons = reasons(ours, &peers);
        (!reasons.is_empty()).then(|| complaint(ours, &peers, &reasons))
    })
    .collect()
}

/// What is worse. Loads are compared with those of peers that answer as well, for the same number of requests.
pub fn reasons(ours: &Outcome, peers: &[&Outcome]) -> Vec<String> {
    let mut reasons = Vec::new();
    if ours.tally.foreign > 0 {
        reasons.push(format!("{} answers of another user", ours.tally.foreign));
    }
    let failed = peers.iter().map(|peer| peer.tally.failed).min().unwrap_or(0);
    if ours.tally.failed > failed {
        reasons.push(format!("{} failures, where the best has {failed}", ours.tally.failed));
    }
    let is_as_good = |peer: &&&Outcome| {
        let (excluded, _) = ours.row.incomparable.unwrap_or_default();
        !excluded.contains(&peer.cache)
            && peer.tally.foreign == 0
            && peer.tally.failed <= ours.tally.failed
            && peer.tally.sent == ours.tally.sent
    };
    let comparable: Vec<_> = peers.iter().filter(is_as_good).collect();
    let necessary = if ours.row.is_expired_each_time { ours.tally.sent } else { 0 };
    let best_loads = comparable.iter().map(|peer| peer.loads.max(necessary)).min();
    if let Some(loads) = best_loads.filter(|&loads| ours.loads > loads) {
        reasons.push(format!("{} loads, where the best has {loads}", ours.loads));
    }
    let full = comparable.iter().map(|peer| peer.full()).min();
    if let Some(full) = full.filter(|&full| ours.full() > full) {
        reasons.push(format!("{} whole answers of the origin, where the best has {full}", ours.full()));
    }
    let quickest = peers.iter().map(|peer| peer.tally.longest).min().unwrap_or_default();
    if ours.tally.longest > ours.row.within.max(quickest * 3 / 2) {
        reasons.push(format!(
            "an answer after {:.1?}, which must take at most {:?}",
            ours.tally.longest, ours.row.within
        ));
    }
    reasons
}

impl Outcome {
    /// Loads that were not answered by a 304.
    pub fn full(&self) -> u32 {
        self.loads - self.not_modified
    }
}

fn complaint(ours: &Outcome, peers: &[&Outcome], reasons: &[String]) -> String {
    let mut text =
        format!("## {}, {}: {}\n\n{}\n", ours.row.name, ours.cache.name(), reasons.join("; "), ours.row.does);
    for outcome in [ours].into_iter().chain(peers.iter().copied()) {
        let Outcome { cache, tally, loads, not_modified, .. } = outcome;
        text += &format!(
            "- {}: {} requests, {loads} loads, {not_modified} of them 304; {} foreign, {} failed, longest {:.2?}\n",
            cache.name(),
            tally.sent,
            tally.foreign,
            tally.failed,
            tally.longest
        );
    }
    for note in &ours.tally.notes {
        text += &format!("\n```\n{}\n```\n", note.replace("\r\n", "\n").trim_end());
    }
    // Those without an answer first.
    let mut exchanges: Vec<_> = ours.exchanges.iter().collect();
    exchanges.sort_by_key(|one| one.response.is_some());
    let shown = if ours.tally.foreign > 0 { 0 } else { EXCHANGES_MAX };
    for one in exchanges.iter().take(shown) {
        let response = one.response.as_deref().unwrap_or("(no response)\n");
        text += &format!("\n```\n{}\n{response}```\n", one.request).replace("\r\n", "\n");
    }
    let statuses = ours.exchanges.iter().map(|one| one.response.as_deref().map_or(0, status).to_string());
    text += &format!("\nstatuses of the origin: {}\n", statuses.collect::<Vec<_>>().join(" "));
    text
}
