//! The values of selecting fields.

#![allow(clippy::missing_panics_doc, reason = "a property that does not hold panics")]

use http::{HeaderName, HeaderValue, header::VARY};

use stockade_http::field::elements;

use super::lines;
use crate::policy::vary::{SelectingValues, Vary};

/// A name of a field and two of its values, in lines.
///
/// - A request selects the response that was stored for it.
/// - Two requests that select one response list the same elements, but for weights of zero and aliases of codings.
/// - A list in two lines selects what it selects in one.
pub fn check(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == b'\n');
    let (Some(name), Some(one), Some(other)) = (parts.next(), parts.next(), parts.next()) else { return };
    let (Ok(name), Ok(listed)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(name)) else {
        return;
    };
    let (Some(one_request), Some(other_request)) = (lines(&name, &[one]), lines(&name, &[other])) else {
        return;
    };
    let vary = Vary::of(&[(VARY, listed)].into_iter().collect());
    if name.as_str() == "*" {
        assert_eq!(vary, Vary::Any);
    }
    if vary == Vary::Any {
        assert!(!vary.matches(&vary.selecting(&one_request), &one_request));
        return;
    }
    assert_eq!(vary.fields(), std::slice::from_ref(&name));
    let selecting = vary.selecting(&one_request);
    assert!(vary.matches(&selecting, &one_request));
    assert_eq!(SelectingValues::from_bytes(selecting.as_bytes()), selecting);
    let is_same = vary.matches(&selecting, &other_request);
    assert_eq!(is_same, vary.matches(&vary.selecting(&other_request), &one_request));
    let is_encoding = name == "accept-encoding";
    if is_same && !is_encoding {
        assert_eq!(words(one), words(other), "{name}: {} and {}", one.escape_ascii(), other.escape_ascii());
    }

    let is_list =
        !["authorization", "cookie", "host", "origin", "referer", "user-agent"].contains(&name.as_str());
    // An unterminated quote ends with its line.
    if is_list && !one.contains(&b'"') {
        let (two_lines, joined) =
            (lines(&name, &[one, other]), lines(&name, &[&[one, b", ", other].concat()]));
        let (two_lines, joined) = (two_lines.expect("valid values"), joined.expect("valid values"));
        assert!(vary.matches(&vary.selecting(&two_lines), &joined), "{name}");
    }
}

/// The words of a value, without order, case and weights: no normalisation may change them.
fn words(value: &[u8]) -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = elements(value)
        .flat_map(|element| element.split(|byte| b"; \t,".contains(byte)))
        .filter(|word| !word.is_empty() && !matches!(word, [b'q' | b'Q', b'=', ..]))
        .map(<[u8]>::to_ascii_lowercase)
        .collect();
    words.sort_unstable();
    words.dedup();
    words
}
