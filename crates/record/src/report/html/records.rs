//! Pages about several records: their list, and two to five of them over one another.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
};

use crate::record::{Arm, Record, Verdict};
use maud::{Markup, PreEscaped, html};

use super::{PagePlots, badge, caches, data, drawing, measurements, page, prose, toolbar};
use crate::{
    compare::{self, Compared, report as comparison_report},
    history::IndexedRecord,
    metrics::Results,
    storage,
};

const LIST_SCRIPT: &str = include_str!("records.js");
/// The most records over one another: more lines than that cannot be told apart.
pub const OVERLAY_MAX: usize = 5;

/// The name of a record in a URL.
#[must_use]
pub fn id(record: &IndexedRecord) -> String {
    let mut hash = DefaultHasher::new();
    record.directory.hash(&mut hash);
    format!("{:016x}", hash.finish())
}

/// The records of this directory, the last one first. `query`: the token parameter of each URL, or empty.
#[must_use]
pub fn list(directory: &Path, records: &[IndexedRecord], unreadable: &[String], query: &str) -> String {
    let place = directory.display();
    let body = html! {
        main #report {
            h1 { "Records of " code { (place) } }
            form action="overlay" {
                div.toolbar {
                    input #filter type="search" placeholder="filter" aria-label="filter the records";
                    button #overlay { "show together" }
                    span.note #chosen { "choose two to five" }
                    @if let Some((name, value)) = query.split_once('=') { input type="hidden" name=(name) value=(value); }
                    a href={ "history" (question(query)) } { "history" }
                }
                div.wide {
                    table #records {
                        thead {
                            tr {
                                th.note { "choose" }
                                @for heading in ["experiment", "started", "verdict", "arms", "commit", "folder"] { th.text { (heading) } }
                            }
                        }
                        tbody { @for record in records.iter().rev() { (row(directory, record, query)) } }
                    }
                }
            }
            @for error in unreadable { p.note { "left out: " (error) } }
        }
        script { (PreEscaped(LIST_SCRIPT)) }
    };
    page(&format!("Records of {place}"), &body)
}

fn row(directory: &Path, record: &IndexedRecord, query: &str) -> Markup {
    let mut arms: Vec<&str> = Vec::new();
    for cell in &record.cells {
        if !arms.contains(&cell.arm.as_str()) {
            arms.push(&cell.arm);
        }
    }
    let started = record.started_at.replace('T', " ");
    let is_in_progress = !record.is_complete && storage::is_in_progress(&directory.join(&record.directory));
    html! {
        tr {
            td { input type="checkbox" name="r" value=(id(record)) aria-label={ "choose " (record.experiment) ", " (started) }; }
            td.text { a href={ "record?r=" (id(record)) (and(query)) } { (prose(&record.experiment)) } @if !is_whole(record) { " (scale " (record.scale) ")" } }
            td.text { (started) }
            td.text { @if record.is_complete { (badge(record.verdict)) } @else { span.note { @if is_in_progress { "in progress" } @else { "not complete" } } } }
            td.text { (some_of(&arms)) }
            td.text { (record.commit.as_deref().unwrap_or_default()) }
            td.text { (record.directory.display()) }
        }
    }
}

/// The first names, and the number of the others.
fn some_of(names: &[&str]) -> String {
    const NAMED_MAX: usize = 6;
    let (named, more) = names.split_at(names.len().min(NAMED_MAX));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    named.join(", ") + &more
}

fn is_whole(record: &IndexedRecord) -> bool {
    (record.scale - 1.0).abs() < f64::EPSILON
}

fn question(query: &str) -> String {
    if query.is_empty() { String::new() } else { format!("?{query}") }
}

fn and(query: &str) -> String {
    if query.is_empty() { String::new() } else { format!("&{query}") }
}

/// Records over one another, as the arms of one: `A: simple`, `B: simple`. Two of one experiment are compared.
///
/// # Panics
/// Without a record.
#[must_use]
pub fn overlay(records: Vec<(Record, Results)>) -> String {
    let compared = match records.as_slice() {
        [(before, of_before), (after, of_after)] => Some(compare::compare(
            Compared { record: before, results: of_before },
            Compared { record: after, results: of_after },
            compare::COMPARED_MIN_EFFECT,
        )),
        _ => None,
    };
    let names: Vec<char> = ('A'..).take(records.len()).collect();
    let heads: Vec<(Verdict, String, String)> = records
        .iter()
        .map(|(record, _)| (record.verdict, record.experiment.clone(), record.started_at.replace('T', " ")))
        .collect();
    let (record, results) = merged(records);
    let mut plots =
        PagePlots { arms: record.arms.iter().map(|arm| arm.name.clone()).collect(), plots: Vec::new() };
    let body = html! {
        main #report {
            h1 { (names.len()) " records" }
            @for (name, (verdict, experiment, started)) in names.iter().zip(&heads) {
                p.claim { strong { (name) } " " (badge(*verdict)) " " (prose(experiment)) ", " (started) }
            }
            @match &compared {
                Some(Ok(comparison)) => { h2 { "A to B" } (comparison_report::html(comparison)) }
                Some(Err(unlike)) => { p.note { (unlike) } }
                None => {}
            }
            (toolbar(&record))
            (measurements(&record, &results, &mut plots))
            (caches(&record))
            (data(&plots))
        }
        (drawing())
    };
    page(&format!("{} records", names.len()), &body)
}

/// All records as one, whose arms have the letter of their record.
fn merged(records: Vec<(Record, Results)>) -> (Record, Results) {
    let mut records = ('A'..).zip(records).map(|(letter, (record, results))| {
        let name = |arm: &str| format!("{letter}: {arm}");
        let arms = record.arms.into_iter().map(|arm| Arm { name: name(&arm.name), ..arm }).collect();
        (Record { arms, hypotheses: Vec::new(), reference: None, ..record }, results.with_arms(name))
    });
    let (mut record, mut results) = records.next().expect("one record at least");
    for (more, of_more) in records {
        for test in more.tests {
            if !record.tests.contains(&test) {
                record.tests.push(test);
            }
        }
        record.arms.extend(more.arms);
        record.repeats = record.repeats.max(more.repeats);
        results.append(of_more);
    }
    record.runs = results.runs().iter().map(|evidence| evidence.run.clone()).collect();
    (record, results)
}
