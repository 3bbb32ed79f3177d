//! The figures of the ghosts of a cache in production.

use serde_json::{Value, json};
use stockade_cache::{GhostStats, ShadowStats};
use stockade_model::{
    outcome::Outcomes,
    registry::{Registry, ReportFormat},
    units::format_count,
};

use super::{capacity_text, percent, table::Table, text::paragraph};
use crate::Capacity;

/// Changes in the first line, at most.
const CHANGES_MAX: usize = 4;
/// Changes below this, in points, do not count.
const POINTS_MIN: f64 = 0.1;
/// With fewer requests in the sample since the start the figures are marked as uncertain.
const REQUESTS_FEW: u64 = 10_000;

/// The figures of one proxy.
#[derive(Clone, Debug)]
pub struct LiveShadow {
    /// Its admin API, as the user named it.
    pub source: String,
    /// All requests since the start.
    pub outcomes: Outcomes,
    /// The ghosts, the first of them with the configuration of the cache.
    pub shadow: ShadowStats,
}

/// Writes them in one format.
pub type RenderLive = fn(&LiveShadow) -> String;

/// Every format of the figures of ghosts.
pub static LIVE_FORMATS: Registry<ReportFormat<RenderLive>> = Registry::new(&[
    ReportFormat::new("text", "what other caches would give, to read", LiveShadow::text),
    ReportFormat::new("md", "the same in Markdown", LiveShadow::markdown),
    ReportFormat::new("json", "every figure", LiveShadow::json),
]);

impl LiveShadow {
    fn text(&self) -> String {
        let note = self.note().map(|note| format!("\n{}", paragraph(&note))).unwrap_or_default();
        let (answer, sample) = (paragraph(&self.answer()), paragraph(&self.sample()));
        format!("{answer}\n{sample}\n{}{note}", self.table().text())
    }

    fn markdown(&self) -> String {
        let note = self.note().map(|note| format!("\n{note}\n")).unwrap_or_default();
        format!("**{}**\n\n{}\n\n{}{note}", self.answer(), self.sample(), self.table().markdown())
    }

    fn json(&self) -> String {
        let ghost = |ghost: &GhostStats| {
            json!({
                "name": ghost.name,
                "policy": ghost.policy,
                "entries": ghost.entries_limit,
                "bytes": ghost.bytes_limit,
                "hit_ratio_change": ghost.hit_ratio_change,
                "loads_ratio": ghost.loads_ratio,
                "requests": ghost.hour.requests,
            })
        };
        let json: Value = json!({
            "hit_ratio_since_start": self.outcomes.hit_ratio(),
            "sampled_share": self.shadow.sampled_share,
            "keys": self.shadow.keys,
            "ghosts": self.shadow.ghosts.iter().map(ghost).collect::<Vec<_>>(),
        });
        format!("{json:#}\n")
    }

    fn others(&self) -> impl Iterator<Item = &GhostStats> {
        self.shadow.ghosts.iter().skip(1)
    }

    fn own(&self) -> Option<&GhostStats> {
        self.shadow.ghosts.first()
    }

    /// One line: the configuration, its hit ratio, and the largest changes, the best first.
    fn answer(&self) -> String {
        let Some(own) = self.own() else { return format!("{}: there are no ghosts", self.source) };
        let hit_ratio = self.outcomes.hit_ratio().map_or("no requests".to_owned(), |ratio| {
            format!("hit ratio {} since the start", percent(ratio))
        });
        let mut changes: Vec<(&str, f64)> = self
            .others()
            .filter_map(|ghost| Some((ghost.name.as_str(), 100.0 * ghost.hit_ratio_change?)))
            .filter(|(_, points)| points.abs() >= POINTS_MIN)
            .collect();
        changes.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
        changes.truncate(CHANGES_MAX);
        changes.sort_by(|a, b| b.1.total_cmp(&a.1));
        let changes: Vec<String> = changes
            .into_iter()
            .map(|(name, points)| {
                let verb = if points > 0.0 { "would give" } else { "would cost" };
                format!("{name} {verb} {:.1} points", points.abs())
            })
            .collect();
        let changes = if changes.is_empty() {
            format!("no ghost differs by {POINTS_MIN} points")
        } else {
            changes.join(", ")
        };
        format!("{}, {}: {hit_ratio}; {changes}", limit_text(own), own.policy)
    }

    fn sample(&self) -> String {
        let requests = self.own().map_or(0, |own| own.hour.requests);
        format!(
            "{}: about {} requests of the last hour, simulated over {} of the keys. Points are differences of the hit ratio.",
            self.source,
            format_count(requests),
            percent(self.shadow.sampled_share),
        )
    }

    fn table(&self) -> Table {
        let or_none = |figure: Option<String>| figure.unwrap_or_else(|| "-".to_owned());
        let row = |ghost: &GhostStats| {
            vec![
                ghost.name.clone(),
                limit_text(ghost),
                ghost.policy.clone(),
                or_none(ghost.hit_ratio_change.map(|change| format!("{:+.1}", 100.0 * change))),
                or_none(ghost.loads_ratio.map(|times| format!("{times:.2}"))),
            ]
        };
        let header = ["ghost", "limit", "policy", "points", "loads, times"];
        Table {
            header: header.map(str::to_owned).to_vec(),
            rows: self.shadow.ghosts.iter().map(row).collect(),
        }
    }

    /// That the figures are not reliable yet.
    fn note(&self) -> Option<String> {
        self.own()?;
        let requests = self.shadow.sampled_requests;
        (requests < REQUESTS_FEW).then(|| {
            format!(
                "The sample has {} requests so far: ask again after {} for figures to rely on.",
                format_count(requests),
                format_count(REQUESTS_FEW)
            )
        })
    }
}

fn limit_text(ghost: &GhostStats) -> String {
    let bytes = ghost.bytes_limit.map(Capacity::Bytes);
    let limits: Vec<String> =
        bytes.into_iter().chain(ghost.entries_limit.map(Capacity::Entries)).map(capacity_text).collect();
    limits.join(", ")
}

#[cfg(test)]
mod tests {
    use stockade_cache::GhostCounts;

    use super::*;

    fn ghost(name: &str, bytes: u64, change: f64, loads: f64) -> GhostStats {
        GhostStats {
            name: name.to_owned(),
            policy: "sieve".to_owned(),
            bytes_limit: Some(bytes << 20),
            hit_ratio_change: Some(change),
            loads_ratio: Some(loads),
            hour: GhostCounts { requests: 120_000, ..GhostCounts::default() },
            ..GhostStats::default()
        }
    }

    fn example() -> LiveShadow {
        LiveShadow {
            source: "http://127.0.0.1:9180".to_owned(),
            outcomes: Outcomes { hit: 872, miss: 128, ..Outcomes::default() },
            shadow: ShadowStats {
                sampled_share: 0.125,
                keys: 9_321,
                sampled_requests: 15_000,
                ghosts: vec![
                    ghost("as configured", 256, 0.0, 1.0),
                    ghost("0.5x size", 128, -0.041, 1.32),
                    ghost("2x size", 512, 0.021, 0.84),
                    ghost("lru", 256, 0.0002, 1.0),
                ],
                ..ShadowStats::default()
            },
        }
    }

    #[test]
    fn the_answer_is_the_first_line() {
        assert_eq!(
            example().text(),
            "256MiB, sieve: hit ratio 87.2 % since the start; 2x size would give 2.1 points,\n\
             0.5x size would cost 4.1 points\n\
             \n\
             http://127.0.0.1:9180: about 120,000 requests of the last hour, simulated over\n\
             12.5 % of the keys. Points are differences of the hit ratio.\n\
             \n\
             ghost           limit  policy  points  loads, times\n\
             as configured  256MiB   sieve    +0.0          1.00\n\
             0.5x size      128MiB   sieve    -4.1          1.32\n\
             2x size        512MiB   sieve    +2.1          0.84\n\
             lru            256MiB   sieve    +0.0          1.00\n"
        );
    }

    #[test]
    fn few_requests_are_named() {
        let mut few = example();
        few.shadow.sampled_requests = 12;
        assert!(
            few.text().ends_with(
                "sample has 12 requests so far: ask again after 10,000 for figures to rely\non.\n"
            )
        );
        few.outcomes = Outcomes::default();
        few.shadow.ghosts[1].hit_ratio_change = None;
        assert!(few.markdown().contains("| 0.5x size | 128MiB | sieve | - | 1.32 |"), "{}", few.markdown());
        few.shadow.ghosts.clear();
        assert!(few.text().starts_with("http://127.0.0.1:9180: there are no ghosts"));
    }

    #[test]
    fn json_has_the_change_of_each_ghost() {
        let json: Value = serde_json::from_str(&example().json()).unwrap();
        assert_eq!(json["ghosts"][0]["name"], "as configured");
        assert_eq!(json["ghosts"][2]["name"], "2x size");
        assert_eq!(json["ghosts"][2]["hit_ratio_change"].as_f64(), Some(0.021));
    }
}
