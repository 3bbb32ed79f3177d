//! Where the time of threads went: a table for each arm whose experiment asks for it.

use std::time::Duration;

use crate::record::{Accounting, Record, ThreadShares};
use stockade_model::units::format_duration;

/// The threads of one measurement: a row for each role and kind.
pub(super) struct AccountingTable {
    pub(super) title: String,
    pub(super) headings: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    pub(super) note: String,
}

/// The figures of a row, in the order of the columns; `None`: not known.
type Column = (&'static str, fn(&ThreadShares) -> Option<String>);

const COLUMNS: [Column; 10] = [
    ("role", |of| Some(of.role.name().to_owned())),
    ("threads", |of| Some(of.kind.clone())),
    ("count", |of| Some(of.count.to_string())),
    ("user", |of| percent(Some(of.user))),
    ("system", |of| percent(Some(of.system))),
    ("waiting for a core", |of| percent(of.waiting)),
    ("sleeping", |of| percent(Some(of.sleeping))),
    ("busy wait", |of| percent(of.busy_wait)),
    ("runtime busy", |of| percent(of.busy)),
    ("parks a second", |of| of.parks_per_s.map(|parks| format!("{parks:.0}"))),
];

/// The first repeat of each arm of a test.
pub(super) fn tables(record: &Record, test: &str) -> Vec<AccountingTable> {
    let runs = record.runs.iter().filter(|run| run.test == test && run.repeat == 1);
    runs.filter_map(|run| Some(table(&run.arm, run.http.as_ref()?.accounting.as_ref()?))).collect()
}

fn table(arm: &str, accounting: &Accounting) -> AccountingTable {
    let is_known = |(_, cell): &&Column| accounting.threads.iter().any(|threads| cell(threads).is_some());
    let columns: Vec<&Column> = COLUMNS.iter().filter(is_known).collect();
    let row =
        |threads| columns.iter().map(|(_, cell)| cell(threads).unwrap_or_else(|| "-".to_owned())).collect();
    let length = time(accounting.for_ms);
    let from =
        if accounting.at_ms < 500.0 { String::new() } else { format!(" from {}", time(accounting.at_ms)) };
    let waiting = if accounting.threads.iter().any(|threads| threads.waiting.is_some()) {
        ""
    } else {
        "; this kernel does not report waiting for a core, and sleeping contains it"
    };
    let busy_wait = if accounting.threads.iter().any(|threads| threads.busy_wait.is_some()) {
        "; busy wait is a part of user and system"
    } else {
        ""
    };
    AccountingTable {
        title: format!("Where the time goes: {length} of {arm}{from}"),
        headings: columns.iter().map(|(heading, _)| (*heading).to_owned()).collect(),
        rows: accounting.threads.iter().map(row).collect(),
        note: format!(
            "user, system, waiting and sleeping sum to 100 % of the time of these threads{busy_wait}; {} readings took {:.2} % of a core{waiting}",
            accounting.samples,
            accounting.sampler_cpu * 100.0
        ),
    }
}

fn percent(share: Option<f64>) -> Option<String> {
    share.map(|share| format!("{:.2}%", share * 100.0))
}

/// To a tenth of a second.
fn time(milliseconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time of a load")]
    let tenths = (milliseconds / 100.0).round() as u64;
    format_duration(Duration::from_millis(tenths * 100))
}

#[cfg(test)]
mod tests {
    use crate::record::Role;

    use super::*;

    fn threads(role: Role, kind: &str, shares: [f64; 3], waiting: Option<f64>) -> ThreadShares {
        let [user, system, sleeping] = shares;
        let kind = kind.to_owned();
        ThreadShares {
            role,
            kind,
            count: 2,
            user,
            system,
            waiting,
            sleeping,
            busy_wait: None,
            busy: None,
            parks_per_s: None,
        }
    }

    fn accounting(threads: Vec<ThreadShares>) -> Accounting {
        Accounting { at_ms: 30_000.4, for_ms: 60_012.0, samples: 241, sampler_cpu: 0.001_23, threads }
    }

    #[test]
    fn unknown_columns_are_left_out_and_unknown_cells_marked() {
        let mut workers = threads(Role::Proxy, "worker", [0.25, 0.125, 0.5], Some(0.125));
        (workers.busy, workers.parks_per_s) = (Some(0.4), Some(1234.5));
        let mut load = threads(Role::Load, "worker", [0.0, 0.0, 1.0], Some(0.0));
        load.busy_wait = Some(0.031);
        let known = table("limited", &accounting(vec![load, workers]));
        assert_eq!(known.title, "Where the time goes: 60s of limited from 30s");
        assert_eq!(
            known.headings.join(" | "),
            "role | threads | count | user | system | waiting for a core | sleeping | busy wait | runtime busy | parks a second"
        );
        assert_eq!(
            known.rows[0].join(" | "),
            "load | worker | 2 | 0.00% | 0.00% | 0.00% | 100.00% | 3.10% | - | -"
        );
        assert_eq!(
            known.rows[1].join(" | "),
            "proxy | worker | 2 | 25.00% | 12.50% | 12.50% | 50.00% | - | 40.00% | 1234"
        );
        let unknown = table("a", &accounting(vec![threads(Role::Load, "main", [0.5, 0.0, 0.5], None)]));
        assert_eq!(unknown.headings.join(" | "), "role | threads | count | user | system | sleeping");
        assert!(
            unknown.note.contains("241 readings took 0.12 % of a core; this kernel does not"),
            "{}",
            unknown.note
        );
    }
}
