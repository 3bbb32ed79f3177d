//! siege's `urls.txt`: one URL per line, optionally with a method and a body.
//!
//! ```text
//! # a comment has its own line, or follows a variable
//! HOST = localhost:8080    # http is the default scheme
//! $(HOST)/news
//! http://${HOST}/news POST title=one&body=two
//! http://$(HOST)/news PUT <news.json
//! http://$(HOST)/price?max=\$10
//! ```
//!
//! Methods are POST, PUT, PATCH, DELETE and OPTIONS; the default is GET. A request with a method has a `Content-Type`:
//! `application/x-www-form-urlencoded`, the type of the body's file by its extension, or the one after `-T` (siege of
//! 2026; siege 4.0.7 knows only the first). A file with the extension of a text format is trimmed, as in siege.
//!
//! Differences from siege: body files are named relative to the folder of the file; environment variables are ignored,
//! so that runs repeat; the value of a variable may contain variables; a user name in a URL is refused; missing
//! variables, missing bodies and overlong lines are errors, which siege ignores.

use std::{collections::BTreeMap, path::Path};

use bytes::Bytes;
use http::{HeaderValue, Method, header::CONTENT_TYPE};
use stockade_model::{message::shown, nearest::remedy};

use super::{
    LINE_BYTES_MAX, LineError, TargetFileError, bodies::BodyFiles, lines, non_empty, push_template, read_text,
};
use crate::{template::RequestTemplate, url::parse_url};

/// The methods that may follow a URL.
const METHODS: [Method; 5] = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// The default `Content-Type`.
const FORM: &str = "application/x-www-form-urlencoded";

/// Common entries of siege's table: file extension, type, and whether it is text.
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
pub fn open(path: &Path) -> Result<Vec<RequestTemplate>, TargetFileError> {
    let (name, text) = read_text(path)?;
    read(&name, &text, path.parent().unwrap_or(Path::new("")))
}

/// Reads a text. `name` is for errors; body files are resolved in `folder`.
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
/// # Ok::<(), stockade_load::targets::TargetFileError>(())
/// ```
pub fn read(name: &str, text: &str, folder: &Path) -> Result<Vec<RequestTemplate>, TargetFileError> {
    non_empty(name, parse(text, folder), "one URL per line")
}

fn parse(text: &str, folder: &Path) -> Result<Vec<RequestTemplate>, LineError> {
    let mut bodies = BodyFiles::in_folder(folder);
    let mut variables = BTreeMap::new();
    let mut templates = Vec::new();
    for (number, line) in lines(text) {
        let error = |message: String| LineError::new(number, message);
        let line = strip_comment(line);
        if line.is_empty() {
            continue;
        }
        let (variable, value) = match parse_variable(line) {
            Some((name, value)) => (Some(name), value),
            None => (None, line),
        };
        let value = expand(value, &variables).map_err(error)?;
        match variable {
            Some(name) => drop(variables.insert(name, value)),
            None => {
                let template = parse_target(&value, &mut bodies).map_err(error)?;
                push_template(&mut templates, template, number)?;
            }
        }
    }
    Ok(templates)
}

/// A `#` may be part of a URL: as in siege, it starts a comment only in a line with a space and without a slash.
fn strip_comment(line: &str) -> &str {
    match line.split_once('#') {
        Some(("", _)) => "",
        Some((before, _)) if line.contains(' ') && !line.contains('/') => before.trim_end(),
        _ => line,
    }
}

/// Reads `NAME = value`, where the name has letters, digits and underscores.
fn parse_variable(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim_end();
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some((name, value.trim_start()))
}

/// Replaces variables by their values.
fn expand(text: &str, variables: &BTreeMap<&str, String>) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        if let Some(before) = before.strip_suffix('\\') {
            expanded.extend([before, "$"]);
            rest = after;
            continue;
        }
        let closing = match after.as_bytes().first() {
            Some(b'(') => ')',
            Some(b'{') => '}',
            _ => {
                return Err("a `$` starts a variable: write `$(NAME)`, or `\\$` for the character".to_owned());
            }
        };
        let Some((name, after)) = after[1..].split_once(closing) else {
            return Err(format!("a variable is not closed: write `{closing}` after its name"));
        };
        let Some(value) = variables.get(name) else {
            let remedy = if variables.is_empty() {
                format!("write `{}=value` on one", shown(name))
            } else {
                remedy(&shown(name), variables.keys().copied())
            };
            return Err(format!("there is no variable `{}` before this line: {remedy}", shown(name)));
        };
        expanded.extend([before, value]);
        rest = after;
        if expanded.len() > LINE_BYTES_MAX {
            break;
        }
    }
    expanded.push_str(rest);
    if expanded.len() > LINE_BYTES_MAX {
        return Err(
            "the line has more than 64 KiB: write a long body into a file, as in `POST <file`".to_owned()
        );
    }
    Ok(expanded)
}

fn parse_target(line: &str, bodies: &mut BodyFiles<'_>) -> Result<RequestTemplate, String> {
    let (url, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let url = if url.contains("://") { parse_url(url) } else { parse_url(&format!("http://{url}")) };
    let url = url.map_err(|error| error.to_string())?;
    let rest = rest.trim();
    if rest.is_empty() {
        return Ok(RequestTemplate::get(url));
    }
    let method = METHODS.into_iter().find_map(|method| {
        let rest = rest.strip_prefix(method.as_str())?;
        let is_word = rest.is_empty() || rest.starts_with(|c: char| c == '<' || c.is_whitespace());
        is_word.then_some((method, rest.trim_start()))
    });
    let Some((method, rest)) = method else {
        let word = rest.split_whitespace().next().unwrap_or_default();
        return Err(format!(
            "`{}` after a URL is not POST, PUT, PATCH, DELETE or OPTIONS: write one of them, a comment on a line of its own, and a space in a URL as `%20`",
            shown(word)
        ));
    };
    let (stated, rest) = parse_content_type(rest);
    let (default, body) = match rest.strip_prefix('<') {
        Some(name) => read_body(name.trim(), bodies)?,
        None => (FORM, Bytes::copy_from_slice(rest.as_bytes())),
    };
    let content_type = HeaderValue::from_str(stated.unwrap_or(default))
        .map_err(|_| "the value of -T is not a media type: write one such as `-T application/json`")?;
    let mut template = RequestTemplate::new(method, url);
    template.headers.insert(CONTENT_TYPE, content_type);
    template.body = body;
    Ok(template)
}

/// Splits off a leading `-T TYPE`.
fn parse_content_type(rest: &str) -> (Option<&str>, &str) {
    match rest.strip_prefix("-T").filter(|rest| rest.starts_with(char::is_whitespace)) {
        Some(rest) => {
            let rest = rest.trim_start();
            let (stated, body) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            (Some(stated.trim_end_matches(';')), body.trim_start())
        }
        None => (None, rest),
    }
}

fn read_body(name: &str, bodies: &mut BodyFiles<'_>) -> Result<(&'static str, Bytes), String> {
    let body = bodies.read(name)?;
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let known = TYPES.into_iter().find(|(known, ..)| known.eq_ignore_ascii_case(extension));
    let (content_type, is_text) =
        known.map_or((FORM, true), |(_, content_type, is_text)| (content_type, is_text));
    let body = if is_text { body.slice_ref(body.trim_ascii()) } else { body };
    Ok((content_type, body))
}

#[cfg(test)]
mod tests;
