//! Targets in the formats that other tools have: files are read into what they mean, or not at all.
//!
//! | module | what is read |
//! |---|---|
//! | [`vegeta`] | Vegeta's targets, as text or as JSON lines |
//! | [`siege`] | siege's `urls.txt` |
//! | [`log`] | access logs, to be replayed |

pub mod log;
pub mod siege;
pub mod vegeta;

mod bodies;

use std::{fs::File, io::Read, path::Path};

use http::Method;

use crate::target::{Target, shown};

/// A file could not be used: nothing of it was. The message says what to write instead.
///
/// It does not repeat lines that may have a secret in them, such as headers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}:{} {message}", .line.map(|line| format!("{line}:")).unwrap_or_default())]
pub struct TargetsError {
    /// What the file is called.
    pub name: String,
    /// The line, from 1 on; none: all of it.
    pub line: Option<u64>,
    /// What is wrong, and what to do.
    pub message: String,
}

/// A file of targets is no larger, its bodies aside.
pub const FILE_BYTES_MAX: u64 = 256 << 20;
/// So many targets a run may have.
pub const TARGETS_MAX: usize = 1_000_000;
/// A line of text is no longer, nor are the headers of one target.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// What is wrong with a line, and which: the file gets its name at the border.
struct Wrong {
    line: u64,
    message: String,
}

impl Wrong {
    fn new(line: u64, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }

    fn of(self, name: &str) -> TargetsError {
        TargetsError { name: name.to_owned(), line: Some(self.line), message: self.message }
    }
}

/// All of the file is wrong.
fn wrong(name: &str, message: impl Into<String>) -> TargetsError {
    TargetsError { name: name.to_owned(), line: None, message: message.into() }
}

/// A file that is none of a kind that keeps a reader waiting.
fn open(path: &Path) -> Result<File, String> {
    let unread = |error| format!("cannot read it: {error}");
    if !path.metadata().map_err(unread)?.is_file() {
        return Err("it is no file: name one".to_owned());
    }
    File::open(path).map_err(unread)
}

/// All of a text, which is said to have a name.
fn text(path: &Path) -> Result<(String, String), TargetsError> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    let file = open(path).map_err(|message| wrong(&name, message))?;
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| wrong(&name, format!("cannot read it: {error}")))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(wrong(&name, "it has more than 256 MiB: write bodies into files of their own"));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.split(|byte| *byte == b'\n').count() as u64;
        Wrong::new(line, "it is not UTF-8: write other bytes of a URL as `%` and two hex digits").of(&name)
    })?;
    Ok((name, text))
}

/// The lines of a text with their numbers, without the blanks around them.
fn lines(text: &str) -> impl Iterator<Item = (u64, &str)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    text.lines().zip(1..).map(|(line, number)| (number, line.trim()))
}

/// One more, if there may be.
fn push(targets: &mut Vec<Target>, target: Target, line: u64) -> Result<(), Wrong> {
    if targets.len() == TARGETS_MAX {
        return Err(Wrong::new(
            line,
            "there are more than 1,000,000 targets: write `{key}` for what differs",
        ));
    }
    targets.push(target);
    Ok(())
}

/// What a file has, which is something.
fn some(name: &str, targets: Result<Vec<Target>, Wrong>, remedy: &str) -> Result<Vec<Target>, TargetsError> {
    let targets = targets.map_err(|wrong| wrong.of(name))?;
    if targets.is_empty() {
        return Err(wrong(name, format!("there is no target in it: write {remedy}")));
    }
    Ok(targets)
}

/// A method as it is written: in capitals.
fn method(word: &str) -> Result<Method, String> {
    let is_method = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase());
    match Method::from_bytes(word.as_bytes()) {
        Ok(method) if is_method => Ok(method),
        _ if !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
            Err(format!("`{}` is no method: write `{}`", shown(word), shown(&word.to_uppercase())))
        }
        _ => Err(format!("`{}` is no method: write one such as `GET`", shown(word))),
    }
}
