//! The results as a page.

use std::fmt::Write as _;

use super::{
    Issue, Observed, Scenario, Verdict,
    contender::Kind::{self, Moka, MokaThreads, Ours, OursThreads},
    process::Row,
};

/// True if ours did what was expected in each scenario.
#[must_use]
pub fn is_ours_as_expected(rows: &[Row]) -> bool {
    let ours = rows.iter().flat_map(|row| [Ours, OursThreads].map(|kind| &row[kind as usize]));
    ours.flatten().all(|observed| observed.verdict == Verdict::Expected)
}

/// The page.
#[must_use]
pub fn markdown(scenarios: &[&Scenario], rows: &[Row], moka: &str, date: &str) -> String {
    let build = if cfg!(debug_assertions) { "a debug build" } else { "a release build" };
    let mut text = format!(
        "# Scenarios from the trackers of other caches\n\n\
         {} scenarios from issues and pull requests of moka, Caffeine, FusionCache, foyer, Cachex and others,\n\
         on ours and on moka {moka}, each in a process of its own. {date}, {build}. Again:\n\n\
         ```\n\
         cargo run --release --manifest-path bench/Cargo.toml --bin scenarios -- --write\n\
         ```\n\n",
        scenarios.len(),
    );
    counts(&mut text, rows);
    text.push_str(READING);
    text.push_str(
        "\n## Results\n\n| # | scenario | from | expected | ours | moka |\n|---|---|---|---|---|---|\n",
    );
    for (number, (scenario, row)) in (1..).zip(scenarios.iter().zip(rows)) {
        let from: Vec<String> = scenario.issues.iter().map(link).collect();
        let (ours, moka) = (cell(row, Ours, OursThreads), cell(row, Moka, MokaThreads));
        let (title, from, expected) = (scenario.title, from.join(", "), scenario.expected);
        let _ = writeln!(text, "| {number} | {title} | {from} | {expected} | {ours} | {moka} |");
    }
    differences(&mut text, scenarios, rows);
    text.push_str("\n## Issues\n\nWhat each one is about, in our words:\n\n");
    for (number, scenario) in (1..).zip(scenarios) {
        let about = |issue: &Issue| format!("{}: {}", link(issue), issue.about);
        let about: Vec<String> = scenario.issues.iter().map(about).collect();
        let _ = writeln!(text, "- {number}. {}.", about.join("; "));
    }
    text
}

/// How to read the page. The rest of it is computed.
const READING: &str = "
- A cell says what was observed. **Not** before it: that is not what the sentence under \"expected\" says. The sentences are the same for both, and
  were written before the first run. Two were changed after it: the number of cancelled callers (20,000 took too long), and the exception for the
  thread that runs a load which never returns.
- \"Threads\" is the cache for threads (`stockade_cache::sync`, `moka::sync`), where it did something else than the one for tasks. Scenarios about
  tasks and runtimes run on the caches for tasks alone.
- Ours has `Strategy::default()`, and moka the same limit and ttl. Calls are `get_with` and `try_get_with`; the listener of moka for tasks is an
  `async_eviction_listener`. The sum of the weights is the only bound of an entry in both.
- \"Hung\": no answer within 5 s, or no end of the process within 10 s.
- A fork of the process is not here: it needs `unsafe`, which this project does not use, and a child that starts a program anew has nothing
  of the cache.
- Which thread is first depends on the machine. A row that is as expected was so in this run.
";

/// Of each [`Kind`].
const NAMES: [&str; 4] = ["ours", "ours for threads", "moka", "moka for threads"];

fn counts(text: &mut String, rows: &[Row]) {
    text.push_str("| | as expected | not | no such setting |\n|---|---|---|---|\n");
    for (kind, name) in Kind::ALL.into_iter().zip(NAMES) {
        let observed = || rows.iter().filter_map(|row| row[kind as usize].as_ref());
        let count = |verdict| observed().filter(|observed| observed.verdict == verdict).count();
        let [expected, not, none] = Verdict::ALL.map(count);
        let _ = writeln!(text, "| {name} | {expected} | {not} | {none} |");
    }
}

/// `moka#59`, as a link.
fn link(issue: &Issue) -> String {
    let Issue { repository, number, .. } = issue;
    let name = repository.rsplit('/').next().unwrap_or(repository);
    format!("[{name}#{number}](https://github.com/{repository}/issues/{number})")
}

fn cell(row: &Row, tasks: Kind, threads: Kind) -> String {
    let of = |kind: Kind| row[kind as usize].as_ref().map(marked);
    match (of(tasks), of(threads)) {
        (Some(tasks), Some(threads)) if tasks != threads => format!("{tasks}. Threads: {threads}"),
        (Some(observed), _) | (None, Some(observed)) => observed,
        (None, None) => String::new(),
    }
}

fn marked(observed: &Observed) -> String {
    // Messages of others may have what a table reads as its own.
    let fact = observed.fact.replace('|', "\\|");
    match observed.verdict {
        Verdict::Not => format!("**Not**: {fact}"),
        Verdict::Expected | Verdict::NoSetting => fact,
    }
}

/// The rows in which a cache did not do what was expected, and why.
fn differences(text: &mut String, scenarios: &[&Scenario], rows: &[Row]) {
    text.push_str("\n## Differences\n\n");
    for (number, (scenario, row)) in (1..).zip(scenarios.iter().zip(rows)) {
        let failed = |(observed, name): (&Option<Observed>, &'static str)| {
            let verdict = observed.as_ref()?.verdict;
            (verdict != Verdict::Expected).then_some(name)
        };
        let failed: Vec<&str> = row.iter().zip(NAMES).filter_map(failed).collect();
        if !failed.is_empty() {
            let _ = writeln!(text, "- {number}, {}: {}", failed.join(", "), scenario.why);
        }
    }
}
