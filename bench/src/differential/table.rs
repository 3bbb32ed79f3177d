//! The format of the files of cases.
//!
//! `## name` starts a section. `== attributes: name` starts a row; its attributes are separated by commas:
//!
//! - `RFC 9112 6.3`: the section of the standard;
//! - `forbidden`, `unsettled` or `permitted`: the reading of the section's question;
//! - `delivered forbidden`, `lost(cookie) unsettled`, ...: a question of the row's own, and its reading;
//! - `2 requests`: as many as the standard reads in the bytes; otherwise one.
//!
//! The lines after it are bytes, with the escapes `\r \n \t \0 \\ \xNN`; line breaks of the file are not part of them.
//! `part> ` at the start of a line begins another part of the row. `!! ` is the reason why a lax row is an exception,
//! and `# ` a comment.

use super::case::{Question, Reading};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub section: &'static str,
    pub name: &'static str,
    /// Such as `9112 6.3`.
    pub clause: &'static str,
    /// Of the section's question.
    pub reading: Option<Reading>,
    pub asks: Vec<(Question, Reading)>,
    pub requests: usize,
    pub exception: Option<&'static str>,
    /// Name and text; the first has no name.
    parts: Vec<(&'static str, String)>,
}

impl Row {
    /// A part by its name; empty if the row has none.
    #[must_use]
    pub fn part(&self, name: &str) -> &str {
        self.find(name).unwrap_or_default()
    }

    #[must_use]
    pub fn find(&self, name: &str) -> Option<&str> {
        self.parts.iter().find(|(own, _)| *own == name).map(|(_, text)| text.as_str())
    }

    /// The part without a name.
    #[must_use]
    pub fn text(&self) -> &str {
        self.part("")
    }
}

/// Reads a file of this program.
///
/// # Panics
/// If the file is wrong: a mistake in this program, which the test of all cases finds.
#[must_use]
pub fn parse(file: &'static str) -> Vec<Row> {
    let (mut rows, mut section) = (Vec::<Row>::new(), "");
    for line in file.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")) {
        if let Some(name) = line.strip_prefix("## ") {
            section = name;
        } else if let Some(title) = line.strip_prefix("== ") {
            rows.push(row(section, title));
        } else if let Some(row) = rows.last_mut() {
            extend(row, line);
        }
    }
    rows
}

fn row(section: &'static str, title: &'static str) -> Row {
    let (attributes, name) = title.split_once(": ").expect("a title has attributes and a name");
    let mut row = Row { section, name, requests: 1, ..Row::default() };
    row.parts.push(("", String::new()));
    for attribute in attributes.split(", ") {
        if let Some(clause) = attribute.strip_prefix("RFC ") {
            row.clause = clause;
        } else if let Some(count) = attribute.strip_suffix(" requests") {
            row.requests = count.parse().expect("a number of requests");
        } else if let Some((asked, allowed)) = attribute.split_once(' ') {
            row.asks.push((question(asked), reading(allowed)));
        } else {
            row.reading = Some(reading(attribute));
        }
    }
    row
}

fn extend(row: &mut Row, line: &'static str) {
    if let Some(reason) = line.strip_prefix("!! ") {
        row.exception = Some(reason);
        return;
    }
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
    match line.split_once("> ").filter(|(name, _)| is_name(name)) {
        Some((name, text)) => row.parts.push((name, unescape(text))),
        None => {
            if let Some((_, text)) = row.parts.last_mut() {
                text.push_str(&unescape(line));
            }
        }
    }
}

fn reading(word: &str) -> Reading {
    match word {
        "forbidden" => Reading::Forbidden,
        "unsettled" => Reading::Unsettled,
        "permitted" => Reading::Permitted,
        _ => panic!("{word} is not a reading"),
    }
}

fn question(word: &'static str) -> Question {
    let (name, argument) = word.trim_end_matches(')').split_once('(').unwrap_or((word, ""));
    match name {
        "forwarded" if !argument.is_empty() => Question::FieldForwarded(argument),
        "forwarded" => Question::Forwarded,
        "lost" => Question::FieldLost(argument),
        "delivered" => Question::Delivered,
        "complete" => Question::Complete,
        "reused" => Question::Reused,
        "evil" => Question::Evil,
        "evil-first" => Question::EvilFirst,
        _ => panic!("{word} is not a question"),
    }
}

/// Each character of the result is a byte.
fn unescape(text: &str) -> String {
    let (mut bytes, mut chars) = (String::new(), text.chars());
    while let Some(char) = chars.next() {
        if char != '\\' {
            bytes.push(char);
            continue;
        }
        bytes.push(match chars.next() {
            Some('r') => '\r',
            Some('n') => '\n',
            Some('t') => '\t',
            Some('0') => '\0',
            Some('\\') => '\\',
            Some('x') => {
                let digits: String = chars.by_ref().take(2).collect();
                u8::from_str_radix(&digits, 16).expect("two hexadecimal digits").into()
            }
            escape => panic!("{escape:?} in {text}"),
        });
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_attributes_parts_and_escapes() {
        let rows = parse(
            "# A comment\n## one\n== forbidden, RFC 9112 6.3, 2 requests: a: b\n\\r\\x41\n\\0\n\
             ## two\n== RFC 9111 3, reused permitted, lost(host) unsettled: c\n!! why\nfirst> a> b\nsecond> \\\\\n",
        );
        assert_eq!(
            (rows[0].section, rows[0].name, rows[0].clause, rows[0].requests),
            ("one", "a: b", "9112 6.3", 2)
        );
        assert_eq!((rows[0].reading, rows[0].text()), (Some(Reading::Forbidden), "\rA\0"));
        let asks =
            [(Question::Reused, Reading::Permitted), (Question::FieldLost("host"), Reading::Unsettled)];
        assert_eq!((&rows[1].asks[..], rows[1].exception), (&asks[..], Some("why")));
        assert_eq!(
            (rows[1].part("first"), rows[1].part("second"), rows[1].find("third")),
            ("a> b", "\\", None)
        );
    }
}
