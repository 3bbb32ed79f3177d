//! Request templates from files of other tools. A file with an error is refused as a whole.
//!
//! | module | file |
//! |---|---|
//! | [`vegeta`] | Vegeta's targets, as text or as JSON lines |
//! | [`siege`] | siege's `urls.txt` |
//! | [`log`] | access logs and traces, for replay |

pub mod log;
pub mod siege;
pub mod vegeta;

mod bodies;

pub use bodies::{BODY_BYTES_MAX, read_body};

use std::{fs::File, io::Read, path::Path};

use http::Method;
use stockade_model::message::shown;

use crate::template::RequestTemplate;

/// Why a file is refused. The message names the remedy, and repeats no line that may hold a secret, such as a
/// header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{} {message}", .line.map(|line| format!("{line}:")).unwrap_or_default())]
pub struct TargetFileError {
    /// The name of the file.
    pub file: String,
    /// The line, from 1; none: the file as a whole.
    pub line: Option<u64>,
    /// The error and its remedy.
    pub message: String,
}

/// The largest file, without the bodies that it names.
pub const FILE_BYTES_MAX: u64 = 256 << 20;
/// The most templates of a run.
pub const TARGETS_MAX: usize = 1_000_000;
/// The longest line, and the most bytes of headers of one template.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// A [`TargetFileError`] without the name of the file.
struct LineError {
    line: u64,
    message: String,
}

impl LineError {
    fn new(line: u64, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }

    fn in_file(self, name: &str) -> TargetFileError {
        TargetFileError { file: name.to_owned(), line: Some(self.line), message: self.message }
    }
}

fn file_error(name: &str, message: impl Into<String>) -> TargetFileError {
    TargetFileError { file: name.to_owned(), line: None, message: message.into() }
}

/// Opens a regular file: a pipe could block.
fn open_file(path: &Path) -> Result<File, String> {
    let unreadable = |error| format!("cannot read it: {error}");
    if !path.metadata().map_err(unreadable)?.is_file() {
        return Err("it is not a regular file: name one".to_owned());
    }
    File::open(path).map_err(unreadable)
}

/// Reads a UTF-8 file; returns its name and text.
fn read_text(path: &Path) -> Result<(String, String), TargetFileError> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    let file = open_file(path).map_err(|message| file_error(&name, message))?;
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| file_error(&name, format!("cannot read it: {error}")))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(file_error(&name, "it has more than 256 MiB: write bodies into files of their own"));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.split(|byte| *byte == b'\n').count() as u64;
        LineError::new(line, "it is not UTF-8: write other bytes of a URL as `%` and two hex digits")
            .in_file(&name)
    })?;
    Ok((name, text))
}

/// The numbered lines of a text, trimmed.
fn lines(text: &str) -> impl Iterator<Item = (u64, &str)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    text.lines().zip(1..).map(|(line, number)| (number, line.trim()))
}

/// Adds a template within [`TARGETS_MAX`].
fn push_template(
    templates: &mut Vec<RequestTemplate>,
    template: RequestTemplate,
    line: u64,
) -> Result<(), LineError> {
    if templates.len() == TARGETS_MAX {
        return Err(LineError::new(
            line,
            "there are more than 1,000,000 targets: write `{key}` for what differs",
        ));
    }
    templates.push(template);
    Ok(())
}

/// Refuses a file without templates.
fn non_empty(
    name: &str,
    templates: Result<Vec<RequestTemplate>, LineError>,
    remedy: &str,
) -> Result<Vec<RequestTemplate>, TargetFileError> {
    let templates = templates.map_err(|error| error.in_file(name))?;
    if templates.is_empty() {
        return Err(file_error(name, format!("there is no target in it: write {remedy}")));
    }
    Ok(templates)
}

/// Reads a method in capitals.
fn parse_method(word: &str) -> Result<Method, String> {
    let is_method = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase());
    match Method::from_bytes(word.as_bytes()) {
        Ok(method) if is_method => Ok(method),
        _ if !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
            Err(format!("`{}` is not a method: write `{}`", shown(word), shown(&word.to_uppercase())))
        }
        _ => Err(format!("`{}` is not a method: write one such as `GET`", shown(word))),
    }
}
