//! What is wrong with a file, where, and what to write instead.

use std::ops::Range;

use stockade_model::nearest::remedy;

/// Where in a file something is, in bytes.
pub type Place = Option<Range<usize>>;

/// Something is wrong with a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Wrong {
    /// What.
    pub message: String,
    /// Where it is written; `None`: nowhere, or everywhere.
    pub at: Place,
    /// What to write instead, if the message does not say so.
    pub help: Option<String>,
}

impl Wrong {
    /// Something that needs no help.
    pub fn new(message: impl Into<String>, at: Place) -> Self {
        Self { message: message.into(), at, help: None }
    }

    /// What a reader of TOML says, in words that help: an unknown name is told the nearest one. `hints` are of the
    /// file at hand: part of what the reader says, and what to write instead.
    #[must_use]
    pub fn read(error: &toml::de::Error, hints: &[(&str, &str)]) -> Self {
        let (message, at) = (error.message(), error.span());
        // serde writes: unknown field `tll`, expected one of `ttl`, `store`
        let mut quoted = message.split('`').skip(1).step_by(2);
        match message.split_once(", expected") {
            Some((unknown, _)) if unknown.starts_with("unknown ") => {
                let typed = quoted.next().unwrap_or_default();
                let known: Vec<&str> = quoted.collect();
                let help = remedy(typed, known.iter().copied());
                let message = unknown.replacen("field", "key", 1).replacen("variant", "value", 1);
                Self { message, at, help: Some(help) }
            }
            _ => {
                let mut hints = HINTS.iter().chain(hints);
                let help = hints.find(|(said, _)| message.contains(said)).map(|(_, hint)| (*hint).to_owned());
                Self { message: message.trim_end().to_owned(), at, help }
            }
        }
    }
}

/// What to write instead, where the reader's own words leave one guessing.
const HINTS: [(&str, &str); 2] = [
    (
        "expected newtype variant",
        "it takes settings: { coalesce = { wait_timeout = \"1500ms\" } } or { mailbox = {} }",
    ),
    ("expected unit variant", "it takes no settings: write only its name, in quotes"),
];
