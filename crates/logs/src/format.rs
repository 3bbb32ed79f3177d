//! The formats by their names.

use std::{fmt, str::FromStr, sync::Arc};

use stockade_model::{
    message::shown,
    named,
    registry::{Registry, UnknownName},
};

use crate::{
    formats::{
        CsvError, LineParser, PatternError, access, blocks, csv, har, key_value, layouts, oracle_general,
        pattern, w3c,
    },
    wrapper::Wrapper,
};

/// Makes a parser of lines.
pub(crate) type NewParser = Arc<dyn Fn() -> Box<dyn LineParser> + Send + Sync>;

pub(crate) fn new_parser<P: LineParser + 'static>(new: impl Fn() -> P + Send + Sync + 'static) -> NewParser {
    Arc::new(move || Box::new(new()))
}

/// The text of a format, and what makes its parsers.
pub(crate) type StatedFormat = Result<(String, NewParser), FormatError>;

/// One kind of format: a row of [`FORMATS`].
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property of its own")]
pub struct FormatKind {
    /// As [`Format`] reads it; `csv:COLUMNS` and `PATTERN` stand for texts.
    pub name: &'static str,
    /// A line of text.
    pub summary: &'static str,
    /// True for logs of servers and services, whose requests have times, statuses and sizes. A trace may have keys alone.
    pub(crate) is_access_log: bool,
    /// The requests of its logs go to many hosts, so that the URL of an object has the host.
    pub(crate) is_forward: bool,
    /// A log may be in this format if its first lines can be parsed.
    pub(crate) is_guessed: bool,
    /// Its lines may look like those of a wrapper: `web-1 | ...` can be a pattern.
    pub(crate) is_free_text: bool,
    pub(crate) content: Content,
}

/// How the content of a log is read.
#[derive(Debug)]
pub(crate) enum Content {
    Lines(fn() -> Box<dyn LineParser>),
    /// Lines as a text says that begins with a name, or has variables; `None`: it is another one. Returns it as written by default.
    Stated(fn(&str) -> Option<StatedFormat>),
    /// One document.
    Document,
    /// Records of one length.
    Records,
}

impl FormatKind {
    /// A log of a server.
    pub(crate) const fn access_log(
        name: &'static str,
        summary: &'static str,
        lines: fn() -> Box<dyn LineParser>,
    ) -> Self {
        Self { is_access_log: true, ..Self::trace(name, summary, lines) }
    }

    /// A trace of keys.
    pub(crate) const fn trace(
        name: &'static str,
        summary: &'static str,
        lines: fn() -> Box<dyn LineParser>,
    ) -> Self {
        let (is_access_log, is_forward, is_guessed, is_free_text) = (false, false, false, false);
        let content = Content::Lines(lines);
        Self { name, summary, is_access_log, is_forward, is_guessed, is_free_text, content }
    }
}

named!(FormatKind, "format");

/// Every format.
pub static FORMATS: Registry<FormatKind> = Registry::new(&[
    access::CLF,
    access::COMBINED,
    access::JSON,
    w3c::W3C,
    layouts::ENVOY,
    layouts::ALB,
    layouts::ELB,
    layouts::S3,
    layouts::HAPROXY,
    layouts::SQUID,
    layouts::NGINX_PROXY_MANAGER,
    har::HAR,
    oracle_general::ORACLE_GENERAL,
    key_value::TWITTER,
    key_value::META,
    blocks::KEYS,
    blocks::LIRS,
    blocks::ARC,
    csv::CSV,
    pattern::PATTERN,
]);

/// The format of a log or trace.
///
/// ```
/// use stockade_logs::Format;
///
/// assert_eq!("combined".parse::<Format>()?.to_string(), "combined");
/// assert_eq!("csv:key=0".parse::<Format>()?.to_string(), "csv:key=0");
/// assert_eq!("twiter".parse::<Format>().unwrap_err().to_string(), "unknown format `twiter`: did you mean `twitter`?");
/// # Ok::<(), stockade_logs::FormatError>(())
/// ```
#[derive(Clone)]
pub struct Format {
    kind: &'static FormatKind,
    /// As [`FromStr`] reads it.
    text: Arc<str>,
    /// `None`: it has no lines.
    parser: Option<NewParser>,
}

/// Why a text is not a format. The message names the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// There is no such name.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// The columns of a table.
    #[error(transparent)]
    Csv(#[from] CsvError),
    /// A pattern.
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        for kind in &FORMATS {
            if let Content::Stated(parse) = kind.content
                && let Some(stated) = parse(text)
            {
                let (text, parser) = stated?;
                return Ok(Self { kind, text: text.into(), parser: Some(parser) });
            }
        }
        let kind = FORMATS
            .named(text.trim())
            .map_err(|unknown| UnknownName { name: shown(&unknown.name), ..unknown })?;
        Ok(Self::from(kind))
    }
}

impl From<&'static FormatKind> for Format {
    /// # Panics
    /// For a kind that needs a text.
    fn from(kind: &'static FormatKind) -> Self {
        let parser = match kind.content {
            Content::Lines(new) => Some(Arc::new(new) as NewParser),
            Content::Document | Content::Records => None,
            Content::Stated(_) => panic!("`{}` stands for a text", kind.name),
        };
        Self { kind, text: kind.name.into(), parser }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Format").field(&self.text).finish()
    }
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Format {
    /// True for logs of servers and services, whose requests have times, statuses and sizes. A trace may have keys alone.
    #[must_use]
    pub fn is_access_log(&self) -> bool {
        self.kind.is_access_log
    }

    /// True if the requests of its logs go to many hosts, so that the URL of an object has the host.
    pub(crate) fn is_forward(&self) -> bool {
        self.kind.is_forward
    }

    /// True if a log is one document.
    pub(crate) fn is_document(&self) -> bool {
        matches!(self.kind.content, Content::Document)
    }

    /// False if its own lines may look like those of a wrapper.
    pub(crate) fn may_have(&self, wrapper: Wrapper) -> bool {
        wrapper != Wrapper::Compose || !self.kind.is_free_text
    }

    /// The parser of its lines; none: it has no lines.
    pub(crate) fn line_parser(&self) -> Option<Box<dyn LineParser>> {
        self.parser.as_ref().map(|new| new())
    }
}
