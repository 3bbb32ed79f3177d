//! Measurements that need a process of their own: memory that was used once is seldom given back.

use std::{env, error::Error, fs, process::Command};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Runs this program once more, with `arguments`, and returns the figures that it prints.
pub fn measure<const N: usize>(arguments: [&str; 2]) -> Result<[f64; N]> {
    let output = Command::new(env::current_exe()?).args(arguments).output()?;
    if !output.status.success() {
        return Err(format!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let printed = String::from_utf8(output.stdout)?;
    let figures: Vec<f64> =
        printed.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>()?;
    figures.try_into().map_err(|_| format!("{arguments:?} printed {printed:?}").into())
}

/// How many bytes of this process are in memory now.
pub fn resident_bytes() -> Result<u64> {
    status("VmRSS:")
}

/// How many bytes of this process were in memory when they were most.
pub fn peak_resident_bytes() -> Result<u64> {
    status("VmHWM:")
}

/// A line of `/proc/self/status`, which counts in KiB.
fn status(field: &str) -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.ok_or_else(|| format!("/proc/self/status has no {field}"))?.parse::<u64>()? * 1024)
}
