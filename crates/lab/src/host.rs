//! Facts of the environment for the record: the machine, the time, this build.

use std::{
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Instant,
};

use stockade_model::proc;
use stockade_record::record::Host;

/// Version, commit, and any optimisation level but 3: `0.1.0 (8bc1969b7c2e, opt-level 1)`.
#[must_use]
pub fn stockade() -> String {
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

/// The current time, RFC 3339 in UTC, in seconds.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a record says when it was made")]
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Real time, for processes and budgets.
#[expect(clippy::disallowed_methods, reason = "processes and budgets use real time")]
pub(crate) fn instant() -> Instant {
    Instant::now()
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
