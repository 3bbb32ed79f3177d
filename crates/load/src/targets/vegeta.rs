//! Vegeta's targets, in both of its formats. Which one it is shows in the text.
//!
//! Text: a method and a URL, then headers, then maybe the name of a file after `@`, which is the body; a blank line,
//! or the next method, ends a target. Lines that begin with `#` are left out.
//!
//! ```text
//! GET http://localhost:8080/news
//!
//! # creates one
//! POST http://localhost:8080/news
//! Content-Type: application/json
//! @news.json
//! ```
//!
//! JSON: one object a line, the body in base64. If the first thing in a text is a `{`, it is this one.
//!
//! ```text
//! {"method":"POST","url":"http://localhost:8080/news","header":{"Accept":["*/*"]},"body":"Rk9P"}
//! ```
//!
//! Other than in Vegeta, names of bodies are read from the folder of the file on, not from where the program was
//! started; a field of JSON that Vegeta does not have is refused, not left out, and so is a user's name in a URL; and
//! names of headers are sent in small letters, as HTTP does not tell them apart.

use std::{fmt, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor},
};
use serde_json::Value;

use super::{LINE_BYTES_MAX, TargetsError, Wrong, bodies::Bodies, lines, method, push, some, text};
use crate::target::{Target, read_url, shown};

/// Reads a file.
pub fn open(path: &Path) -> Result<Vec<Target>, TargetsError> {
    let (name, text) = text(path)?;
    read(&name, &text, path.parent().unwrap_or(Path::new("")))
}

/// Reads a text, which errors give a name. Its bodies are named from `folder` on.
///
/// ```
/// use std::path::Path;
/// use stockade_load::targets::vegeta;
///
/// let read = |text| vegeta::read("targets.txt", text, Path::new("."));
/// assert_eq!(read("HEAD http://localhost/\nAccept: */*\n")?[0].headers["accept"], "*/*");
/// assert_eq!(read(r#"{"method":"GET","url":"http://localhost/"}"#)?[0].url, "http://localhost/");
/// assert_eq!(
///     read("\nget http://localhost/").unwrap_err().to_string(),
///     "targets.txt:2: `get` is no method: write `GET`",
/// );
/// # Ok::<(), stockade_load::targets::TargetsError>(())
/// ```
pub fn read(name: &str, text: &str, folder: &Path) -> Result<Vec<Target>, TargetsError> {
    let is_json = text.trim_start_matches(|c: char| c == '\u{feff}' || c.is_whitespace()).starts_with('{');
    let targets = if is_json { of_json(text) } else { of_text(text, folder) };
    some(name, targets, "one such as `GET http://localhost:8080/`")
}

/// A target whose lines are not yet all read.
struct Begun {
    target: Target,
    line: u64,
    header_bytes: usize,
    has_body: bool,
}

fn of_text(text: &str, folder: &Path) -> Result<Vec<Target>, Wrong> {
    let mut bodies = Bodies::below(folder);
    let mut targets = Vec::new();
    let mut begun: Option<Begun> = None;
    for (number, line) in lines(text) {
        let wrong = |message: String| Wrong::new(number, message);
        if line.len() > LINE_BYTES_MAX {
            return Err(wrong("the line has more than 64 KiB: write a long body into a file".to_owned()));
        }
        if line.starts_with('#') {
            continue;
        }
        let begins = line.is_empty() || begins_a_target(line);
        if let Some(done) = begun.take_if(|_| begins) {
            push(&mut targets, done.target, done.line)?;
        }
        if line.is_empty() {
            continue;
        }
        match &mut begun {
            None => {
                let target = first_line(line).map_err(wrong)?;
                begun = Some(Begun { target, line: number, header_bytes: 0, has_body: false });
            }
            Some(begun) => begun.add(line, &mut bodies).map_err(wrong)?,
        }
    }
    if let Some(done) = begun {
        push(&mut targets, done.target, done.line)?;
    }
    Ok(targets)
}

/// Whether a method is the first word. A header's name in capitals has its colon.
fn begins_a_target(line: &str) -> bool {
    line.split_once(char::is_whitespace).is_some_and(|(word, rest)| {
        word.bytes().all(|byte| byte.is_ascii_uppercase()) && !rest.trim_start().starts_with(':')
    })
}

fn first_line(line: &str) -> Result<Target, String> {
    let Some((word, url)) = line.split_once(char::is_whitespace) else {
        return Err(match read_url(line) {
            Ok(_) => "the URL has no method before it: write `GET` and a space".to_owned(),
            Err(_) => {
                "a target begins with its method and its URL: write `GET http://localhost:8080/`".to_owned()
            }
        });
    };
    // Whoever forgot the line before a header need not read it in a message.
    if word.ends_with(':') {
        return Err("a header without a target: write a method and a URL on the line before".to_owned());
    }
    let method = method(word)?;
    let url = read_url(url).map_err(|error| error.to_string())?;
    Ok(Target::new(method, url))
}

impl Begun {
    /// One more line of it.
    fn add(&mut self, line: &str, bodies: &mut Bodies<'_>) -> Result<(), String> {
        if self.has_body {
            return Err(
                "the body ends a target: write headers before it, and a blank line after it".to_owned()
            );
        }
        if let Some(body) = line.strip_prefix('@') {
            self.target.body = bodies.read(body.trim())?;
            self.has_body = true;
            return Ok(());
        }
        let (name, value) = line.split_once(':').ok_or("a header has a colon: write `Accept: */*`")?;
        append(&mut self.target.headers, &mut self.header_bytes, name.trim(), value.trim())
    }
}

/// One more header, after others of its name. Values may be secrets: no message has one.
fn append(headers: &mut HeaderMap, bytes: &mut usize, name: &str, value: &str) -> Result<(), String> {
    // As they are sent: with a colon, a space and the end of the line.
    *bytes += name.len() + value.len() + 4;
    if *bytes > LINE_BYTES_MAX {
        return Err("the headers have more than 64 KiB: send fewer".to_owned());
    }
    let name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| "a header's name is letters, digits and hyphens: write `Accept: */*`")?;
    let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| {
        format!("the value of `{name}` has a character that no header may have: leave it out")
    })?;
    headers.try_append(name, value).map_err(|_| "there are too many headers: send fewer")?;
    Ok(())
}

/// One line of JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    method: Option<String>,
    url: Option<String>,
    body: Option<String>,
    header: Option<Header>,
}

/// Names and values in the order in which they are written.
struct Header(Vec<(String, Vec<String>)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Header;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names with lists of values, such as {\"Accept\":[\"*/*\"]}")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut pairs = Vec::new();
                while let Some((name, values)) = map.next_entry::<String, Value>()? {
                    // serde's own message would have the value in it, which may be a secret.
                    let Some(values) = texts(values) else {
                        let name = shown(&name);
                        return Err(A::Error::custom(format!(
                            "the values of header `{name}` are no list of texts"
                        )));
                    };
                    pairs.push((name, values));
                }
                Ok(Header(pairs))
            }
        }
        from.deserialize_map(Pairs)
    }
}

/// A list of texts, which may be left out.
fn texts(values: Value) -> Option<Vec<String>> {
    let text = |value| if let Value::String(text) = value { Some(text) } else { None };
    match values {
        Value::Null => Some(Vec::new()),
        Value::Array(values) => values.into_iter().map(text).collect(),
        _ => None,
    }
}

fn of_json(text: &str) -> Result<Vec<Target>, Wrong> {
    let mut targets = Vec::new();
    for (number, line) in lines(text).filter(|(_, line)| !line.is_empty()) {
        let target = of_line(line).map_err(|message| Wrong::new(number, message))?;
        push(&mut targets, target, number)?;
    }
    Ok(targets)
}

fn of_line(line: &str) -> Result<Target, String> {
    let Line { method: word, url, body, header } = serde_json::from_str(line).map_err(|error| {
        let text = error.to_string();
        let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
        let column = error.column();
        format!(
            "column {column}: {what}; write one object a line, such as {{\"method\":\"GET\",\"url\":\"http://localhost/\"}}"
        )
    })?;
    let word = word.ok_or("there is no `method`: write \"method\":\"GET\"")?;
    let url = url.ok_or("there is no `url`: write \"url\":\"http://localhost:8080/\"")?;
    let mut target = Target::new(method(&word)?, read_url(&url).map_err(|error| error.to_string())?);
    let mut bytes = 0;
    for (name, values) in header.map(|header| header.0).unwrap_or_default() {
        for value in values {
            append(&mut target.headers, &mut bytes, name.trim(), value.trim())?;
        }
    }
    if let Some(body) = body {
        target.body = BASE64_STANDARD
            .decode(body)
            .map_err(|error| format!("`body` is no base64 ({error}): write \"Rk9P\" for FOO"))?
            .into();
    }
    Ok(target)
}

#[cfg(test)]
mod tests;
