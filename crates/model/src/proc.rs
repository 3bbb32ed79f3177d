//! Figures from Linux's `/proc`, and the limit on open files. `None`: Linux does not report the figure, or the process has ended.

mod threads;

use std::{fs, time::Duration};

use rustix::{
    param::{clock_ticks_per_second, page_size},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

pub use threads::{SchedulerTimes, ThreadId, ThreadTimes, thread_times};

/// Resident memory of a process.
#[must_use]
pub fn resident_bytes(pid: u32) -> Option<u64> {
    parse_resident_pages(&fs::read_to_string(format!("/proc/{pid}/statm")).ok()?).map(pages_to_bytes)
}

/// Resident memory of this process.
#[must_use]
pub fn own_resident_bytes() -> Option<u64> {
    parse_resident_pages(&fs::read_to_string("/proc/self/statm").ok()?).map(pages_to_bytes)
}

/// Resident memory of this process without that of files in memory.
#[must_use]
pub fn own_unshared_bytes() -> Option<u64> {
    parse_unshared_kib(&fs::read_to_string("/proc/self/status").ok()?).map(|kib| kib << 10)
}

/// Raises the soft limit on open files of this process to the hard one, and returns the limit. Many systems have a soft limit of
/// 1,024, for programs that use `select`.
#[must_use]
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // A limit that cannot be raised stays as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Processor time of a process, user and system.
#[must_use]
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let ticks = parse_cpu_ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    Some(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
}

/// Time in which threads of a process were ready and waited for a processor, summed over its threads.
#[must_use]
pub fn run_delay(pid: u32) -> Option<Duration> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    // A thread that has just ended has no figure.
    let delays = threads
        .filter_map(|thread| parse_run_delay(&fs::read_to_string(thread.path().join("schedstat")).ok()?));
    delays.reduce(|sum, delay| sum + delay)
}

/// True if a process is stopped, by SIGSTOP or by a terminal.
#[must_use]
pub fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    parse_state(&stat) == Some("T")
}

/// Time in which the control group of this process had used up its quota of processor time.
#[must_use]
pub fn throttled_time() -> Option<Duration> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().find_map(|line| {
        let (hierarchy, controllers, group) = split_control_group(line)?;
        let directory = match hierarchy {
            "0" => format!("/sys/fs/cgroup{group}"),
            _ if controllers.split(',').any(|controller| controller == "cpu") => {
                format!("/sys/fs/cgroup/{controllers}{group}")
            }
            _ => return None,
        };
        parse_throttled(&fs::read_to_string(format!("{directory}/cpu.stat")).ok()?)
    })
}

/// A process and its descendants, parents first: a master process and its workers.
#[must_use]
pub fn process_tree(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return vec![pid] };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, u32)> = pids
        .filter_map(|pid| Some((pid, parse_parent(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect();
    let mut tree = vec![pid];
    let mut at = 0;
    while let Some(parent) = tree.get(at).copied() {
        tree.extend(
            parents
                .iter()
                .filter(|(pid, of)| *of == parent && !tree.contains(pid))
                .map(|(pid, _)| *pid)
                .collect::<Vec<_>>(),
        );
        at += 1;
    }
    tree
}

/// Memory of a process where pages that `n` processes share count as `1/n` (PSS): what related processes take adds up to their
/// memory. `None` also if this process may not read it.
#[must_use]
pub fn proportional_bytes(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let kib = parse_field(&text, "Pss")?.strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    kib.checked_mul(1_024)
}

/// `MemTotal`.
#[must_use]
pub fn memory_total_bytes() -> Option<u64> {
    let kib = parse_field(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal")?
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?;
    kib.checked_mul(1_024)
}

/// Model of the first processor.
#[must_use]
pub fn cpu_model() -> Option<String> {
    parse_field(&fs::read_to_string("/proc/cpuinfo").ok()?, "model name").map(str::to_owned)
}

/// Version of the kernel.
#[must_use]
pub fn kernel_release() -> Option<String> {
    Some(fs::read_to_string("/proc/sys/kernel/osrelease").ok()?.trim().to_owned())
}

/// Time of all processors since the machine started, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTicks {
    total: u64,
    /// Idle, or waiting for a disk.
    idle: u64,
    /// Time in which the hypervisor ran other machines.
    stolen: u64,
}

impl CpuTicks {
    #[must_use]
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Share of processor time that was stolen since then, 0 to 1.
    #[must_use]
    pub fn stolen_share_since(self, earlier: Self) -> Option<f64> {
        let total = self.total.checked_sub(earlier.total).filter(|total| *total > 0)?;
        Some(self.stolen.saturating_sub(earlier.stolen) as f64 / total as f64)
    }

    /// Processors of this machine, if `seconds` have passed since then.
    #[must_use]
    pub fn cores_since(self, earlier: Self, seconds: f64) -> f64 {
        (self.total.saturating_sub(earlier.total) as f64 / clock_ticks_per_second() as f64 / seconds).round()
    }

    /// Share of processor time that processes of this machine used since then, 0 to 1.
    #[must_use]
    pub fn busy_share_since(self, earlier: Self) -> Option<f64> {
        let total = self.total.checked_sub(earlier.total).filter(|total| *total > 0)?;
        let unused = self.idle.saturating_sub(earlier.idle) + self.stolen.saturating_sub(earlier.stolen);
        Some(1.0 - (unused as f64 / total as f64).min(1.0))
    }

    /// The first line: user, nice, system, idle, iowait, irq, softirq, steal. The guest times after these are part of
    /// user and nice.
    fn parse(stat: &str) -> Option<Self> {
        let fields = stat.lines().next()?.split_ascii_whitespace().skip(1).take(8);
        let ticks: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>().ok()?;
        let idle = ticks.get(3)? + ticks.get(4)?;
        Some(Self { total: ticks.iter().sum(), idle, stolen: *ticks.get(7)? })
    }
}

fn pages_to_bytes(pages: u64) -> u64 {
    pages * page_size() as u64
}

/// The second field of `/proc/PID/statm`.
fn parse_resident_pages(statm: &str) -> Option<u64> {
    statm.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// `VmRSS` without `RssShmem` of `/proc/PID/status`.
fn parse_unshared_kib(status: &str) -> Option<u64> {
    let field = |name| {
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        value.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    Some(field("VmRSS:")?.saturating_sub(field("RssShmem:")?))
}

/// `utime` and `stime` of `/proc/PID/stat`. The name in parentheses may contain any character.
fn parse_cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit(')').next()?.split_ascii_whitespace().skip(11).map(str::parse::<u64>);
    Some(fields.next()?.ok()? + fields.next()?.ok()?)
}

/// The second field of `/proc/PID/task/TID/schedstat`, in nanoseconds.
fn parse_run_delay(schedstat: &str) -> Option<Duration> {
    schedstat.split_ascii_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// The third field of `/proc/PID/stat`.
fn parse_state(stat: &str) -> Option<&str> {
    stat.rsplit(')').next()?.split_ascii_whitespace().next()
}

/// Hierarchy, controllers and path of a line of `/proc/self/cgroup`.
fn split_control_group(line: &str) -> Option<(&str, &str, &str)> {
    let (hierarchy, rest) = line.split_once(':')?;
    let (controllers, group) = rest.split_once(':')?;
    Some((hierarchy, controllers, group))
}

/// `throttled_usec` of a control group of version 2, `throttled_time` (nanoseconds) of version 1.
fn parse_throttled(stat: &str) -> Option<Duration> {
    let value = |name: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse::<u64>().ok()
    };
    value("throttled_usec")
        .map(Duration::from_micros)
        .or_else(|| value("throttled_time").map(Duration::from_nanos))
}

fn parse_parent(stat: &str) -> Option<u32> {
    stat.rsplit(')').next()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The value of a line `name : value`.
fn parse_field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn own_process_has_memory_and_processor_time() {
        let pid = std::process::id();
        assert!(own_resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
        assert!(resident_bytes(pid).is_some_and(|bytes| bytes > 1 << 20));
        assert!(cpu_time(pid).is_some());
        assert!(memory_total_bytes() > own_resident_bytes());
        assert_eq!((resident_bytes(u32::MAX), cpu_time(u32::MAX)), (None, None));
    }

    #[test]
    fn process_name_may_contain_parentheses_and_spaces() {
        let stat = "7 (a) R 1) S 1 7 7 0 -1 4194560 1 2 3 4 30 12 5 6 20 0 1 0";
        assert_eq!(parse_cpu_ticks(stat), Some(42));
        assert_eq!((parse_parent(stat), parse_parent("")), (Some(1), None));
        assert_eq!((parse_cpu_ticks(""), parse_cpu_ticks("7 (a) S 1")), (None, None));
        assert_eq!((parse_resident_pages("9 5 3 0"), parse_resident_pages("9")), (Some(5), None));
        let status = "Name:\ta\nVmRSS:\t    9 kB\nRssShmem:\t  2 kB\n";
        assert_eq!((parse_unshared_kib(status), parse_unshared_kib("VmRSS:\t9 kB")), (Some(7), None));
    }

    #[test]
    fn waits_stops_and_throttling_are_read() {
        let stat = "7 (a) R 1) T 1 7 7 0 -1";
        assert_eq!((parse_state(stat), parse_state("")), (Some("T"), None));
        assert!(!is_stopped(std::process::id()) && run_delay(std::process::id()).is_some());
        assert_eq!(run_delay(u32::MAX), None);
        assert_eq!(parse_run_delay("502410892 33618861 78"), Some(Duration::from_nanos(33_618_861)));
        assert_eq!(parse_run_delay("1"), None);
        let version_2 = "usage_usec 7\nnr_throttled 2\nthrottled_usec 1500\n";
        assert_eq!(parse_throttled(version_2), Some(Duration::from_micros(1_500)));
        let version_1 = "nr_periods 1\nthrottled_time 1500\n";
        assert_eq!(parse_throttled(version_1), Some(Duration::from_nanos(1_500)));
        assert_eq!(parse_throttled("nr_throttled 2"), None);
        assert_eq!(split_control_group("4:cpu,cpuacct:/a:b"), Some(("4", "cpu,cpuacct", "/a:b")));
    }

    #[test]
    fn tree_has_children_and_grandchildren() {
        let mut shell = Command::new("sh")
            .args(["-c", "sh -c 'cat; true' ; true"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        // The grandchild answers, so it is there.
        let mut input = shell.stdin.take().expect("its input");
        input.write_all(b"x").expect("it reads");
        shell.stdout.as_mut().expect("its output").read_exact(&mut [0]).expect("it answers");
        let tree = process_tree(shell.id());
        assert_eq!((tree[0], tree.len()), (shell.id(), 3), "{tree:?}");
        assert!(
            tree.iter()
                .all(|pid| proportional_bytes(*pid).is_none_or(|bytes| Some(bytes) <= resident_bytes(*pid)))
        );
        drop(input);
        shell.wait().expect("it ends");
        assert_eq!(process_tree(u32::MAX), [u32::MAX]);
    }

    #[test]
    fn field_is_trimmed() {
        let text = "processor\t: 0\nmodel name\t: A CPU @ 2 GHz: fast\nmodel name\t: B\n";
        assert_eq!(parse_field(text, "model name"), Some("A CPU @ 2 GHz: fast"));
        assert_eq!(parse_field(text, "MemTotal"), None);
    }

    #[test]
    fn stolen_time_is_a_share_of_all_time() {
        let before = CpuTicks::parse("cpu  100 0 50 800 5 0 5 40 7 0\ncpu0 1 2 3").expect("ticks");
        let now = CpuTicks::parse("cpu  110 0 55 1660 5 0 10 160 9 0\n").expect("ticks");
        assert_eq!(before, CpuTicks { total: 1000, idle: 805, stolen: 40 });
        let busy = now.busy_share_since(before).expect("a share");
        assert!((busy - 0.02).abs() < 1e-12, "{busy}");
        assert_eq!(now.stolen_share_since(before), Some(0.12));
        assert_eq!(now.stolen_share_since(now), None);
        for invalid in ["", "cpu 1 2 3 4 5 6 7", "cpu a 2 3 4 5 6 7 8"] {
            assert_eq!(CpuTicks::parse(invalid), None, "{invalid}");
        }
    }
}
