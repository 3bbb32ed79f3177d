//! Times of each thread of a process, from `/proc/PID/task/TID`.

use std::{fs, path::Path, time::Duration};

use rustix::param::clock_ticks_per_second;

/// Times of a thread since it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadTimes {
    pub id: ThreadId,
    /// At most 15 bytes: Linux cuts off the rest.
    pub name: String,
    /// Time in user mode, in whole ticks of the kernel (most often 10 ms).
    pub user: Duration,
    /// Time in the kernel, in whole ticks.
    pub system: Duration,
    /// `None`: the kernel does not report it, or the thread has not run yet.
    pub scheduler: Option<SchedulerTimes>,
}

/// A thread of this machine. Linux uses numbers again; the start tells two threads with one number apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ThreadId {
    pub number: u32,
    /// Ticks from the start of the machine to that of the thread.
    pub started: u64,
}

/// Times of a thread that the scheduler counts in nanoseconds. It adds those of a running thread once a tick, and a wait when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerTimes {
    /// On a core.
    pub run: Duration,
    /// Ready, and waiting for a core.
    pub wait: Duration,
}

/// The threads of a process; empty if it has ended.
#[must_use]
pub fn thread_times(pid: u32) -> Vec<ThreadTimes> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    // A thread that has just ended has no times.
    threads.filter_map(|thread| read(&thread.path())).collect()
}

fn read(task: &Path) -> Option<ThreadTimes> {
    let scheduler = fs::read_to_string(task.join("schedstat"));
    let thread = parse_stat(&fs::read_to_string(task.join("stat")).ok()?)?;
    Some(ThreadTimes { scheduler: scheduler.ok().as_deref().and_then(parse_schedstat), ..thread })
}

/// `stat`: number, name in parentheses, which may contain any character, and the other fields from the third on.
fn parse_stat(stat: &str) -> Option<ThreadTimes> {
    let (number, rest) = stat.split_once(" (")?;
    let (name, fields) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let ticks = |count: u64| Duration::from_secs_f64(count as f64 / clock_ticks_per_second() as f64);
    Some(ThreadTimes {
        id: ThreadId { number: number.parse().ok()?, started: field(22)? },
        name: name.to_owned(),
        user: ticks(field(14)?),
        system: ticks(field(15)?),
        scheduler: None,
    })
}

/// `schedstat`: nanoseconds on a core, nanoseconds of waiting, turns. A kernel without these statistics writes zeros, as for a
/// thread that has not run yet.
fn parse_schedstat(schedstat: &str) -> Option<SchedulerTimes> {
    let fields: Vec<u64> =
        schedstat.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let [run, wait, turns] = fields[..] else { return None };
    let times = SchedulerTimes { run: Duration::from_nanos(run), wait: Duration::from_nanos(wait) };
    (turns > 0).then_some(times)
}

#[cfg(test)]
mod tests {
    use std::{process, sync::mpsc, thread};

    use super::*;

    #[test]
    fn name_may_contain_parentheses_and_spaces() {
        let stat = "7 (a) R (1) S 1 7 7 0 -1 4194560 1 2 3 4 30 12 5 6 20 0 1 0 4711 9";
        let tick = Duration::from_secs_f64(1.0 / clock_ticks_per_second() as f64);
        let thread = parse_stat(stat).expect("a thread");
        assert_eq!(thread.id, ThreadId { number: 7, started: 4711 });
        assert_eq!((thread.name.as_str(), thread.user, thread.system), ("a) R (1", 30 * tick, 12 * tick));
        for invalid in ["", "7 (a) S 1 7 7", "x (a) S 1 7 7 0 -1 4194560 1 2 3 4 30 12 5 6 20 0 1 0 4711"] {
            assert_eq!(parse_stat(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn kernel_without_scheduler_statistics_reports_none() {
        let times = SchedulerTimes { run: Duration::from_nanos(502), wait: Duration::from_nanos(33) };
        assert_eq!(parse_schedstat("502 33 78\n"), Some(times));
        for absent in ["0 0 0\n", "", "1 2", "a b c"] {
            assert_eq!(parse_schedstat(absent), None, "{absent}");
        }
    }

    #[test]
    fn threads_have_names_and_end() {
        let (stop, stopped) = mpsc::channel::<()>();
        let (ready, is_ready) = mpsc::channel();
        let run = move || {
            let _ = ready.send(());
            let _ = stopped.recv();
        };
        let waiting = thread::Builder::new().name("waiting-7".to_owned()).spawn(run).expect("a thread");
        is_ready.recv().expect("it runs");
        let named = || thread_times(process::id()).into_iter().find(|thread| thread.name == "waiting-7");
        let first = named().expect("a thread of that name");
        assert!(first.scheduler.is_none_or(|times| times.run > Duration::ZERO), "{first:?}");
        drop(stop);
        waiting.join().expect("it ends");
        // The kernel removes the thread after it has woken the one that joins.
        let has_ended = || {
            thread::yield_now();
            named().is_none_or(|later| later.id != first.id)
        };
        assert!((0..100_000).any(|_| has_ended()));
        assert_eq!(thread_times(u32::MAX), []);
    }
}
