//! The file of a bench: the figures of its last run, as they were measured.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    command::machine::Machine,
    suite::{Figure, Result},
};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// RFC 3339, UTC: the start of the first sitting.
    pub began: String,
    /// The commit of the sources, with `-dirty` if files differ from it.
    pub commit: String,
    pub machine: Machine,
    /// Names and versions of the peers.
    pub peers: Vec<(String, String)>,
    /// Programs that were not installed: their rows are missing.
    pub missing: Vec<String>,
    pub sittings: Vec<SittingRecord>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SittingRecord {
    pub seed: u64,
    pub seconds: f64,
    /// The share of all processors that other programs used in the second before the sitting.
    pub busy_before: f64,
    pub figures: Vec<Figure>,
}

impl Record {
    /// `None`: the bench has no record yet.
    pub fn read(folder: &Path, bench: &str) -> Result<Option<Self>> {
        let file = folder.join("results").join(format!("{bench}.json"));
        if !file.exists() {
            return Ok(None);
        }
        let place = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let text = fs::read_to_string(&file).map_err(|error| place(&error))?;
        Ok(Some(serde_json::from_str(&text).map_err(|error| place(&error))?))
    }

    pub fn write(&self, folder: &Path, bench: &str) -> Result<()> {
        let folder = folder.join("results");
        fs::create_dir_all(&folder)?;
        Ok(fs::write(folder.join(format!("{bench}.json")), serde_json::to_string_pretty(self)? + "\n")?)
    }
}
