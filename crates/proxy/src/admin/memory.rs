//! How much memory this program has.

use std::fs;

/// Bytes of memory that this program has in use, as the kernel counts them (`VmRSS` of `/proc/self/status`); `None`:
/// the kernel does not say.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    kib.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_program_has_some_memory() {
        assert!(super::resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
