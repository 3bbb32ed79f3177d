//! A child process: `stockade origin`, `stockade proxy` or `stockade app`.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child as Process, Command, Stdio},
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use stockade_model::proc;
use stockade_record::{
    record::Role,
    server::{ProcessReading, ServerError, StartedServer},
};

use stockade_services::quoted_log;

use super::fetch::get;
use stockade_record::clock::instant;

/// The limit for the report of its address.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// The limit from SIGTERM to its exit.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// The limit from the close of its connections to its exit.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);
/// Between two checks for its exit.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The exit code of a bad command line or file.
const USAGE_EXIT: i32 = 2;

#[derive(Debug)]
pub(super) struct Child {
    role: Role,
    process: Mutex<Process>,
    id: u32,
    log: PathBuf,
    /// The URL of its first listener.
    url: String,
    /// The base URL of its admin pages.
    admin: String,
    started: Instant,
}

#[derive(Clone, Copy)]
pub(super) struct ChildArguments<'a> {
    pub(super) role: Role,
    pub(super) program: &'a Path,
    /// The command and its arguments.
    pub(super) arguments: &'a [String],
    /// The folder of its log.
    pub(super) folder: &'a Path,
}

/// The line with which a child reports that it is ready (`--ready-json`).
#[derive(Deserialize)]
struct ReadyLine {
    listen: Vec<String>,
    admin: Option<String>,
}

impl Child {
    /// Starts it, and waits until it reports its address. Its standard error goes to a file in `folder`.
    pub(super) fn start(arguments: ChildArguments<'_>) -> Result<Self, ServerError> {
        let ChildArguments { role, program, arguments, folder } = arguments;
        let start = |error: io::Error| ServerError {
            message: format!("cannot start {}: {error}", program.display()),
            is_usage: false,
        };
        let log = folder.join(format!("{}.log", role.name()));
        let errors = File::create(&log).map_err(start)?;
        let mut process = Command::new(program)
            .args(arguments)
            .arg("--ready-json")
            // The child ends with its standard input, and so with this process.
            .arg("--until-stdin-ends")
            // Ctrl-C at a terminal goes to this process, which ends its children.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .map_err(start)?;
        let (sender, receiver) = mpsc::channel();
        if let Some(stdout) = process.stdout.take() {
            let read = move || {
                let mut line = String::new();
                let read = BufReader::new(stdout).read_line(&mut line);
                // The receiver is dropped at the timeout.
                let _ = sender.send(read.map(|_| line));
            };
            thread::Builder::new().name(format!("{} stdout", role.name())).spawn(read).map_err(start)?;
        }
        let id = process.id();
        let (url, admin, started) = (String::new(), String::new(), instant());
        let mut child = Self { role, process: Mutex::new(process), id, log, url, admin, started };
        let Ok(line) = receiver.recv_timeout(START_TIMEOUT) else {
            return Err(child.failed("did not report its address within 20 s"));
        };
        let ready = line.ok().and_then(|line| serde_json::from_str::<ReadyLine>(&line).ok());
        match ready.and_then(|ready| Some((ready.listen.into_iter().next()?, ready.admin?))) {
            Some(addresses) => (child.url, child.admin) = addresses,
            None => return Err(child.not_started()),
        }
        Ok(child)
    }

    /// The reason for a missing report: its exit.
    fn not_started(&self) -> ServerError {
        let status = self.process.lock().unwrap_or_else(PoisonError::into_inner).wait();
        let what = match &status {
            // Its log has the reason.
            Ok(status) if status.code().is_some() => "did not start".to_owned(),
            Ok(status) => format!("did not start: {status}"),
            Err(error) => format!("did not start, and cannot be waited for: {error}"),
        };
        let is_usage = status.is_ok_and(|status| status.code() == Some(USAGE_EXIT));
        ServerError { is_usage, ..self.failed(&what) }
    }

    /// An error with the last lines of its log.
    fn failed(&self, what: &str) -> ServerError {
        let message = format!("the {} {what}{}", self.role.name(), quoted_log(&self.log));
        ServerError { message, is_usage: false }
    }
}

impl StartedServer for Child {
    fn url(&self) -> &str {
        &self.url
    }

    fn process(&self) -> Option<u32> {
        Some(self.id)
    }

    fn page(&self, path: &str) -> Result<String, String> {
        get(&format!("{}{path}", self.admin))
    }

    fn reading(&self) -> Option<ProcessReading> {
        let cpu = proc::cpu_time(self.id)?;
        Some(ProcessReading { at: self.started.elapsed(), cpu, rss_bytes: proc::resident_bytes(self.id)? })
    }

    fn check(&self) -> Result<(), ServerError> {
        let ended = self.process.lock().unwrap_or_else(PoisonError::into_inner).try_wait();
        match ended {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.failed(&format!("has ended: {status}"))),
            Err(error) => Err(self.failed(&format!("cannot be waited for: {error}"))),
        }
    }

    fn unresponsive(&self, error: &str) -> ServerError {
        for _ in 0..polls(EXIT_TIMEOUT) {
            if let Err(ended) = self.check() {
                return ended;
            }
            pause();
        }
        self.failed(error)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let process = self.process.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(process.stdin.take());
        if let Some(id) = i32::try_from(self.id).ok().and_then(Pid::from_raw)
            && matches!(process.try_wait(), Ok(None))
        {
            let _ = kill_process(id, Signal::TERM);
        }
        let mut polls = 0..polls(END_TIMEOUT);
        while polls.next().is_some() && matches!(process.try_wait(), Ok(None)) {
            pause();
        }
        let _ = process.kill();
        let _ = process.wait();
    }
}

/// The number of polls within `time`.
fn polls(time: Duration) -> u128 {
    time.as_millis() / POLL_INTERVAL.as_millis()
}

#[expect(clippy::disallowed_methods, reason = "an exit can only be polled for")]
pub(super) fn pause() {
    thread::sleep(POLL_INTERVAL);
}
