//! The findings as Markdown.

use std::fmt::Write as _;

use super::{
    Findings,
    case::{Case, Kind},
    judge::{Verdict, judge},
};

/// A question of a case, and its verdict.
pub struct Finding<'a> {
    pub case: &'a Case,
    /// The index of the question in the case, and of the case.
    pub question: usize,
    pub number: usize,
    pub verdict: Verdict,
}

/// Every question of every case.
#[must_use]
pub fn judge_all<'a>(cases: &'a [Case], findings: &Findings) -> Vec<Finding<'a>> {
    let mut judged = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        for question in 0..case.asks.len() {
            let verdict = judge(case, question, &findings.observations[number]);
            judged.push(Finding { case, question, number, verdict });
        }
    }
    judged
}

/// How often ours is the lax one.
#[must_use]
pub fn count_lax(judged: &[Finding<'_>]) -> usize {
    judged.iter().filter(|finding| matches!(finding.verdict, Verdict::Lax(_))).count()
}

/// The whole report; with `is_everything` agreements too.
#[must_use]
pub fn markdown(cases: &[Case], findings: &Findings, is_everything: bool) -> String {
    let judged = judge_all(cases, findings);
    let mut text = summary(cases, findings, &judged);
    for kind in Kind::ALL {
        table(&mut text, kind, findings, &judged, is_everything);
    }
    reasons(&mut text, &judged);
    text.push_str("\n## Configuration\n");
    for peer in &findings.peers {
        let _ = write!(text, "\n{}:\n\n```\n{}\n```\n", peer.version, peer.settings.trim_end());
    }
    text
}

fn summary(cases: &[Case], findings: &Findings, judged: &[Finding<'_>]) -> String {
    let sent: usize = findings.observations.iter().map(|row| row[0].requests_sent).sum();
    let count = |name: &str| judged.iter().filter(|finding| finding.verdict.name() == name).count();
    let disagreements = judged.len() - count("same");
    let names: Vec<&str> = findings.peers.iter().map(|peer| peer.name).collect();
    let mut text = format!(
        "# Disagreements\n\n{} cases with {sent} requests to each of {}: {} questions.\n\n",
        cases.len(),
        names.join(", "),
        judged.len()
    );
    if !findings.missing.is_empty() {
        let _ = writeln!(text, "Not installed: {}.\n", findings.missing.join(", "));
    }
    let _ = writeln!(text, "| | questions |\n|---|---|\n| disagreements | {disagreements} |");
    for name in ["stricter", "permitted", "other", "exception", "**lax**"] {
        let _ = writeln!(text, "| ours {name} | {} |", count(name));
    }
    text
}

fn table(text: &mut String, kind: Kind, findings: &Findings, judged: &[Finding<'_>], is_everything: bool) {
    let rows = judged.iter().filter(|finding| finding.case.kind == kind);
    let rows: Vec<_> = rows.filter(|finding| is_everything || finding.verdict != Verdict::Same).collect();
    if rows.is_empty() {
        return;
    }
    let names: Vec<&str> = findings.peers.iter().map(|peer| peer.name).collect();
    let _ = write!(
        text,
        "\n## {}\n\n| case | RFC | {} | ours |\n|---|---|{}---|\n",
        kind.title(),
        names.join(" | "),
        "---|".repeat(names.len())
    );
    for finding in rows {
        let asked = finding.case.asks[finding.question].0;
        let of_case = &findings.observations[finding.number];
        let cells: Vec<String> = of_case.iter().map(|one| escape(&one.details[finding.question])).collect();
        let _ = writeln!(
            text,
            "| {}: {} | {} | {} | {} |",
            escape(&finding.case.name),
            asked.text(),
            finding.case.clause,
            cells.join(" | "),
            finding.verdict.name()
        );
    }
}

/// The reasons of exceptions and lax answers.
fn reasons(text: &mut String, judged: &[Finding<'_>]) {
    let mut rows = String::new();
    for finding in judged {
        let reason = match &finding.verdict {
            Verdict::Exception(reason) => (*reason).to_owned(),
            Verdict::Lax(reason) => format!("**lax**: {reason}"),
            _ => continue,
        };
        let asked = finding.case.asks[finding.question].0.text();
        let _ = writeln!(rows, "| {}: {asked} | {reason} |", escape(&finding.case.name));
    }
    if !rows.is_empty() {
        let _ = write!(text, "\n## Reasons\n\n| case | reason |\n|---|---|\n{rows}");
    }
}

/// A cell cannot contain a bar.
fn escape(cell: &str) -> String {
    cell.replace('|', "\\|")
}
