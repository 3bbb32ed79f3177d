//! The real world around a run: the machine, the calendar, who we are.

use std::{fs, thread};

use stockade_model::record::Host;

/// Version and commit of this Stockade, and how it was optimised if not for speed: `0.1.0 (8bc1969b7c2e, opt-level 1)`.
#[must_use]
pub fn stockade() -> String {
    match option_env!("STOCKADE_BUILD") {
        Some(build) => format!("{} ({build})", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// The time of day, RFC 3339 in UTC, to the second.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a record says when it was made")]
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// This machine, as far as Linux tells. What it does not tell is empty or 0.
#[must_use]
pub fn host() -> Host {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let memory_kib = field(&read("/proc/meminfo"), "MemTotal");
    let memory_kib = memory_kib.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok());
    Host {
        cpu: field(&read("/proc/cpuinfo"), "model name"),
        cores: thread::available_parallelism().map_or(0, usize::from),
        memory_mib: memory_kib.unwrap_or_default() / 1024,
        os: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
    }
}
