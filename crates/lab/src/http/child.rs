//! A part of a run in a process of its own.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child as Process, Command, Stdio},
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use stockade_model::record::Role;

/// How long it may take until it says where it listens.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How long it may take to end when it is asked to.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Between the end of its connections and its own.
const LAST_MOMENT: Duration = Duration::from_millis(500);
/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// What the program ends with when what it was told makes no sense.
const USAGE: i32 = 2;
/// How a line begins that says where it is looked at: a proxy's or an app's, an origin's.
const ADMIN_LINES: [&str; 2] = ["it is looked at", "recipes are taken at"];
/// How much is told of what it has said.
const LINES_MAX: usize = 12;

/// A process of `stockade`. Dropped, it is ended.
#[derive(Debug)]
pub(super) struct Child {
    role: Role,
    process: Mutex<Process>,
    id: u32,
    log: PathBuf,
    /// Where it listens.
    pub(super) url: String,
}

/// A process could not be started, or is gone.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// There is no such program, or no room for it.
    #[error("cannot start {}: {error}", program.display())]
    Start {
        /// Which.
        program: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It has ended, or does not answer.
    #[error("the {} {what}{said}", role.name())]
    Failed {
        /// Which.
        role: Role,
        /// What happened.
        what: String,
        /// The end of what it said.
        said: String,
        /// It said that it was told nonsense.
        is_usage: bool,
    },
}

impl ChildError {
    /// Whether it was asked for wrongly, rather than something that went wrong.
    pub(super) fn is_usage(&self) -> bool {
        matches!(self, Self::Failed { is_usage: true, .. })
    }
}

impl Child {
    /// Starts it, and waits until it says where it listens. What it says goes to `folder`.
    pub(super) fn start(
        role: Role,
        program: &Path,
        arguments: &[String],
        folder: &Path,
    ) -> Result<Self, ChildError> {
        let start = |error| ChildError::Start { program: program.to_owned(), error };
        let log = folder.join(format!("{}.log", role.name()));
        let errors = File::create(&log).map_err(start)?;
        let mut process = Command::new(program)
            .args(arguments)
            // It ends when its standard input does: when this process is gone, whatever became of it.
            .arg("--until-stdin-ends")
            // Ctrl-C at a terminal is for whoever has started it, and ends it in its turn.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .map_err(start)?;
        let (tell, told) = mpsc::channel();
        if let Some(stdout) = process.stdout.take() {
            let read = move || {
                let mut line = String::new();
                let read = BufReader::new(stdout).read_line(&mut line);
                // Nobody may be waiting any more.
                let _ = tell.send(read.map(|_| line.trim_end().to_owned()));
            };
            thread::Builder::new().name(format!("{}'s words", role.name())).spawn(read).map_err(start)?;
        }
        let id = process.id();
        let mut child = Self { role, process: Mutex::new(process), id, log, url: String::new() };
        child.url = match told.recv_timeout(START_TIMEOUT) {
            Ok(Ok(url)) if !url.is_empty() => url,
            Ok(_) => return Err(child.not_started()),
            Err(_) => return Err(child.failed("has not said within 20 s where it listens")),
        };
        Ok(child)
    }

    /// Where it is looked at: it says so a moment after where it listens.
    pub(super) fn admin(&self) -> Result<String, ChildError> {
        for _ in 0..looks(START_TIMEOUT) {
            let said = fs::read_to_string(&self.log).unwrap_or_default();
            // A line is whole when there is an end to it.
            let mut lines = said.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
            let says_so = |line: &&str| ADMIN_LINES.iter().any(|words| line.starts_with(words));
            if let Some(line) = lines.find(says_so)
                && let Some(at) = line.find("http://")
            {
                let url = &line[at..];
                return Ok(url.split_once("/add_recipe").map_or(url, |(admin, _)| admin).to_owned());
            }
            self.check()?;
            pause();
        }
        Err(self.failed("has not said where it is looked at"))
    }

    /// Its process.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// An error, if it has ended.
    pub(super) fn check(&self) -> Result<(), ChildError> {
        let ended = self.process.lock().unwrap_or_else(PoisonError::into_inner).try_wait();
        match ended {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.failed(&format!("has ended: {status}"))),
            Err(error) => Err(self.failed(&format!("cannot be looked after: {error}"))),
        }
    }

    /// Why it does not answer: it has ended, or is about to, or else `error`.
    pub(super) fn silent(&self, error: &str) -> ChildError {
        for _ in 0..looks(LAST_MOMENT) {
            if let Err(ended) = self.check() {
                return ended;
            }
            pause();
        }
        self.failed(error)
    }

    /// Why it never listened: it has ended, or is about to.
    fn not_started(&self) -> ChildError {
        let status = self.process.lock().unwrap_or_else(PoisonError::into_inner).wait();
        let what = match &status {
            // It says why itself.
            Ok(status) if status.code().is_some() => "did not start".to_owned(),
            Ok(status) => format!("did not start: {status}"),
            Err(error) => format!("did not start, and cannot be looked after: {error}"),
        };
        match self.failed(&what) {
            ChildError::Failed { role, what, said, .. } => {
                let is_usage = status.is_ok_and(|status| status.code() == Some(USAGE));
                ChildError::Failed { role, what, said, is_usage }
            }
            error @ ChildError::Start { .. } => error,
        }
    }

    /// What happened to it, with the end of what it said.
    pub(super) fn failed(&self, what: &str) -> ChildError {
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        let last = lines[lines.len().saturating_sub(LINES_MAX)..].join("\n");
        let said = if last.is_empty() { String::new() } else { format!("; it said:\n{last}") };
        ChildError::Failed { role: self.role, what: what.to_owned(), said, is_usage: false }
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
        let mut looks = 0..looks(END_TIMEOUT);
        while looks.next().is_some() && matches!(process.try_wait(), Ok(None)) {
            pause();
        }
        let _ = process.kill();
        let _ = process.wait();
    }
}

/// How often that is, in such a time.
fn looks(time: Duration) -> u128 {
    time.as_millis() / LOOK_EVERY.as_millis()
}

#[expect(clippy::disallowed_methods, reason = "a process tells nobody what it is about to do")]
fn pause() {
    thread::sleep(LOOK_EVERY);
}
