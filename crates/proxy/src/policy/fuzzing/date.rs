//! Dates compared with `httpdate`.

#![allow(clippy::missing_panics_doc, reason = "a property that does not hold panics")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::policy::date::{format, parse};

/// A value of a date field.
///
/// - A date in one of the three formats is the one that `httpdate` reads. `httpdate` also reads misspelt ones.
/// - A date that is read is the value, apart from the day's name, case and a leap second, in one of the three formats.
/// - A date is read as it was written.
pub fn check(data: &[u8]) {
    let parsed = parse(data);
    let Ok(text) = std::str::from_utf8(data) else {
        assert_eq!(parsed, None, "a date is ASCII");
        return;
    };
    let text = text.trim_matches([' ', '\t']);
    if let Ok(date) = httpdate::parse_http_date(text)
        && is_spelling_of(text, date)
    {
        assert_eq!(parsed, Some(date), "{text}");
    }
    let Some(date) = parsed else { return };
    let written = format(date);
    assert_eq!(parse(written.as_bytes()), parsed, "{text}");
    let written = written.to_str().expect("a date is ASCII");
    assert_eq!(httpdate::parse_http_date(written).ok(), parsed, "{text}");
    assert!(date <= UNIX_EPOCH + Duration::from_secs(253_402_300_799));
    let without_leap = text.replace(":60", ":59");
    assert!(is_spelling_of(text, date) || is_spelling_of(&without_leap, date), "{text} is read as {written}");
}

/// The name of the day may be wrong.
fn is_spelling_of(text: &str, date: SystemTime) -> bool {
    // Sun, 06 Nov 1994 08:49:37 GMT
    let written = httpdate::fmt_http_date(date);
    let words: Vec<&str> = written.split(' ').collect();
    let [_, day, month, year, time, _] = words[..] else { panic!("{written}") };
    let spaced = format!("{:>2}", day.trim_start_matches('0'));
    let after_name = &text[text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or_default()..];
    let spellings = [
        format!(", {day} {month} {year} {time} GMT"),
        format!(", {day}-{month}-{} {time} GMT", &year[2..]),
        format!(" {month} {day} {time} {year}"),
        format!(" {month} {spaced} {time} {year}"),
    ];
    spellings.iter().any(|spelling| spelling.eq_ignore_ascii_case(after_name))
}
