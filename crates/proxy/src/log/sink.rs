//! Where lines end up, and what happens when they cannot.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::LogError;

/// How often standard error is told that lines were dropped.
const WARN_EVERY: Duration = Duration::from_mins(1);

/// Where lines are to be written.
#[derive(Debug)]
pub(super) enum Target {
    Stdout,
    File(PathBuf),
    /// Whatever a test makes of them.
    #[cfg(test)]
    Test(super::tests::Paper),
}

/// Where lines are written.
pub(super) struct Sink {
    target: Target,
    output: Box<dyn Write + Send>,
    /// The last line that was written has no end.
    is_cut: bool,
    warnings: Warnings,
    /// Why it could not be written to, last.
    error: Option<io::Error>,
}

impl Target {
    /// `None`: standard output.
    pub(super) fn of(path: Option<&Path>) -> Self {
        path.map_or(Self::Stdout, |path| Self::File(path.to_owned()))
    }

    fn open(&self) -> io::Result<Box<dyn Write + Send>> {
        Ok(match self {
            // Not through the library's buffer, which does not say how much of it was written.
            Self::Stdout => Box::new(File::from(io::stdout().as_fd().try_clone_to_owned()?)),
            Self::File(path) => Box::new(OpenOptions::new().append(true).create(true).open(path)?),
            #[cfg(test)]
            Self::Test(paper) => Box::new(paper.clone()),
        })
    }

    fn name(&self) -> String {
        match self {
            Self::Stdout => "standard output".to_owned(),
            Self::File(path) => path.display().to_string(),
            #[cfg(test)]
            Self::Test(_) => "paper".to_owned(),
        }
    }
}

impl Sink {
    pub(super) fn open(target: Target) -> Result<Self, LogError> {
        match target.open() {
            Ok(output) => {
                let warnings = Warnings::default();
                Ok(Self { target, output, is_cut: false, warnings, error: None })
            }
            Err(error) => Err(LogError::Open { path: target.name(), error }),
        }
    }

    /// Writes lines, each with its end; says how many were lost.
    pub(super) fn write(&mut self, lines: &[u8]) -> u64 {
        if lines.is_empty() {
            return 0;
        }
        if self.is_cut {
            match write_some(&mut *self.output, b"\n") {
                Ok(()) => self.is_cut = false,
                Err((_, error)) => {
                    self.error = Some(error);
                    return count(lines);
                }
            }
        }
        match write_some(&mut *self.output, lines) {
            Ok(()) => 0,
            Err((written, error)) => {
                self.error = Some(error);
                self.is_cut = written > 0 && lines[written - 1] != b'\n';
                count(&lines[written..])
            }
        }
    }

    /// Opens the file anew; the old one is kept if that fails.
    pub(super) fn reopen(&mut self) {
        match self.target.open() {
            Ok(output) => {
                self.output = output;
                self.is_cut = false;
            }
            Err(error) => say(&format!(
                "the access log stays where it was: cannot open {} anew: {error}",
                self.target.name()
            )),
        }
    }

    /// Goes on elsewhere; whether that can be opened.
    pub(super) fn turn_to(&mut self, target: Target) -> bool {
        let old = std::mem::replace(&mut self.target, target);
        match self.target.open() {
            Ok(output) => {
                self.output = output;
                self.is_cut = false;
                true
            }
            Err(error) => {
                let new = std::mem::replace(&mut self.target, old).name();
                say(&format!("the access log stays where it was: cannot open {new}: {error}"));
                false
            }
        }
    }

    /// Tells standard error how many lines were dropped, if there are more than it knows of and it was not told just
    /// now.
    pub(super) fn warn(&mut self, dropped: u64) {
        #[expect(clippy::disallowed_methods, reason = "a warning a minute is one of real minutes")]
        let Some(new) = self.warnings.due(Instant::now(), dropped) else { return };
        let why = match self.error.take() {
            Some(error) => format!("{} could not be written to: {error}", self.target.name()),
            None => format!("{} is slower than the requests", self.target.name()),
        };
        say(&format!("the access log lacks {new} lines: {why}; it goes on as soon as it can"));
    }
}

/// When to warn of lines that were dropped.
#[derive(Debug, Default)]
struct Warnings {
    told: u64,
    last: Option<Instant>,
}

impl Warnings {
    /// How many are to be told of now.
    fn due(&mut self, now: Instant, dropped: u64) -> Option<u64> {
        let new = dropped.saturating_sub(self.told);
        let is_too_soon = self.last.is_some_and(|last| now.saturating_duration_since(last) < WARN_EVERY);
        if new == 0 || is_too_soon {
            return None;
        }
        self.told = dropped;
        self.last = Some(now);
        Some(new)
    }
}

/// Standard error may be closed, too.
fn say(message: &str) {
    let _ = writeln!(io::stderr(), "stockade: {message}");
}

/// Writes it all, or says how much of it was written.
fn write_some(output: &mut dyn Write, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while written < bytes.len() {
        match output.write(&bytes[written..]) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

fn count(lines: &[u8]) -> u64 {
    lines.split(|byte| *byte == b'\n').count() as u64 - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_due_once_a_minute_and_tells_of_all_since_the_last() {
        #[expect(
            clippy::disallowed_methods,
            reason = "an Instant has no other beginning; nothing waits for it"
        )]
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut warnings = Warnings::default();
        assert_eq!(warnings.due(at(0), 0), None);
        assert_eq!(warnings.due(at(1), 3), Some(3));
        assert_eq!(warnings.due(at(2), 7), None);
        assert_eq!(warnings.due(at(60), 9), None);
        assert_eq!(warnings.due(at(61), 9), Some(6));
        assert_eq!(warnings.due(at(200), 9), None);
    }
}
