//! Why there is no configuration.

use miette::{Diagnostic, NamedSource, SourceSpan};
use stockade_cache::spec::Wrong;
use stockade_source::secrets::{masked_file, masked_message};

use super::FlagError;

/// A file makes no sense. It shows the place and the remedy, and no secrets.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
pub struct FileError {
    pub(super) message: String,
    #[source_code]
    file: NamedSource<String>,
    #[label]
    pub(super) at: Option<SourceSpan>,
    #[help]
    pub(super) help: Option<String>,
}

impl FileError {
    pub(super) fn new(name: &str, text: &str, wrong: Wrong) -> Self {
        Self {
            message: masked_message(&wrong.message),
            file: NamedSource::new(name, masked_file(text)),
            at: wrong.at.map(Into::into),
            help: wrong.help.as_deref().map(masked_message),
        }
    }

    /// In which line and column it begins, both from 1, if it is at one place.
    #[must_use]
    pub fn place(&self) -> Option<(usize, usize)> {
        let before = self.file.inner().get(..self.at?.offset())?;
        let line = before.rsplit('\n').next().unwrap_or_default();
        Some((before.matches('\n').count() + 1, line.chars().count() + 1))
    }

    /// What to write instead, where the message does not say so itself.
    #[must_use]
    pub fn remedy(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// The file's name, the place, what is wrong there and the remedy, in one line.
    #[must_use]
    pub fn line(&self) -> String {
        let place = self.place().map_or(String::new(), |(line, column)| format!(":{line}:{column}"));
        let remedy = self.remedy().map_or(String::new(), |remedy| format!(": {remedy}"));
        format!("{}{place}: {}{remedy}", self.file.name(), self.message)
    }
}

/// There is no configuration.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read {path}: {error}")]
    Io {
        /// Which.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// The file is no text.
    #[error("{path}:{line}: not UTF-8: save the file as UTF-8 text")]
    NotText {
        /// Which.
        path: String,
        /// Where, from 1.
        line: usize,
    },
    /// The file is something else.
    #[error("{path} has more than 16 MiB: that is no configuration")]
    TooLarge {
        /// Which.
        path: String,
    },
    /// The file makes no sense.
    #[error(transparent)]
    #[diagnostic(transparent)]
    File(#[from] Box<FileError>),
    /// The flags make no sense.
    #[error(transparent)]
    Flag(#[from] FlagError),
}
