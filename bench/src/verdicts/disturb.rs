//! Disturbances of an experiment: busy cores, and a stopped process.

use std::{
    fs,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::process::{Pid, Signal, kill_process};

/// A proxy that is older belongs to a measurement, and not to the check of the setup before.
const MEASURED_AFTER: Duration = Duration::from_millis(600);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long a process is stopped.
const STOP: Duration = Duration::from_secs(1);

/// A thread that disturbs until it is dropped.
pub struct Disturber {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Disturber {
    fn start(disturb: impl FnOnce(&AtomicBool) + Send + 'static) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ends);
        Self { ends, thread: Some(thread::spawn(move || disturb(&seen))) }
    }

    /// Keeps a core busy in this share of the seconds.
    pub fn busy(core: usize, share: f64, seed: u64) -> Self {
        Self::start(move |ends| {
            let core = core_affinity::get_core_ids().unwrap_or_default().into_iter().find(|id| id.id == core);
            core.map(core_affinity::set_for_current);
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            while !ends.load(Relaxed) {
                let (second, is_busy) = (Instant::now(), random.random_bool(share));
                while second.elapsed() < Duration::from_secs(1) && !ends.load(Relaxed) {
                    if !is_busy {
                        thread::sleep(POLL_INTERVAL);
                    }
                }
            }
        })
    }

    /// Moves the origin and the proxy of each measurement to a core.
    pub fn move_servers(run: u32, core: usize) -> Self {
        Self::start(move |ends| {
            let mut moved = Vec::new();
            while !ends.load(Relaxed) {
                for id in ["origin", "proxy"].into_iter().filter_map(|role| child(run, role)) {
                    if !moved.contains(&id) {
                        moved.push(id);
                        // It may have ended meanwhile.
                        let _ = Command::new("taskset")
                            .args(["--all-tasks", "--cpu-list", "--pid", &core.to_string(), &id.to_string()])
                            .stdout(Stdio::null())
                            .stderr(Stdio::null())
                            .status();
                    }
                }
                thread::sleep(POLL_INTERVAL);
            }
        })
    }

    /// Stops a process of one measurement of `stockade run` for a second.
    pub fn stop(run: u32, plan: StopPlan) -> Self {
        Self::start(move |ends| plan.stop(run, ends))
    }
}

impl Drop for Disturber {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A process that is stopped, and the moment.
#[derive(Clone, Copy, Debug)]
pub struct StopPlan {
    /// The first argument of the process: `proxy` or `origin`.
    pub role: &'static str,
    /// From 0, in the order of the run.
    pub measurement: usize,
    /// From about its start.
    pub after: Duration,
}

impl StopPlan {
    fn stop(self, run: u32, ends: &AtomicBool) {
        let (mut newest, mut measured) = (None, 0);
        while !ends.load(Relaxed) {
            thread::sleep(POLL_INTERVAL);
            let Some(id) = child(run, self.role) else { continue };
            let (seen, began, is_counted) = newest.get_or_insert((id, Instant::now(), false));
            if *seen != id {
                newest = None;
            } else if began.elapsed() > MEASURED_AFTER && !*is_counted {
                *is_counted = true;
                measured += 1;
                if measured > self.measurement {
                    thread::sleep(self.after);
                    return stop_for_a_second(run, self.role, id);
                }
            }
        }
    }
}

/// The process goes on in any case.
fn stop_for_a_second(run: u32, role: &str, id: u32) {
    let process = i32::try_from(id).ok().and_then(Pid::from_raw);
    // It may have ended meanwhile.
    let Some(process) = process.filter(|_| child(run, role) == Some(id)) else { return };
    if kill_process(process, Signal::STOP).is_ok() {
        thread::sleep(STOP);
        let _ = kill_process(process, Signal::CONT);
    }
}

/// The child of a process with this first argument.
fn child(parent: u32, role: &str) -> Option<u32> {
    let ids = fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.into_iter().find(|id| is_child(*id, parent, role))
}

fn is_child(id: u32, parent: u32, role: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let parent_of =
        stat.rsplit_once(") ").and_then(|(_, after)| after.split(' ').nth(1)?.parse::<u32>().ok());
    parent_of == Some(parent) && {
        let command = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        command.split('\0').nth(1) == Some(role)
    }
}
