//! Measurements in their own process, since an allocator seldom returns memory.

use std::{env, error::Error, fs, path::PathBuf, process::Command};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Runs this program once more, with `arguments`, and returns the figures that it prints.
pub fn measure_child<const N: usize>(arguments: &[&str]) -> Result<[f64; N]> {
    let output = Command::new(env::current_exe()?).args(arguments).output()?;
    if !output.status.success() {
        return Err(format!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let printed = String::from_utf8(output.stdout)?;
    let figures: Vec<f64> =
        printed.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>()?;
    figures.try_into().map_err(|_| format!("{arguments:?} printed {printed:?}").into())
}

/// True if a program is in a folder of [`search_path`].
#[must_use]
pub fn is_installed(program: &str) -> bool {
    search_path().iter().any(|folder| folder.join(program).is_file())
}

/// The folders of `PATH`, and those of servers, which users other than root may not have in it.
#[must_use]
pub fn search_path() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]).collect()
}

/// The processor time of a process, user and system, in Linux's unit of 10 ms.
pub fn cpu_seconds(process: u32) -> Result<f64> {
    of_stat(process, [11, 12])
}

/// The processor time of all ended children of this process.
pub fn children_cpu_seconds() -> Result<f64> {
    of_stat(std::process::id(), [13, 14])
}

/// True if a child has ended. Its times stay until it is waited for.
pub fn has_ended(process: u32) -> Result<bool> {
    Ok(stat(process)?.starts_with('Z'))
}

/// Two fields of `/proc/PID/stat`, counted from the one after the name.
fn of_stat(process: u32, fields: [usize; 2]) -> Result<f64> {
    let stat = stat(process)?;
    let after: Vec<&str> = stat.split(' ').collect();
    Ok(fields.iter().map(|field| after[*field].parse::<f64>()).sum::<std::result::Result<f64, _>>()? / 100.0)
}

/// `/proc/PID/stat` after the name.
fn stat(process: u32) -> Result<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    Ok(stat.rsplit_once(") ").ok_or("no such process")?.1.to_owned())
}

/// The resident bytes of this process.
pub fn resident_bytes() -> Result<u64> {
    status("self", "VmRSS:")
}

/// The resident bytes of a process.
pub fn resident_bytes_of(process: u32) -> Result<u64> {
    status(&process.to_string(), "VmRSS:")
}

/// The peak of the resident bytes of this process.
pub fn peak_resident_bytes() -> Result<u64> {
    status("self", "VmHWM:")
}

/// A line of `/proc/PID/status`, which counts in KiB.
fn status(process: &str, field: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.ok_or_else(|| format!("/proc/{process}/status has no {field}"))?.parse::<u64>()? * 1024)
}
