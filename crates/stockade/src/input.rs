//! An input of a command: a file, or standard input.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use crate::exit::CommandError;

/// A file, or standard input for `-`, up to a bound.
pub struct Input {
    /// Its name in messages.
    pub name: String,
    reader: io::Take<Box<dyn Read>>,
}

impl Input {
    /// Opens it. At most `bytes_max` and one more byte are read: with that byte, it is too large.
    pub fn open_truncated(path: &Path, bytes_max: u64) -> Result<Self, CommandError> {
        let is_stdin = path == Path::new("-");
        let name = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
        let reader: Box<dyn Read> = if is_stdin {
            Box::new(io::stdin().lock())
        } else {
            Box::new(File::open(path).map_err(|error| unreadable(&name, &error))?)
        };
        Ok(Self { name, reader: reader.take(bytes_max + 1) })
    }

    /// All of it, as text.
    pub fn text(&mut self) -> Result<String, CommandError> {
        let mut text = String::new();
        self.reader.read_to_string(&mut text).map_err(|error| unreadable(&self.name, &error))?;
        Ok(text)
    }

    /// All of it.
    pub fn bytes(&mut self) -> Result<Vec<u8>, CommandError> {
        let mut bytes = Vec::new();
        self.reader.read_to_end(&mut bytes).map_err(|error| unreadable(&self.name, &error))?;
        Ok(bytes)
    }
}

fn unreadable(name: &str, error: &io::Error) -> CommandError {
    CommandError::Usage(format!("cannot read {name}: {error}"))
}
