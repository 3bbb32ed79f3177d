//! siege's `urls.txt`: a URL a line, or a method and a body after it.
//!
//! ```text
//! # comments have lines of their own, or stand after a variable
//! HOST = localhost:8080    # no scheme: http
//! $(HOST)/news
//! http://${HOST}/news POST title=one&body=two
//! http://$(HOST)/news PUT <news.json
//! http://$(HOST)/price?max=\$10
//! ```
//!
//! Methods are POST, PUT, PATCH, DELETE and OPTIONS; without one it is GET. What has a method has a `Content-Type`:
//! `application/x-www-form-urlencoded`, or that of the body's file by its name, or what stands after `-T` (as in
//! siege of 2026; its 4.0.7 knows the first only). A file that is text by its name is sent without the blanks around
//! it, as in siege.
//!
//! Other than in siege, names of bodies are read from the folder of the file on; variables of the environment are not
//! looked at, as a run is to be repeatable; a variable's value may have variables; a user's name in a URL is refused;
//! and what siege passes over in silence is an error: variables and bodies that are not there, lines that are too long.

use std::{collections::BTreeMap, path::Path};

use bytes::Bytes;
use http::{HeaderValue, Method, header::CONTENT_TYPE};
use stockade_model::nearest::remedy;

use super::{LINE_BYTES_MAX, TargetsError, Wrong, bodies::Bodies, lines, push, some, text};
use crate::target::{Target, read_url, shown};

/// Those that can stand after a URL.
const METHODS: [Method; 5] = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// What siege takes a body for that has no name it knows.
const FORM: &str = "application/x-www-form-urlencoded";

/// Of siege's table those that are sent: by the end of a file's name its type, and whether it is text.
const TYPES: [(&str, &str, bool); 20] = [
    ("bin", "application/octet-stream", false),
    ("css", "text/css", true),
    ("csv", "text/csv", true),
    ("gif", "image/gif", false),
    ("gz", "application/x-gzip", false),
    ("htm", "text/html", true),
    ("html", "text/html", true),
    ("jpeg", "image/jpeg", false),
    ("jpg", "image/jpeg", false),
    ("js", "application/x-javascript", false),
    ("json", "application/json", false),
    ("md", "text/x-markdown", true),
    ("pdf", "application/pdf", false),
    ("png", "image/png", false),
    ("svg", "image/svg+xml", true),
    ("tsv", "text/tab-separated-values", true),
    ("txt", "text/plain", true),
    ("xml", "text/xml", true),
    ("yml", "application/x-yaml", true),
    ("zip", "application/zip", false),
];

/// Reads a file.
pub fn open(path: &Path) -> Result<Vec<Target>, TargetsError> {
    let (name, text) = text(path)?;
    read(&name, &text, path.parent().unwrap_or(Path::new("")))
}

/// Reads a text, which errors give a name. Its bodies are named from `folder` on.
///
/// ```
/// use std::path::Path;
/// use stockade_load::targets::siege;
///
/// let read = |text| siege::read("urls.txt", text, Path::new("."));
/// let targets = read("HOST=localhost:8080\n$(HOST)/news POST a=1\n")?;
/// assert_eq!((targets[0].url.to_string().as_str(), &targets[0].body[..]), ("http://localhost:8080/news", &b"a=1"[..]));
/// assert_eq!(
///     read("HOST=localhost\nhttp://$(HOTS)/").unwrap_err().to_string(),
///     "urls.txt:2: there is no variable `HOTS` before this line: did you mean `HOST`?",
/// );
/// # Ok::<(), stockade_load::targets::TargetsError>(())
/// ```
pub fn read(name: &str, text: &str, folder: &Path) -> Result<Vec<Target>, TargetsError> {
    some(name, of_text(text, folder), "a URL a line")
}

fn of_text(text: &str, folder: &Path) -> Result<Vec<Target>, Wrong> {
    let mut bodies = Bodies::below(folder);
    let mut variables = BTreeMap::new();
    let mut targets = Vec::new();
    for (number, line) in lines(text) {
        let wrong = |message: String| Wrong::new(number, message);
        let line = without_comment(line);
        if line.is_empty() {
            continue;
        }
        let (variable, value) = match variable(line) {
            Some((name, value)) => (Some(name), value),
            None => (None, line),
        };
        let value = replaced(value, &variables).map_err(wrong)?;
        match variable {
            Some(name) => drop(variables.insert(name, value)),
            None => push(&mut targets, target(&value, &mut bodies).map_err(wrong)?, number)?,
        }
    }
    Ok(targets)
}

/// A `#` within a line may be a part of a URL: as in siege it begins a comment where a line has a space and no slash.
fn without_comment(line: &str) -> &str {
    match line.split_once('#') {
        Some(("", _)) => "",
        Some((before, _)) if line.contains(' ') && !line.contains('/') => before.trim_end(),
        _ => line,
    }
}

/// `NAME = value`: nothing but letters, digits and underscores before the `=`.
fn variable(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim_end();
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some((name, value.trim_start()))
}

/// With its variables' values in their places.
fn replaced(text: &str, variables: &BTreeMap<&str, String>) -> Result<String, String> {
    let mut whole = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        if let Some(before) = before.strip_suffix('\\') {
            whole.extend([before, "$"]);
            rest = after;
            continue;
        }
        let closing = match after.as_bytes().first() {
            Some(b'(') => ')',
            Some(b'{') => '}',
            _ => {
                return Err("a `$` begins a variable: write `$(NAME)`, or `\\$` for the character".to_owned());
            }
        };
        let Some((name, after)) = after[1..].split_once(closing) else {
            return Err(format!("a variable has no end: write `{closing}` after its name"));
        };
        let Some(value) = variables.get(name) else {
            let remedy = if variables.is_empty() {
                format!("write `{}=value` on one", shown(name))
            } else {
                remedy(&shown(name), variables.keys().copied())
            };
            return Err(format!("there is no variable `{}` before this line: {remedy}", shown(name)));
        };
        whole.extend([before, value]);
        rest = after;
        if whole.len() > LINE_BYTES_MAX {
            break;
        }
    }
    whole.push_str(rest);
    if whole.len() > LINE_BYTES_MAX {
        return Err(
            "the line has more than 64 KiB: write a long body into a file, as in `POST <file`".to_owned()
        );
    }
    Ok(whole)
}

fn target(line: &str, bodies: &mut Bodies<'_>) -> Result<Target, String> {
    let (url, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let url = if url.contains("://") { read_url(url) } else { read_url(&format!("http://{url}")) };
    let url = url.map_err(|error| error.to_string())?;
    let rest = rest.trim();
    if rest.is_empty() {
        return Ok(Target::get(url));
    }
    let method = METHODS.into_iter().find_map(|method| {
        let rest = rest.strip_prefix(method.as_str())?;
        let is_whole = rest.is_empty() || rest.starts_with(|c: char| c == '<' || c.is_whitespace());
        is_whole.then_some((method, rest.trim_start()))
    });
    let Some((method, rest)) = method else {
        let word = rest.split_whitespace().next().unwrap_or_default();
        return Err(format!(
            "`{}` after a URL is none of POST, PUT, PATCH, DELETE and OPTIONS: write one of them, a comment on a line of its own, and a space in a URL as `%20`",
            shown(word)
        ));
    };
    let (given, rest) = content_type(rest);
    let (by_name, body) = match rest.strip_prefix('<') {
        Some(name) => of_file(name.trim(), bodies)?,
        None => (FORM, Bytes::copy_from_slice(rest.as_bytes())),
    };
    let content_type = HeaderValue::from_str(given.unwrap_or(by_name))
        .map_err(|_| "what stands after -T is no type: write one such as `-T application/json`")?;
    let mut target = Target::new(method, url);
    target.headers.insert(CONTENT_TYPE, content_type);
    target.body = body;
    Ok(target)
}

/// What stands after `-T`, where it stands before a body, and what comes after it.
fn content_type(rest: &str) -> (Option<&str>, &str) {
    match rest.strip_prefix("-T").filter(|rest| rest.starts_with(char::is_whitespace)) {
        Some(rest) => {
            let rest = rest.trim_start();
            let (given, body) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            (Some(given.trim_end_matches(';')), body.trim_start())
        }
        None => (None, rest),
    }
}

fn of_file(name: &str, bodies: &mut Bodies<'_>) -> Result<(&'static str, Bytes), String> {
    let body = bodies.read(name)?;
    let end = Path::new(name).extension().and_then(|end| end.to_str()).unwrap_or_default();
    let known = TYPES.into_iter().find(|(known, ..)| known.eq_ignore_ascii_case(end));
    let (content_type, is_text) =
        known.map_or((FORM, true), |(_, content_type, is_text)| (content_type, is_text));
    let body = if is_text { body.slice_ref(body.trim_ascii()) } else { body };
    Ok((content_type, body))
}

#[cfg(test)]
mod tests;
