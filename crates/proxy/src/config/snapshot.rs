//! `[snapshot]`: the entries of the cache in a file.

use std::{path::PathBuf, time::Duration};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotConfig {
    pub path: PathBuf,
    /// Between two snapshots.
    pub every: Duration,
}

impl SnapshotConfig {
    /// Between two snapshots, without `every`.
    pub const EVERY: Duration = Duration::from_mins(1);
}
