//! A new record, with the facts of its environment: the machine and this build.

use std::{
    path::Path,
    process::{Command, Stdio},
    thread,
};

use stockade_model::{proc, seed::Seed};
use stockade_record::{
    clock,
    record::{ClockKind, Host, Record, SCHEMA, Verdict},
};

/// Version, commit, and any optimisation level but 3: `0.1.0 (8bc1969b7c2e, opt-level 1)`.
#[must_use]
pub fn stockade_version() -> String {
    match option_env!("STOCKADE_BUILD") {
        Some(build) => format!("{} ({build})", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// The commit of the repository that has this folder, with `-dirty` if files differ from it; `None` outside of one, or without git.
pub(crate) fn commit(folder: &Path) -> Option<String> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let mut git = Command::new("git");
    git.arg("-C").arg(folder).args(["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]);
    // A run changes nothing in the repository, not even its index.
    git.env("GIT_OPTIONAL_LOCKS", "0").stdin(Stdio::null());
    let output = git.output().ok().filter(|output| output.status.success())?;
    let commit = String::from_utf8(output.stdout).ok()?;
    Some(commit.trim().to_owned()).filter(|commit| !commit.is_empty())
}

/// This machine, as far as Linux reports it. Unknown facts are empty or 0.
#[must_use]
pub fn host() -> Host {
    Host {
        cpu: proc::cpu_model().unwrap_or_default(),
        cores: thread::available_parallelism().map_or(0, usize::from),
        memory_mib: proc::memory_total_bytes().unwrap_or_default() >> 20,
        os: format!("Linux {}", proc::kernel_release().unwrap_or_default()),
    }
}

/// The record of one measurement that begins now, without claims. Test and arm are to be added.
#[must_use]
pub fn new_record(title: &str, seed: Seed) -> Record {
    Record {
        schema: SCHEMA.to_owned(),
        experiment: title.to_owned(),
        context: None,
        spec: String::new(),
        seed,
        scale: 1.0,
        repeats: 1,
        clock: ClockKind::Live,
        started_at: clock::now(),
        stockade: stockade_version(),
        commit: None,
        host: host(),
        planned: 1,
        interrupted: true,
        in_progress: true,
        aborted: None,
        tests: Vec::new(),
        arms: Vec::new(),
        noise: None,
        runs: Vec::new(),
        looks: Vec::new(),
        reference: None,
        hypotheses: Vec::new(),
        verdict: Verdict::Inconclusive,
    }
}
