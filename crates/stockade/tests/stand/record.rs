//! The measured figures, as a file for each stack, and the page that is written from all of them.

use std::{
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use serde_json::{Value, json};
use stockade_services::{STACKS, Stack};

use crate::{caches::Cache, rows::ROWS, run::Outcome, verdict::complaints};

/// The folder of the records and of the page. Nothing is kept if it is not set.
const FOLDER: &str = "STAND_RESULTS";

const HEAD: &str = "\
# Caches in front of stock servers

`make stand`: each stack with the small app of [crates/services/apps](../../../crates/services/apps/README.md), as its users write it, behind `stockade
proxy` with its defaults, over HTTP/1.1 and over HTTP/2 where the stack speaks it, behind nginx as its documentation recommends it for a cache, and
behind Varnish with its built-in VCL and conditional requests ([settings](../../../crates/stockade/tests/stand/caches)). Two users take part in every
row.

A cell has the requests that the stack's access log shows (loads), how many of them it answered with 304, and in bold what users got wrong:
**foreign** is what belongs to another user, **failed** is an error, a wrong body, or none. In slow rows it has the time of the slowest
answer. A POST that crosses the close of its connection by the origin may not be sent again: two of a row, and one request in fifty of row
reload, are shown as failed and are not a finding. Loads of rows with a mark are not comparable, for the reason below. `-` stands for a row that the stack cannot have: it does not speak
HTTP/2, or does not reload without a pause.
";

/// Keeps the outcomes of a stack, and writes the page anew.
pub fn keep(stack: Stack, outcomes: &[Outcome]) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let Some(folder) = env::var_os(FOLDER).map(PathBuf::from) else { return };
    let _lock = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    fs::create_dir_all(&folder).expect("the folder of the records");
    let record = json!({
        "stack": stack.name,
        "version": stack.version().expect("a version"),
        "rows": outcomes.iter().map(row).collect::<Vec<_>>(),
        "findings": complaints(outcomes),
    });
    let text = serde_json::to_string_pretty(&record).expect("JSON") + "\n";
    fs::write(folder.join(file_name(stack.name)), text).expect("a record");
    fs::write(folder.join("README.md"), page(&folder)).expect("the page");
}

fn file_name(stack: &str) -> String {
    format!("{}.json", stack.to_lowercase().replace('.', ""))
}

fn row(outcome: &Outcome) -> Value {
    json!({
        "row": outcome.row.name,
        "cache": outcome.cache.name(),
        "sent": outcome.tally.sent,
        "loads": outcome.loads,
        "not_modified": outcome.not_modified,
        "foreign": outcome.tally.foreign,
        "failed": outcome.tally.failed,
        "longest_ms": u64::try_from(outcome.tally.longest.as_millis()).unwrap_or(u64::MAX),
    })
}

/// The page, from the records in a folder.
fn page(folder: &Path) -> String {
    let records: Vec<(Stack, Value)> = STACKS
        .into_iter()
        .filter_map(|stack| {
            let text = fs::read_to_string(folder.join(file_name(stack.name))).ok()?;
            Some((stack, serde_json::from_str(&text).expect("a record")))
        })
        .collect();
    let mut page = HEAD.to_owned();
    for (stack, record) in &records {
        let version = record["version"].as_str().unwrap_or_default();
        let _ = write!(page, "\n## {} {version}\n\n", stack.name);
        page += &table(record);
        let findings = record["findings"].as_array().cloned().unwrap_or_default();
        if !findings.is_empty() {
            let _ = write!(
                page,
                "\nStockade does worse than the best in these rows ([heads]({})):\n\n",
                file_name(stack.name)
            );
        }
        for finding in findings.iter().filter_map(Value::as_str) {
            let line = finding.lines().next().unwrap_or_default().trim_start_matches("## ");
            let _ = writeln!(page, "- {line}");
        }
    }
    page += "\n## Rows\n\n| row | users |\n|---|---|\n";
    for row in ROWS {
        let reason =
            row.incomparable.map_or(String::new(), |(_, reason)| format!(". Not comparable: {reason}"));
        let _ = writeln!(page, "| {} | {}{reason} |", row.name, row.does);
    }
    page
}

fn table(record: &Value) -> String {
    let names = Cache::ALL.map(Cache::name);
    let mut table = format!("| row | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    for row in ROWS {
        let cells = Cache::ALL.map(|cache| {
            let rows = record["rows"].as_array().into_iter().flatten();
            let mut of = rows.filter(|one| one["row"] == row.name && one["cache"] == cache.name());
            let is_comparable = row.incomparable.is_none_or(|(caches, _)| !caches.contains(&cache));
            of.next().map_or("-".to_owned(), |one| cell(one, is_comparable, row.is_slow()))
        });
        let _ = writeln!(table, "| {} | {} |", row.name, cells.join(" | "));
    }
    table
}

fn cell(row: &Value, is_comparable: bool, is_slow: bool) -> String {
    let number = |name: &str| row[name].as_u64().unwrap_or(0);
    let mut cell = number("loads").to_string();
    if !is_comparable {
        cell += "\\*";
    }
    match number("not_modified") {
        0 => {}
        not_modified => cell += &format!(", {not_modified} x 304"),
    }
    if is_slow {
        cell += &format!(", {:.1} s", number("longest_ms") as f64 / 1000.0);
    }
    for name in ["foreign", "failed"] {
        match number(name) {
            0 => {}
            count => cell += &format!(", **{count} {name}**"),
        }
    }
    cell
}
