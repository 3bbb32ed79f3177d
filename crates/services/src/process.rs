//! A server's process, and the folder that it lives in.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    net::{Ipv4Addr, TcpListener},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal},
};
use tempfile::TempDir;

/// Runs a server and outlives it: when standard input ends, because whoever holds its other end closed it or
/// died, the server is stopped.
const SERVER_KEEPER: &str = r#"
signal=$1; log=$2; shift 2
"$@" >>"$log" 2>&1 &
server=$!
echo $server
cat >/dev/null
kill -CONT $server 2>/dev/null
kill -"$signal" $server 2>/dev/null
wait $server 2>/dev/null
"#;

/// Removes a folder in the same way. A server that is being stopped at that moment may still put something into it.
const FOLDER_KEEPER: &str = r#"
cat >/dev/null
for again in 1 2 3 4 5 6 7 8 9; do rm -rf "$1" 2>/dev/null && break; sleep 1; done
"#;

/// How long a server may take until it answers.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// How often it is asked whether it does.
const ASK_EVERY: Duration = Duration::from_millis(10);

/// A server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Its program cannot be run.
    #[error("cannot start {program}: {error}; `make deps` installs what tests need")]
    NotThere {
        /// Which.
        program: String,
        /// Why.
        error: std::io::Error,
    },
    /// It ended, or never answered.
    #[error("{program} did not come up: {reason}; it said:\n{log}")]
    NotReady {
        /// Which.
        program: String,
        /// What was tried last, and what came of it.
        reason: String,
        /// The end of its log.
        log: String,
    },
    /// A program that prepares it, or asks it something.
    #[error("{program} failed: {said}")]
    Failed {
        /// Which.
        program: String,
        /// What it said.
        said: String,
    },
    /// Its folder or its port.
    #[error("no place for a server: {0}")]
    NoPlace(#[from] std::io::Error),
}

/// A server that runs. Dropped, it is killed.
#[derive(Debug)]
pub struct Process {
    program: String,
    keeper: Child,
    /// Kept open: a keeper whose standard output is gone is in no danger, but says so.
    _said: BufReader<ChildStdout>,
    server: Pid,
}

/// A port of the loopback that nobody listens on, a moment ago.
pub fn free_port() -> Result<u16, ServiceError> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Waits until there is nothing to complain about; else what there is.
pub(crate) fn await_that(is_so: impl Fn() -> Result<(), String>) -> Result<(), String> {
    let mut tries_left = START_TIMEOUT.as_millis() / ASK_EVERY.as_millis();
    loop {
        match is_so() {
            Err(_) if tries_left > 0 => tries_left -= 1,
            end => return end,
        }
        #[expect(clippy::disallowed_methods, reason = "servers tell nobody when they know each other")]
        thread::sleep(ASK_EVERY);
    }
}

/// A folder for a server's files. It goes when it is dropped, or when whoever holds it dies.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    keeper: Child,
}

impl Folder {
    pub(crate) fn new(name: &str) -> Result<Self, ServiceError> {
        let folder = TempDir::with_prefix(format!("stockade-{name}-"))?;
        let keeper = keeper(FOLDER_KEEPER).arg(folder.path()).spawn()?;
        Ok(Self { path: folder.keep(), keeper })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        end(&mut self.keeper);
    }
}

/// Runs a program to its end, and gives what it said.
pub(crate) fn run(command: &mut Command) -> Result<String, ServiceError> {
    let program = command.get_program().to_string_lossy().into_owned();
    // Not where we are: another user may not be allowed there.
    let output = command.current_dir("/").output();
    let output = output.map_err(|error| ServiceError::NotThere { program: program.clone(), error })?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if !output.status.success() {
        let said = format!("{}\n{}", said(&output.stdout), said(&output.stderr)).trim().to_owned();
        return Err(ServiceError::Failed { program, said });
    }
    Ok(said(&output.stdout))
}

/// Whether there is such a program: the shell that starts it would say so only to its log.
fn is_installed(program: &str) -> bool {
    let paths = env::var_os("PATH").unwrap_or_default();
    // A path as it is, a name in any of these folders.
    program.contains('/') && Path::new(program).exists()
        || env::split_paths(&paths).any(|folder| folder.join(program).exists())
}

/// A shell that runs until its standard input ends.
fn keeper(script: &str) -> Command {
    let mut keeper = Command::new("sh");
    // Ctrl-C at a terminal is not for it: it has something to do in the end.
    keeper.args(["-c", script, "keeper"]).stdin(Stdio::piped()).process_group(0);
    keeper
}

/// Closes a keeper's standard input, and waits until it has done its duty.
fn end(keeper: &mut Child) {
    drop(keeper.stdin.take());
    let _ = keeper.wait();
}

impl Process {
    /// Starts a server, whose output goes into the folder's `log`, and waits until `is_ready` has no more to
    /// complain about. In the end it is sent this signal.
    pub(crate) fn start<S: AsRef<OsStr>>(
        folder: &Folder,
        signal: &str,
        command: &[S],
        is_ready: impl Fn() -> Result<(), String>,
    ) -> Result<Self, ServiceError> {
        let program = command.first().map(|program| program.as_ref().to_string_lossy().into_owned());
        let program = program.unwrap_or_default();
        let not_there = |error| ServiceError::NotThere { program: program.clone(), error };
        if !is_installed(&program) {
            return Err(not_there(std::io::ErrorKind::NotFound.into()));
        }
        let log = folder.path().join("log");
        let mut keeper = keeper(SERVER_KEEPER);
        keeper.arg(signal).arg(&log).args(command).stdout(Stdio::piped());
        let mut keeper = keeper.spawn().map_err(not_there)?;
        let said = keeper.stdout.take().ok_or_else(|| not_there(std::io::ErrorKind::BrokenPipe.into()))?;
        let (mut said, mut line) = (BufReader::new(said), String::new());
        said.read_line(&mut line).map_err(not_there)?;
        let server = line.trim().parse().ok().and_then(Pid::from_raw);
        let server = server.ok_or_else(|| not_there(std::io::ErrorKind::InvalidData.into()))?;
        let process = Self { program, keeper, _said: said, server };
        process.await_ready(&log, is_ready)?;
        Ok(process)
    }

    fn await_ready(&self, log: &Path, is_ready: impl Fn() -> Result<(), String>) -> Result<(), ServiceError> {
        let mut tries_left = START_TIMEOUT.as_millis() / ASK_EVERY.as_millis();
        loop {
            let reason = match is_ready() {
                // Somebody else may have taken its port.
                _ if !self.is_alive() => "it ended".to_owned(),
                Ok(()) => return Ok(()),
                Err(reason) => reason,
            };
            if tries_left == 0 || !self.is_alive() {
                let log = fs::read_to_string(log).unwrap_or_default();
                let lines: Vec<_> = log.lines().collect();
                let log = lines[lines.len().saturating_sub(20)..].join("\n");
                return Err(ServiceError::NotReady { program: self.program.clone(), reason, log });
            }
            tries_left -= 1;
            #[expect(clippy::disallowed_methods, reason = "a server tells nobody when it is ready")]
            thread::sleep(ASK_EVERY);
        }
    }

    /// Whether the server's process is there and no zombie: its keeper waits for it only at the end.
    fn is_alive(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.server.as_raw_nonzero()));
        stat.is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
    }

    /// Stops its clock, as it were: it answers nothing, and its connections stay open.
    pub fn freeze(&self) {
        // It first: then it starts no more children.
        signal(self.server, Signal::STOP);
        self.children().for_each(|child| signal(child, Signal::STOP));
    }

    /// Has it go on.
    pub fn thaw(&self) {
        self.children().chain([self.server]).for_each(|process| signal(process, Signal::CONT));
    }

    /// Kills it and its children at once, without a word to anybody.
    pub fn kill(&mut self) {
        self.freeze();
        let family = self.children().chain([self.server]);
        let family: Vec<_> =
            family.filter_map(|process| pidfd_open(process, PidfdFlags::empty()).ok()).collect();
        for process in &family {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
        // Children would be seen for a moment more, by the one that is started in its place.
        for process in &family {
            let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], None);
        }
        end(&mut self.keeper);
    }

    /// The processes that it has started, and that have not ended.
    fn children(&self) -> impl Iterator<Item = Pid> + use<> {
        let parent = self.server.as_raw_nonzero().to_string();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(Pid::from_raw).filter(move |pid| {
            let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
            // The name in brackets, which may have any character in it, the state, the parent.
            stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)) == Some(&parent)
        })
    }
}

fn signal(process: Pid, signal: Signal) {
    // One that is gone needs no signal.
    let _ = kill_process(process, signal);
}

impl Drop for Process {
    fn drop(&mut self) {
        end(&mut self.keeper);
    }
}
