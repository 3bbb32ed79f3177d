//! Errors of configuration files and flags.

use miette::{Diagnostic, NamedSource, SourceSpan};
use stockade_cache::spec::TomlError;
use stockade_source::secrets::{masked_file, masked_message};

use super::FlagError;

/// An invalid file. Shows the position and a remedy, and no secrets.
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
    position: Option<(usize, usize)>,
}

impl FileError {
    pub(super) fn new(name: &str, text: &str, wrong: TomlError) -> Self {
        Self {
            position: wrong.position(text),
            message: masked_message(&wrong.message),
            file: NamedSource::new(name, masked_file(text)),
            at: wrong.span.map(Into::into),
            help: wrong.help.as_deref().map(masked_message),
        }
    }

    /// Line and column, from 1.
    #[must_use]
    pub fn position(&self) -> Option<(usize, usize)> {
        self.position
    }

    /// If the message does not contain it.
    #[must_use]
    pub fn remedy(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// File name, position, message and remedy in one line.
    #[must_use]
    pub fn line(&self) -> String {
        let position = self.position().map_or(String::new(), |(line, column)| format!(":{line}:{column}"));
        let remedy = self.remedy().map_or(String::new(), |remedy| format!(": {remedy}"));
        let line = format!("{}{position}: {}{remedy}", self.file.name(), self.message);
        // A message may quote a string of the file.
        line.replace(char::is_control, "\u{fffd}")
    }
}

#[derive(Debug, thiserror::Error, Diagnostic)]
pub enum ConfigError {
    #[error("cannot read {path}: {error}")]
    Io { path: String, error: std::io::Error },
    #[error("{path}:{line}: not UTF-8: save the file as UTF-8 text")]
    NotText {
        path: String,
        /// From 1.
        line: usize,
    },
    #[error("{path} is larger than 16 MiB: it is not a configuration file")]
    TooLarge { path: String },
    #[error(transparent)]
    #[diagnostic(transparent)]
    File(#[from] Box<FileError>),
    #[error(transparent)]
    Flag(#[from] FlagError),
}
