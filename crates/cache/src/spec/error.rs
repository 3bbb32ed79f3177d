//! Errors of TOML files: what is wrong, where, and how to fix it.

use std::ops::Range;

use stockade_model::nearest::remedy;

/// A range of bytes in a file; `None` if it is not known.
pub type Span = Option<Range<usize>>;

/// An error in a TOML file.
#[derive(Clone, Debug, PartialEq)]
pub struct TomlError {
    /// The error.
    pub message: String,
    /// Its position; `None` if it concerns the whole file.
    pub span: Span,
    /// How to fix it, where the message does not say so.
    pub help: Option<String>,
}

impl TomlError {
    /// An error without help.
    pub fn new(message: impl Into<String>, span: Span) -> Self {
        Self { message: message.into(), span, help: None }
    }

    /// Line and column in the text of the file, from 1; `None` if it concerns the whole file.
    #[must_use]
    pub fn position(&self, text: &str) -> Option<(usize, usize)> {
        let before = text.get(..self.span.as_ref()?.start)?;
        let line = before.rsplit('\n').next().unwrap_or_default();
        Some((before.matches('\n').count() + 1, line.chars().count() + 1))
    }

    /// Translates an error of the TOML parser: an unknown key or value gets the nearest known name as help. `hints`
    /// are pairs of a part of the parser's message and the help for it, in addition to those of `[cache]`.
    #[must_use]
    pub fn from_toml(error: &toml::de::Error, hints: &[(&str, &str)]) -> Self {
        let (message, span) = (error.message(), error.span());
        // serde writes: unknown field `tll`, expected one of `ttl`, `store`
        let mut quoted = message.split('`').skip(1).step_by(2);
        match message.split_once(", expected") {
            Some((unknown, _)) if unknown.starts_with("unknown ") => {
                let typed = quoted.next().unwrap_or_default();
                let known: Vec<&str> = quoted.collect();
                let help = remedy(typed, known.iter().copied());
                let message = unknown.replacen("field", "key", 1).replacen("variant", "value", 1);
                Self { message, span, help: Some(help) }
            }
            _ => {
                let mut hints = HINTS.iter().chain(hints);
                let help = hints.find(|(part, _)| message.contains(part)).map(|(_, help)| (*help).to_owned());
                Self { message: message.trim_end().to_owned(), span, help }
            }
        }
    }
}

/// Parts of the parser's messages, and the help for them.
const HINTS: [(&str, &str); 2] = [
    (
        "expected newtype variant",
        "it takes settings: { coalesce = { wait_timeout = \"1500ms\" } } or { mailbox = {} }",
    ),
    ("expected unit variant", "it takes no settings: write only its name, in quotes"),
];
