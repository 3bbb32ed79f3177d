//! The samples of `stockade load`.

use std::{error::Error, fs, path::Path, process::Command};

use crate::generators::stockade;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Due time in ns since the epoch.
    pub due_ns: u64,
    /// The status of its response; 0: no response.
    pub code: u16,
    /// From the due time to the last byte of the response.
    pub took_ns: u64,
}

impl Sample {
    /// The time of the last byte, in ns since the epoch.
    #[must_use]
    pub fn ended_ns(&self) -> u64 {
        self.due_ns + self.took_ns
    }
}

/// Starts `stockade load`, which writes its samples into a file.
pub fn load(folder: &Path, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(stockade()?);
    command.arg("load").args(arguments).arg("--out").arg(folder.join("samples.csv"));
    Ok(command)
}

/// The samples of a finished load, in the order of their due times.
pub fn read(folder: &Path) -> Result<Vec<Sample>> {
    let text = fs::read_to_string(folder.join("samples.csv"))?;
    let mut samples = text.lines().map(sample).collect::<Result<Vec<_>>>()?;
    samples.sort_unstable_by_key(|sample| sample.due_ns);
    Ok(samples)
}

fn sample(line: &str) -> Result<Sample> {
    let mut fields = line.split(',');
    let mut next = || fields.next().ok_or("a sample that is cut off");
    Ok(Sample { due_ns: next()?.parse()?, code: next()?.parse()?, took_ns: next()?.parse()? })
}

/// The quantile of sorted values; there must be at least one.
#[must_use]
pub fn quantile(sorted: &[u64], share: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
    let at = (share * sorted.len() as f64) as usize;
    sorted[at.min(sorted.len() - 1)]
}
