//! The formats of `stockade compare`.

use std::fmt::Write as _;

use maud::{Markup, html};
use serde_json::json;
use stockade_model::registry::{Registry, ReportFormat};

use super::{Change, ChangeVerdict, RecordComparison, shown};
use crate::report::{
    grid,
    html::wide_table,
    junit::{DECLARATION, printable},
    markdown_text,
};

/// Writes a comparison in one format.
pub type Render = fn(&RecordComparison) -> String;

pub static FORMATS: Registry<ReportFormat<Render>> = Registry::new(&[
    ReportFormat::new("text", "what changed, to read", text),
    ReportFormat::new("md", "the same in Markdown", markdown),
    ReportFormat::new("json", "every figure of both records", json_report),
    ReportFormat::new("junit", "a test case for each figure, as JUnit's XML", junit),
]);

impl ChangeVerdict {
    fn in_words(self, min_effect: f64) -> String {
        match self {
            Self::Same => format!("{} within {} %", self.name(), percent(min_effect)),
            _ => self.name().to_owned(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Better => "better",
            Self::Same => "same",
            Self::Open => "cannot tell",
        }
    }
}

pub(crate) fn percent(share: f64) -> String {
    let percent = (share * 1e4).round() / 100.0;
    format!("{percent}")
}

/// `+12.5 %`, of a ratio.
pub(crate) fn change(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    match percent.abs() {
        large if large >= 999.5 => format!("x {ratio:.1}"),
        middle if middle >= 9.995 => format!("{percent:+.0} %"),
        _ => format!("{percent:+.1} %"),
    }
}

/// Both ends in one form: `+9.8 % to +11 %`, or `x 9.87 to x 64.70`.
fn interval((low, high): (f64, f64)) -> String {
    let ends = [change(low), change(high)];
    if ends.iter().any(|end| end.starts_with('x')) {
        return format!("x {low:.2} to x {high:.2}");
    }
    ends.join(" to ")
}

/// `1 worse, 2 better, 14 same within 5 %, 0 cannot tell`
fn counts(comparison: &RecordComparison) -> String {
    let of = |verdict: ChangeVerdict| {
        let count = comparison.changes.iter().filter(|change| change.verdict == verdict).count();
        format!("{count} {}", verdict.in_words(comparison.min_effect))
    };
    [ChangeVerdict::Worse, ChangeVerdict::Better, ChangeVerdict::Same, ChangeVerdict::Open].map(of).join(", ")
}

fn place(change: &Change) -> String {
    if change.test.is_empty() { change.arm.clone() } else { format!("{}/{}", change.test, change.arm) }
}

const HEADINGS: [&str; 7] = ["", "arm", "metric", "before", "after", "change", "interval"];

fn row(comparison: &RecordComparison, of: &Change) -> Vec<String> {
    vec![
        of.verdict.in_words(comparison.min_effect),
        place(of),
        of.metric.name.to_owned(),
        shown(of.metric, of.before),
        shown(of.metric, of.after),
        of.ratio.map(change).unwrap_or_default(),
        of.interval.map(interval).unwrap_or_default(),
    ]
}

/// Those that are not the same, the worst first.
fn notable(comparison: &RecordComparison) -> Vec<Vec<String>> {
    let mut notable: Vec<_> =
        comparison.changes.iter().filter(|change| change.verdict != ChangeVerdict::Same).collect();
    notable.sort_by_key(|change| change.verdict);
    notable.into_iter().map(|change| row(comparison, change)).collect()
}

fn head(comparison: &RecordComparison) -> String {
    let [before, after] = &comparison.started_at;
    format!("{}: {before} -> {after}", comparison.experiment)
}

fn text(comparison: &RecordComparison) -> String {
    let mut lines = vec![head(comparison), counts(comparison)];
    lines.extend(noise(comparison));
    lines.extend(comparison.differences.iter().map(|difference| format!("  {difference}")));
    let notable = notable(comparison);
    if !notable.is_empty() {
        lines.extend([String::new(), grid(&HEADINGS.map(str::to_owned), &notable)]);
    }
    lines.join("\n") + "\n"
}

/// The result, the differences, and the figures that are not the same.
pub(crate) fn html(comparison: &RecordComparison) -> Markup {
    let notable = notable(comparison);
    html! {
        p { (counts(comparison)) "." }
        @if let Some(noise) = noise(comparison) { p.note { (noise) } }
        @if !notable.is_empty() {
            // Each heading has a name for screen readers.
            @let headings: Vec<&str> = ["verdict"].into_iter().chain(HEADINGS.into_iter().skip(1)).collect();
            (wide_table(&headings, &notable))
        }
        @if !comparison.differences.is_empty() {
            details { summary { "settings and machines that differ: " (comparison.differences.len()) } pre { (comparison.differences.join("\n")) } }
        }
    }
}

/// For a comment: the result, the differences, and the table of all changes folded.
fn markdown(comparison: &RecordComparison) -> String {
    let title = markdown_text::escape_markdown(&comparison.experiment);
    let mut parts = vec![format!("**{title}**: {}", counts(comparison))];
    let headings = HEADINGS.map(str::to_owned);
    let escaped =
        |row: Vec<String>| row.iter().map(|cell| markdown_text::escape_markdown(cell)).collect::<Vec<_>>();
    let notable: Vec<_> = notable(comparison).into_iter().map(escaped).collect();
    if !notable.is_empty() {
        parts.push(markdown_text::table(&headings, &notable, TABLE_BYTES_MAX));
    }
    if !comparison.differences.is_empty() {
        parts.push(diff(&comparison.differences));
    }
    parts.extend(noise(comparison));
    let all: Vec<_> = comparison.changes.iter().map(|change| escaped(row(comparison, change))).collect();
    let [before, after] = comparison.started_at.each_ref().map(|time| markdown_text::escape_markdown(time));
    parts.push(format!(
        "<details><summary>{before} -> {after}, all {} figures</summary>\n\n{}\n\n</details>",
        all.len(),
        markdown_text::table(&headings, &all, TABLE_BYTES_MAX)
    ));
    parts.join("\n\n") + "\n"
}

/// The bound of each table and of the changed settings in Markdown: all of them fit into a comment with the verdicts.
const TABLE_BYTES_MAX: usize = 10_000;
const DIFF_BYTES_MAX: usize = 4_000;

/// The changed settings as code that no line of them ends.
fn diff(lines: &[String]) -> String {
    let mut code = String::new();
    for (index, line) in lines.iter().enumerate() {
        if code.len() + line.len() > DIFF_BYTES_MAX {
            let _ = writeln!(code, "{} more lines are left out here", lines.len() - index);
            break;
        }
        let _ = writeln!(code, "{line}");
    }
    let longest = code.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}diff\n{code}{fence}")
}

/// `change` and `interval` are shares: after / before - 1. A change from 0 has none.
fn json_report(comparison: &RecordComparison) -> String {
    let metrics: Vec<_> = comparison
        .changes
        .iter()
        .map(|change| {
            let mut metric = json!({
                "test": change.test,
                "arm": change.arm,
                "metric": change.metric.name,
                "a": change.before,
                "b": change.after,
                "verdict": match change.verdict {
                    ChangeVerdict::Open => "unknown",
                    verdict => verdict.name(),
                },
            });
            if let Some(ratio) = change.ratio {
                metric["change"] = json!(ratio - 1.0);
            }
            if let Some((low, high)) = change.interval {
                metric["interval"] = json!([low - 1.0, high - 1.0]);
            }
            metric
        })
        .collect();
    let report = json!({
        "experiment": comparison.experiment,
        "started_at": comparison.started_at,
        "verdict": comparison.result(),
        "min_effect": comparison.min_effect,
        "noise": comparison.noise,
        "differences": comparison.differences,
        "metrics": metrics,
    });
    report.to_string() + "\n"
}

/// The spread between equal runs in one line; `None`: one run each.
fn noise(comparison: &RecordComparison) -> Option<String> {
    let of: Vec<_> = comparison
        .noise
        .iter()
        .map(|(metric, spread)| format!("{metric} {} %", percent((spread.exp_m1() * 1e3).round() / 1e3)))
        .collect();
    (!of.is_empty()).then(|| format!("equal runs differ by (one standard deviation): {}", of.join(", ")))
}

/// A test case for each figure: worse is a failure, open is an error.
fn junit(comparison: &RecordComparison) -> String {
    let count = |verdict| comparison.changes.iter().filter(|change| change.verdict == verdict).count();
    let (failures, errors) = (count(ChangeVerdict::Worse), count(ChangeVerdict::Open));
    let (name, tests) = (printable(&comparison.experiment), comparison.changes.len());
    let document = html! {
        (DECLARATION)
        testsuites name="stockade" tests=(tests) failures=(failures) errors=(errors) {
            testsuite name=(name) tests=(tests) failures=(failures) errors=(errors) {
                @for change in &comparison.changes {
                    @let message = printable(&row(comparison, change).join(" "));
                    testcase classname=(printable(&place(change))) name=(change.metric.name) {
                        @match change.verdict {
                            ChangeVerdict::Worse => failure type="worse" message=(message) {},
                            ChangeVerdict::Open => error type="cannot tell" message=(message) {},
                            ChangeVerdict::Better | ChangeVerdict::Same => {}
                        }
                    }
                }
            }
        }
    };
    document.into_string() + "\n"
}
