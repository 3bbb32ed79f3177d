//! The file or pipe that lines are written to, and what happens when it fails.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::AccessLogError;

/// At most one warning of dropped lines a period.
const WARNING_PERIOD: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) enum LogDestination {
    Stdout,
    File(PathBuf),
    #[cfg(test)]
    Test(super::tests::TestOutput),
}

pub(super) struct LogOutput {
    destination: LogDestination,
    writer: Box<dyn Write + Send>,
    /// The last line lacks its end.
    is_mid_line: bool,
    warnings: DropWarnings,
    /// Of the last failed write.
    error: Option<io::Error>,
}

impl LogDestination {
    /// `None`: standard output.
    pub(super) fn from_path(path: Option<&Path>) -> Self {
        path.map_or(Self::Stdout, |path| Self::File(path.to_owned()))
    }

    fn open(&self) -> io::Result<Box<dyn Write + Send>> {
        Ok(match self {
            // Not through `io::Stdout`: its buffer does not report how much was written.
            Self::Stdout => Box::new(File::from(io::stdout().as_fd().try_clone_to_owned()?)),
            // Not for other users: URLs may contain secrets.
            Self::File(path) => {
                Box::new(OpenOptions::new().append(true).create(true).mode(0o640).open(path)?)
            }
            #[cfg(test)]
            Self::Test(output) => Box::new(output.clone()),
        })
    }

    fn name(&self) -> String {
        match self {
            Self::Stdout => "standard output".to_owned(),
            Self::File(path) => path.display().to_string(),
            #[cfg(test)]
            Self::Test(_) => "test output".to_owned(),
        }
    }
}

impl LogOutput {
    pub(super) fn open(destination: LogDestination) -> Result<Self, AccessLogError> {
        match destination.open() {
            Ok(writer) => {
                let warnings = DropWarnings::default();
                Ok(Self { destination, writer, is_mid_line: false, warnings, error: None })
            }
            Err(error) => Err(AccessLogError::Open { path: destination.name(), error }),
        }
    }

    /// Writes complete lines. Returns how many were dropped.
    pub(super) fn write(&mut self, lines: &[u8]) -> u64 {
        if lines.is_empty() {
            return 0;
        }
        if self.is_mid_line {
            match write_all_counted(&mut *self.writer, b"\n") {
                Ok(()) => self.is_mid_line = false,
                Err((_, error)) => {
                    self.error = Some(error);
                    return count_lines(lines);
                }
            }
        }
        match write_all_counted(&mut *self.writer, lines) {
            Ok(()) => 0,
            Err((written, error)) => {
                self.error = Some(error);
                self.is_mid_line = written > 0 && lines[written - 1] != b'\n';
                count_lines(&lines[written..])
            }
        }
    }

    /// On an error the old file stays open.
    pub(super) fn reopen(&mut self) {
        match self.destination.open() {
            Ok(writer) => {
                self.writer = writer;
                self.is_mid_line = false;
            }
            Err(error) => warn(&format!(
                "the access log keeps its old file: cannot reopen {}: {error}",
                self.destination.name()
            )),
        }
    }

    /// False: the new destination cannot be opened, and the old one stays.
    pub(super) fn switch_to(&mut self, destination: LogDestination) -> bool {
        let old = std::mem::replace(&mut self.destination, destination);
        match self.destination.open() {
            Ok(writer) => {
                self.writer = writer;
                self.is_mid_line = false;
                true
            }
            Err(error) => {
                let new = std::mem::replace(&mut self.destination, old).name();
                warn(&format!("the access log keeps its old file: cannot open {new}: {error}"));
                false
            }
        }
    }

    /// Writes a warning to standard error if lines were dropped since the last one and [`WARNING_PERIOD`] has passed.
    pub(super) fn warn_of_drops(&mut self, dropped: u64) {
        #[expect(clippy::disallowed_methods, reason = "the period is one of real minutes")]
        let Some(new) = self.warnings.due(Instant::now(), dropped) else { return };
        let reason = match self.error.take() {
            Some(error) => format!("cannot write to {}: {error}", self.destination.name()),
            None => format!("{} takes lines slower than requests arrive", self.destination.name()),
        };
        warn(&format!(
            "the access log dropped {new} lines: {reason}; it continues when the output takes lines again"
        ));
    }
}

#[derive(Debug, Default)]
struct DropWarnings {
    /// Dropped lines that warnings have named.
    warned: u64,
    last: Option<Instant>,
}

impl DropWarnings {
    /// How many lines a warning has to name now.
    fn due(&mut self, now: Instant, dropped: u64) -> Option<u64> {
        let new = dropped.saturating_sub(self.warned);
        let is_too_soon = self.last.is_some_and(|last| now.saturating_duration_since(last) < WARNING_PERIOD);
        if new == 0 || is_too_soon {
            return None;
        }
        self.warned = dropped;
        self.last = Some(now);
        Some(new)
    }
}

/// Ignores errors: standard error may be closed too.
fn warn(message: &str) {
    let _ = writeln!(io::stderr(), "stockade: {message}");
}

/// On an error, returns how many bytes were written.
fn write_all_counted(output: &mut dyn Write, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while written < bytes.len() {
        match output.write(&bytes[written..]) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(bytes) => written += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

fn count_lines(lines: &[u8]) -> u64 {
    lines.split(|byte| *byte == b'\n').count() as u64 - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_a_minute_apart_and_count_all_drops() {
        #[expect(clippy::disallowed_methods, reason = "an Instant can only be made by now(); nothing waits")]
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut warnings = DropWarnings::default();
        assert_eq!(warnings.due(at(0), 0), None);
        assert_eq!(warnings.due(at(1), 3), Some(3));
        assert_eq!(warnings.due(at(2), 7), None);
        assert_eq!(warnings.due(at(60), 9), None);
        assert_eq!(warnings.due(at(61), 9), Some(6));
        assert_eq!(warnings.due(at(200), 9), None);
    }
}
