//! Vegeta's targets, in its text and its JSON format.
//!
//! Text: a method and a URL, then headers, then optionally `@` and the file with the body. A blank line or the next
//! method ends a target. Lines that start with `#` are comments.
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
//! JSON: one object per line, with the body in base64. A text that starts with `{` is JSON.
//!
//! ```text
//! {"method":"POST","url":"http://localhost:8080/news","header":{"Accept":["*/*"]},"body":"Rk9P"}
//! ```
//!
//! Differences from Vegeta: body files are named relative to the folder of the file, not to the working directory;
//! unknown fields of JSON and user names in URLs are refused; header names are sent in lower case.

use std::{fmt, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor},
};
use serde_json::Value;
use stockade_model::message::{printable, shown};

use super::{
    LINE_BYTES_MAX, LineError, TargetFileError, bodies::BodyFiles, lines, non_empty, parse_method,
    push_template, read_text,
};
use crate::{template::RequestTemplate, url::parse_url};

/// Reads a file.
pub fn open(path: &Path) -> Result<Vec<RequestTemplate>, TargetFileError> {
    let (name, text) = read_text(path)?;
    read(&name, &text, path.parent().unwrap_or(Path::new("")))
}

/// Reads a text. `name` is for errors; body files are resolved in `folder`.
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
///     "targets.txt:2: `get` is not a method: write `GET`",
/// );
/// # Ok::<(), stockade_load::targets::TargetFileError>(())
/// ```
pub fn read(name: &str, text: &str, folder: &Path) -> Result<Vec<RequestTemplate>, TargetFileError> {
    let is_json = text.trim_start_matches(|c: char| c == '\u{feff}' || c.is_whitespace()).starts_with('{');
    let templates = if is_json { parse_json(text) } else { parse_text(text, folder) };
    non_empty(name, templates, "one such as `GET http://localhost:8080/`")
}

/// A target; some of its lines have been read.
struct PartialTemplate {
    template: RequestTemplate,
    line: u64,
    header_bytes: usize,
    has_body: bool,
}

fn parse_text(text: &str, folder: &Path) -> Result<Vec<RequestTemplate>, LineError> {
    let mut bodies = BodyFiles::in_folder(folder);
    let mut templates = Vec::new();
    let mut partial: Option<PartialTemplate> = None;
    for (number, line) in lines(text) {
        let error = |message: String| LineError::new(number, message);
        if line.len() > LINE_BYTES_MAX {
            return Err(error("the line has more than 64 KiB: write a long body into a file".to_owned()));
        }
        if line.starts_with('#') {
            continue;
        }
        let is_end = line.is_empty() || starts_target(line);
        if let Some(complete) = partial.take_if(|_| is_end) {
            push_template(&mut templates, complete.template, complete.line)?;
        }
        if line.is_empty() {
            continue;
        }
        match &mut partial {
            None => {
                let template = parse_first_line(line).map_err(error)?;
                partial = Some(PartialTemplate { template, line: number, header_bytes: 0, has_body: false });
            }
            Some(partial) => partial.add_line(line, &mut bodies).map_err(error)?,
        }
    }
    if let Some(complete) = partial {
        push_template(&mut templates, complete.template, complete.line)?;
    }
    Ok(templates)
}

/// True if the first word is a method, not a header name in capitals.
fn starts_target(line: &str) -> bool {
    line.split_once(char::is_whitespace).is_some_and(|(word, rest)| {
        word.bytes().all(|byte| byte.is_ascii_uppercase()) && !rest.trim_start().starts_with(':')
    })
}

fn parse_first_line(line: &str) -> Result<RequestTemplate, String> {
    let Some((word, url)) = line.split_once(char::is_whitespace) else {
        return Err(match parse_url(line) {
            Ok(_) => "the URL has no method before it: write `GET` and a space".to_owned(),
            Err(_) => {
                "a target starts with its method and its URL: write `GET http://localhost:8080/`".to_owned()
            }
        });
    };
    // The value of a header may be a secret: the message does not repeat it.
    if word.ends_with(':') {
        return Err("a header without a target: write a method and a URL on the line before".to_owned());
    }
    let method = parse_method(word)?;
    let url = parse_url(url).map_err(|error| error.to_string())?;
    Ok(RequestTemplate::new(method, url))
}

impl PartialTemplate {
    fn add_line(&mut self, line: &str, bodies: &mut BodyFiles<'_>) -> Result<(), String> {
        if self.has_body {
            return Err(
                "the body ends a target: write headers before it, and a blank line after it".to_owned()
            );
        }
        if let Some(body) = line.strip_prefix('@') {
            self.template.body = bodies.read(body.trim())?;
            self.has_body = true;
            return Ok(());
        }
        let (name, value) = line.split_once(':').ok_or("a header has a colon: write `Accept: */*`")?;
        append_header(&mut self.template.headers, &mut self.header_bytes, name.trim(), value.trim())
    }
}

/// Appends a header. Values may be secrets, so no message repeats one.
fn append_header(headers: &mut HeaderMap, bytes: &mut usize, name: &str, value: &str) -> Result<(), String> {
    // The line that is sent has a colon, a space and CRLF besides.
    *bytes += name.len() + value.len() + 4;
    if *bytes > LINE_BYTES_MAX {
        return Err("the headers have more than 64 KiB: send fewer".to_owned());
    }
    let name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| "a header's name is letters, digits and hyphens: write `Accept: */*`")?;
    let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| {
        format!("the value of `{name}` has a character that is not allowed in headers: remove it")
    })?;
    headers.try_append(name, value).map_err(|_| "there are too many headers: send fewer")?;
    Ok(())
}

/// A line of the JSON format.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonTarget {
    method: Option<String>,
    url: Option<String>,
    body: Option<String>,
    header: Option<JsonHeaders>,
}

/// Names and values in the order of the file.
struct JsonHeaders(Vec<(String, Vec<String>)>);

impl<'de> Deserialize<'de> for JsonHeaders {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = JsonHeaders;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names with lists of values, such as {\"Accept\":[\"*/*\"]}")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonHeaders, A::Error> {
                let mut pairs = Vec::new();
                while let Some((name, values)) = map.next_entry::<String, Value>()? {
                    // serde's own message would have the value in it, which may be a secret.
                    let Some(values) = strings(values) else {
                        let name = shown(&name);
                        return Err(A::Error::custom(format!(
                            "the values of header `{name}` are not a list of strings"
                        )));
                    };
                    pairs.push((name, values));
                }
                Ok(JsonHeaders(pairs))
            }
        }
        from.deserialize_map(Pairs)
    }
}

/// A list of strings, or null.
fn strings(values: Value) -> Option<Vec<String>> {
    let string = |value| if let Value::String(text) = value { Some(text) } else { None };
    match values {
        Value::Null => Some(Vec::new()),
        Value::Array(values) => values.into_iter().map(string).collect(),
        _ => None,
    }
}

fn parse_json(text: &str) -> Result<Vec<RequestTemplate>, LineError> {
    let mut templates = Vec::new();
    for (number, line) in lines(text).filter(|(_, line)| !line.is_empty()) {
        let template = parse_json_line(line).map_err(|message| LineError::new(number, message))?;
        push_template(&mut templates, template, number)?;
    }
    Ok(templates)
}

fn parse_json_line(line: &str) -> Result<RequestTemplate, String> {
    let JsonTarget { method: word, url, body, header } = serde_json::from_str(line).map_err(|error| {
        let text = error.to_string();
        let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
        // It may quote the name of a field.
        let message = printable(message);
        let column = error.column();
        format!(
            "column {column}: {message}; write one object per line, such as {{\"method\":\"GET\",\"url\":\"http://localhost/\"}}"
        )
    })?;
    let word = word.ok_or("there is no `method`: write \"method\":\"GET\"")?;
    let url = url.ok_or("there is no `url`: write \"url\":\"http://localhost:8080/\"")?;
    let mut template =
        RequestTemplate::new(parse_method(&word)?, parse_url(&url).map_err(|error| error.to_string())?);
    let mut bytes = 0;
    for (name, values) in header.map(|header| header.0).unwrap_or_default() {
        for value in values {
            append_header(&mut template.headers, &mut bytes, name.trim(), value.trim())?;
        }
    }
    if let Some(body) = body {
        template.body = BASE64_STANDARD
            .decode(body)
            .map_err(|error| format!("`body` is not base64 ({error}): write \"Rk9P\" for FOO"))?
            .into();
    }
    Ok(template)
}

#[cfg(test)]
mod tests;
