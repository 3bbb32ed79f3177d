//! Whether Stockade does at least as well as the best of nginx and Varnish: pure.

use crate::{http::status, run::Outcome, tap::Exchange};

/// Exchanges of a complaint, at most.
const EXCHANGES_MAX: usize = 4;

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

/// The row and the cache of a complaint.
pub fn title(complaint: &str) -> &str {
    complaint.split_once(": ").map_or(complaint, |(title, _)| title)
}

/// What is worse. Loads are compared with those of peers that answer as well, for the same number of requests.
pub fn reasons(ours: &Outcome, peers: &[&Outcome]) -> Vec<String> {
    let mut reasons = Vec::new();
    if ours.tally.foreign > 0 {
        reasons.push(format!("{} answers of another user", ours.tally.foreign));
    }
    let failed = peers.iter().map(|peer| peer.tally.failed).min().unwrap_or(0);
    if ours.tally.failed.saturating_sub(excused_posts(ours)) > failed {
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
    // Without validators each load is whole.
    let is_revalidated = |peer: &Outcome| peer.not_modified > 0;
    let full = |peer: &Outcome| if is_revalidated(peer) { peer.full() } else { peer.full().max(necessary) };
    let full = comparable.iter().map(|peer| full(peer)).min();
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

/// Failures that are the origin's: a POST that crosses the close of its connection may have been processed, and no cache may send it again
/// (RFC 9110, 9.2.2). Two of a row, and one request in fifty while a stack reloads: how many do is chance.
fn excused_posts(outcome: &Outcome) -> u32 {
    let is_crossed = |one: &&Exchange| one.response.is_none() && one.request.starts_with("POST ");
    let posts = u32::try_from(outcome.exchanges.iter().filter(is_crossed).count()).unwrap_or(u32::MAX);
    // Over HTTP/2 there is no tap, and Apache answers some requests with 503 while it reloads.
    if outcome.row.needs_reload { outcome.tally.sent / 50 } else { posts.min(2) }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        caches::Cache,
        client::Tally,
        rows::{ROWS, Row},
    };

    fn row(name: &str) -> Row {
        ROWS.into_iter().find(|row| row.name == name).expect("a row has this name")
    }

    /// Requests, foreign answers, failures, loads, and 304s among these.
    fn outcome(cache: Cache, row: Row, figures: [u32; 5]) -> Outcome {
        let [sent, foreign, failed, loads, not_modified] = figures;
        let tally = Tally { sent, failed, foreign, ..Tally::default() };
        Outcome { cache, row, tally, loads, not_modified, exchanges: Vec::new() }
    }

    #[track_caller]
    fn assert_reasons(name: &str, ours: [u32; 5], nginx: [u32; 5], varnish: [u32; 5], expected: &[&str]) {
        let row = row(name);
        let peers = [outcome(Cache::Nginx, row, nginx), outcome(Cache::Varnish, row, varnish)];
        let reasons = reasons(&outcome(Cache::Stockade, row, ours), &peers.iter().collect::<Vec<_>>());
        assert_eq!(reasons, expected);
    }

    #[test]
    fn ours_is_compared_with_the_best_that_answers_as_well() {
        let (good, none): (_, &[&str]) = ([10, 0, 0, 1, 0], &[]);
        assert_reasons("hits", good, good, [10, 0, 0, 10, 0], none);
        assert_reasons(
            "hits",
            [10, 0, 0, 2, 0],
            good,
            [10, 0, 0, 10, 0],
            &["2 loads, where the best has 1", "2 whole answers of the origin, where the best has 1"],
        );
        // Few loads are not a merit of a cache that fails, or gives away what belongs to others.
        assert_reasons("hits", [10, 0, 0, 5, 0], [10, 0, 1, 1, 0], [10, 9, 0, 1, 0], none);
        assert_reasons(
            "hits",
            [10, 1, 2, 1, 0],
            [10, 0, 1, 1, 0],
            [10, 0, 3, 1, 0],
            &["1 answers of another user", "2 failures, where the best has 1"],
        );
        // As many requests as time allowed.
        assert_reasons("reload", [300, 0, 0, 300, 0], [200, 0, 0, 200, 0], [100, 0, 0, 100, 0], none);
    }

    #[test]
    fn a_304_followed_by_a_200_is_a_finding_and_a_necessary_load_is_not() {
        assert_reasons(
            "file_gzip",
            [4, 0, 0, 7, 3],
            [4, 0, 0, 4, 3],
            [4, 0, 0, 4, 3],
            &["7 loads, where the best has 4", "4 whole answers of the origin, where the best has 1"],
        );
        // nginx may keep a page for a second more than its lifetime.
        assert_reasons("file_gzip", [4, 0, 0, 4, 3], [4, 0, 0, 3, 2], [4, 0, 0, 4, 3], &[]);
        assert_reasons("article", [4, 0, 0, 4, 0], [4, 0, 0, 3, 0], [4, 0, 0, 4, 0], &[]);
    }

    #[test]
    fn lost_post_is_excused_within_its_bound() {
        let findings = |name: &str, method: &str, crossed: usize, [sent, failed]: [u32; 2]| {
            let row = row(name);
            let lost = || Exchange { request: format!("{method} /echo HTTP/1.1\n"), response: None };
            let mut ours = outcome(Cache::Stockade, row, [sent, 0, failed, sent, 0]);
            ours.exchanges = (0..crossed).map(|_| lost()).collect();
            reasons(&ours, &[&outcome(Cache::Nginx, row, [sent, 0, 0, sent, 0])]).len()
        };
        assert_eq!(findings("bodies", "POST", 2, [20, 2]), 0);
        assert_eq!(findings("bodies", "POST", 2, [20, 3]), 1, "one more than were crossed");
        assert_eq!(findings("bodies", "POST", 3, [20, 3]), 1, "too many for chance");
        assert_eq!(findings("bodies", "PUT", 1, [20, 1]), 1, "it may be sent again");
        assert_eq!(findings("reload", "POST", 4, [200, 4]), 0);
        assert_eq!(findings("reload", "POST", 5, [200, 5]), 1);
    }

    #[test]
    fn loads_of_what_is_not_comparable_do_not_count() {
        assert_reasons("gzip", [8, 0, 0, 2, 0], [8, 0, 0, 2, 0], [8, 0, 0, 1, 0], &[]);
        assert_reasons("head", [5, 0, 0, 2, 0], [5, 0, 0, 1, 0], [5, 0, 0, 1, 0], &[]);
    }

    #[test]
    fn slow_answers_are_bounded_unless_the_peers_are_as_slow() {
        let row = row("slow_6s");
        let with = |cache, seconds| {
            let mut outcome = outcome(cache, row, [3, 0, 0, 1, 0]);
            outcome.tally.longest = Duration::from_secs(seconds);
            outcome
        };
        for (ours, theirs, findings) in [(12, 6, 0), (14, 6, 1), (14, 10, 0)] {
            let reasons = reasons(&with(Cache::Stockade, ours), &[&with(Cache::Varnish, theirs)]);
            assert_eq!(reasons.len(), findings, "{ours} s: {reasons:?}");
        }
    }
}
