//! Errors of configuration files and flags.

use miette::{Diagnostic, NamedSource, SourceSpan};
use stockade_cache::spec::{Span, TomlError};
use stockade_source::secrets::{masked_file, masked_message};
use toml::de::{DeTable, DeValue};

use super::FlagError;

/// A setting that is wrong together with others, or with the program.
#[derive(Debug)]
pub(super) struct SettingError {
    /// Its keys, and the indices in lists, as in `origin.0.url`; empty if it concerns the whole file.
    path: String,
    pub(super) message: String,
    help: Option<String>,
}

impl SettingError {
    pub(super) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into(), help: None }
    }

    pub(super) fn with_help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// The error at the place of the setting in the file, or of the table that lacks it.
    pub(super) fn locate(self, text: &str) -> TomlError {
        let Self { path, message, help } = self;
        let span =
            DeTable::parse(text).ok().and_then(|file| place(&DeValue::Table(file.into_inner()), &path));
        TomlError { message, span, help }
    }
}

fn place(value: &DeValue<'_>, path: &str) -> Span {
    let (key, rest) = path.split_once('.').unwrap_or((path, ""));
    let inner = match value {
        DeValue::Table(table) => table.iter().find(|(name, _)| name.get_ref() == key)?.1,
        DeValue::Array(list) => list.get(key.parse::<usize>().ok()?)?,
        _ => return None,
    };
    place(inner.get_ref(), rest).or_else(|| Some(inner.span()))
}

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
