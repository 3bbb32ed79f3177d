//! A summary of one screen, to paste into a chat: the end of `stockade run` at a terminal.

use std::{cmp::Reverse, fmt::Write};

use crate::record::{Hypothesis, Record};
use stockade_model::message::printable_lines;

use super::{
    grid,
    summary::{self, ArmRows},
    text::mark,
};
use crate::metrics::Results;

/// The usual width of a terminal.
const COLUMNS: usize = 80;
/// Lines of verdict, headings and marks of what is left out.
const OTHER_LINES: usize = 6;

/// The verdict, a line for each hypothesis with the figures that decided it, and a row for each arm: `lines_max` lines or
/// fewer, 12 at least. The worst hypotheses come first; tests with the most requests are shown, if not all fit.
#[must_use]
pub fn render(record: &Record, results: &Results, lines_max: usize) -> String {
    let room = lines_max.saturating_sub(OTHER_LINES).max(6);
    let mut text = cut(&format!("{}: {}\n", summary::verdict(record), record.experiment)) + "\n";
    text += &cut(&summary::how(record));
    text += "\n";
    let mut hypotheses: Vec<&Hypothesis> = record.hypotheses.iter().collect();
    hypotheses.sort_by_key(|hypothesis| Reverse(hypothesis.verdict));
    let shown = if hypotheses.len() <= room / 2 { hypotheses.len() } else { room / 2 };
    if shown > 0 {
        text.push('\n');
    }
    for hypothesis in &hypotheses[..shown] {
        let _ = writeln!(text, "{}", line(record, hypothesis));
    }
    if shown < hypotheses.len() {
        let _ = writeln!(text, "and {} more", hypotheses.len() - shown);
    }
    printable_lines(&(text + &table(summary::arms(record, results), room - shown))).into_owned()
}

/// `✗ refuted      no request waits: 500ms against 0`
fn line(record: &Record, hypothesis: &Hypothesis) -> String {
    let decided = hypothesis.expect.iter().find(|expectation| expectation.verdict == hypothesis.verdict);
    let figures = decided.filter(|decided| decided.left.is_some() || decided.right.is_some());
    let figures = figures.map_or_else(String::new, |decided| {
        let [left, right] = summary::sides(record, decided);
        format!(": {left} against {right}")
    });
    let claim = format!("{} {:12} {}", mark(hypothesis.verdict), hypothesis.verdict, hypothesis.text);
    cut_to(&claim, COLUMNS.saturating_sub(figures.chars().count())) + &figures
}

/// The arms of each test below its name, in the order of the file.
fn table(mut tests: Vec<ArmRows>, room: usize) -> String {
    let all = tests.len();
    let lines = |test: &ArmRows| test.rows.len() + usize::from(!test.test.is_empty());
    // The smallest tests go first.
    while tests.len() > 1 && tests.iter().map(lines).sum::<usize>() > room {
        let smallest = tests.iter().enumerate().min_by_key(|(_, test)| test.requests).map(|(index, _)| index);
        smallest.map(|index| tests.remove(index));
    }
    let rows: Vec<Vec<String>> = tests.iter().flat_map(|test| test.rows.clone()).collect();
    let Some(first) = rows.first() else { return String::new() };
    let has_figures = |column: &usize| *column == 0 || rows.iter().any(|row| row[*column] != "-");
    let columns: Vec<usize> = (0..first.len()).filter(has_figures).collect();
    let chosen = |row: &[String]| columns.iter().map(|column| row[*column].clone()).collect::<Vec<_>>();
    let headings = chosen(&summary::arm_headings());
    let grid = grid(&headings, &rows.iter().map(|row| chosen(row)).collect::<Vec<_>>());
    let mut lines = grid.lines();
    let mut text = format!("\n{}\n", lines.next().unwrap_or_default());
    for test in &tests {
        if !test.test.is_empty() {
            let _ = writeln!(text, "{}", cut(&test.test));
        }
        for line in lines.by_ref().take(test.rows.len()) {
            let _ = writeln!(text, "{line}");
        }
    }
    if tests.len() < all {
        let _ = writeln!(text, "{} of {all} tests are shown", tests.len());
    }
    text
}

fn cut(text: &str) -> String {
    cut_to(text.trim_end(), COLUMNS)
}

fn cut_to(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    text.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(name: &str, requests: u64, arms: &[&str]) -> ArmRows {
        let row = |arm: &&str| {
            let cells = [arm, "1,000", "-", "30", "0", "5.6ms", "9.25ms"];
            cells.map(str::to_owned).to_vec()
        };
        ArmRows { test: name.to_owned(), requests, rows: arms.iter().map(row).collect() }
    }

    #[test]
    fn smallest_tests_are_left_out_and_the_others_keep_their_order() {
        let arms = ["none", "stampede"];
        let tests = || vec![test("10000", 10_000, &arms), test("10", 10, &arms), test("100", 100, &arms)];
        insta::assert_snapshot!(table(tests(), 7), @r"
         arm       requests  source loads  failed  answered p50     p99
        10000
         none         1,000            30       0         5.6ms  9.25ms
         stampede     1,000            30       0         5.6ms  9.25ms
        100
         none         1,000            30       0         5.6ms  9.25ms
         stampede     1,000            30       0         5.6ms  9.25ms
        2 of 3 tests are shown
        ");
        assert!(!table(tests(), 9).contains("are shown"));
        // One test is shown, however little room there is.
        assert_eq!(table(tests(), 1).lines().count(), 6);
        assert_eq!(table(Vec::new(), 9), "");
    }

    #[test]
    fn long_text_is_cut_by_characters() {
        assert_eq!(cut_to("äöüäöü", 4), "äöü…");
        assert_eq!(cut_to("äöü", 3), "äöü");
    }
}
