//! The cases: tables in plain files, and the few that are generated.

mod caching;
mod framing;
mod requests;
mod responses;

use super::{
    case::{Case, CaseStep, Kind, Reading},
    table::{Row, parse},
};

/// All cases, in the order of the report but for the large ones: a proxy may still work on one when the next case
/// starts, so they are the last.
#[must_use]
pub fn all() -> Vec<Case> {
    let mut cases = [
        framing::cases(),
        requests::request_lines(),
        requests::hosts(),
        requests::fields(),
        responses::cases(),
        caching::responses(),
        caching::requests(),
        caching::keys(),
    ]
    .concat();
    cases.sort_by_key(|case| case.bytes().max(LARGE_BYTES));
    cases
}

/// A case with at most this many bytes in a request or a response is not large.
const LARGE_BYTES: usize = 2_500;

fn rows(file: &'static str) -> Vec<Row> {
    parse(file)
}

/// A case about a request, from its row.
fn request(kind: Kind, row: &Row, step: CaseStep) -> Case {
    let reading = row.reading.unwrap_or(Reading::Unsettled);
    let mut case = Case::request(kind, row.name, row.clause, reading, step);
    case.exception = row.exception;
    case
}

/// A case with the questions of its row.
fn asks(kind: Kind, row: &Row) -> Case {
    let mut case = Case::new(kind, row.name, row.clause).requests_max(row.requests);
    case.asks.clone_from(&row.asks);
    case.exception = row.exception;
    case
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::differential::case::{Reply, bytes};

    #[test]
    fn cases_are_complete_and_their_names_unique() {
        let cases = all();
        assert!(cases.len() > 700, "{}", cases.len());
        let mut names = HashSet::new();
        for case in &cases {
            let name = &case.name;
            assert!(names.insert((case.kind.title(), name.clone())), "twice: {name}");
            let is_complete = !case.asks.is_empty() && !case.steps.is_empty() && !case.replies.is_empty();
            assert!(is_complete, "{name}: {case:?}");
            assert!(case.clause.starts_with(|first: char| first.is_ascii_digit()), "{name}");
            for step in &case.steps {
                assert!(!bytes(&step.text).is_empty(), "{name}");
            }
            for reply in &case.replies {
                if let Reply::Raw { text, .. } = reply {
                    assert!(!bytes(text).is_empty(), "{name}");
                }
            }
        }
    }
}
