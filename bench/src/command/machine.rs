//! The machine, the sources and the versions of peers.

use std::{fs, path::Path, process::Command, thread, time::Duration};

use serde::{Deserialize, Serialize};
use stockade_lab::host;
use stockade_model::proc::CpuTicks;

/// The versions of the Rust peers.
const LOCK: &str = include_str!("../../Cargo.lock");

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory_mib: u64,
    /// `Linux 6.1.0`.
    pub os: String,
    /// `virtual machine`, `container`, both, or `no`.
    pub virtualised: String,
}

impl Machine {
    #[must_use]
    pub fn this() -> Self {
        let host = host::host();
        let has_hypervisor =
            fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains(" hypervisor"));
        let is_container = ["/.dockerenv", "/run/.containerenv"].iter().any(|file| Path::new(file).exists());
        let kinds = [(has_hypervisor, "virtual machine"), (is_container, "container")];
        let kinds: Vec<_> = kinds.iter().filter(|(is_so, _)| *is_so).map(|(_, kind)| *kind).collect();
        let virtualised = if kinds.is_empty() { "no".to_owned() } else { kinds.join(", ") };
        Self { cpu: host.cpu, cores: host.cores, memory_mib: host.memory_mib, os: host.os, virtualised }
    }
}

/// The share of all processors that is busy during a second.
#[must_use]
pub fn busy_share() -> f64 {
    let Some(before) = CpuTicks::now() else { return 0.0 };
    thread::sleep(Duration::from_secs(1));
    CpuTicks::now().and_then(|now| now.busy_share_since(before)).unwrap_or_default()
}

/// The commit of the sources; `unknown` outside of a repository.
#[must_use]
pub fn commit() -> String {
    let folder = env!("CARGO_MANIFEST_DIR");
    // Results are not sources.
    let status = printed(Command::new("git").args([
        "-C",
        folder,
        "status",
        "--porcelain",
        "--",
        ":!RESULTS.md",
        ":!results",
    ]));
    let commit = printed(Command::new("git").args(["-C", folder, "rev-parse", "--short=12", "HEAD"]));
    match commit {
        Some(commit) if status.is_some_and(|status| status.is_empty()) => commit,
        Some(commit) => format!("{commit}-dirty"),
        None => "unknown".to_owned(),
    }
}

/// The version of a program, or of a package in Cargo.lock; `None` of a program that is not installed.
#[must_use]
pub fn version(peer: &str) -> Option<String> {
    if let Some((_, rest)) = LOCK.split_once(&format!("name = \"{peer}\"\nversion = \"")) {
        return Some(rest.split('"').next()?.to_owned());
    }
    if !crate::process::is_installed(peer) {
        return None;
    }
    let flag = match peer {
        "nginx" | "wrk" => "-v",
        "varnishd" => "-V",
        _ => "--version",
    };
    let output = Command::new(peer).arg(flag).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    parse_version(&String::from_utf8_lossy(&text)).or(Some("of unknown version".to_owned()))
}

/// The first word that looks like a version.
fn parse_version(text: &str) -> Option<String> {
    let words = text.split(|char: char| !(char.is_ascii_alphanumeric() || "._-".contains(char)));
    let version = |word: &str| {
        let at = word.find(|char: char| char.is_ascii_digit())?;
        let version = word[at..].split('-').next()?;
        (version.contains('.') && !version.ends_with('.')).then(|| version.to_owned())
    };
    words.into_iter().find_map(version)
}

/// The output of a command that succeeds.
fn printed(command: &mut Command) -> Option<String> {
    let output =
        command.env("GIT_OPTIONAL_LOCKS", "0").output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_print() {
        let cases = [
            ("nginx version: nginx/1.22.1", "1.22.1"),
            ("varnishd (varnish-7.1.1 revision 7cee1c5)", "7.1.1"),
            ("wrk debian/4.1.0-3+b2 [epoll] Copyright (C) 2012", "4.1.0"),
            ("h2load nghttp2/1.52.0", "1.52.0"),
            ("SIEGE 4.0.7\n\nCopyright (C) 2023", "4.0.7"),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_version(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(parse_version("no number"), None);
        assert!(version("quick_cache").is_some_and(|version| version.starts_with("0.7")));
    }
}
