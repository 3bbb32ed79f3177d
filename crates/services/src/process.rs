//! A server's process and its folder.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal},
};
use tempfile::TempDir;

/// A script that starts a server and stops it when standard input ends: because the owner of the other end closed it
/// or died.
const SERVER_GUARD: &str = r#"
signal=$1; log=$2; shift 2
"$@" >>"$log" 2>&1 &
server=$!
echo $server
cat >/dev/null
kill -CONT $server 2>/dev/null
kill -"$signal" $server 2>/dev/null
wait $server 2>/dev/null
"#;

/// A script that removes a folder when standard input ends. It retries: a stopping server may still write to it.
const FOLDER_GUARD: &str = r#"
cat >/dev/null
for again in 1 2 3 4 5 6 7 8 9; do rm -rf "$1" 2>/dev/null && break; sleep 1; done
"#;

/// The limit for a server's start.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// The interval of readiness checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The program cannot be run.
    #[error(
        "cannot start {program}: {error}. Install it, or name its path; for tests `make deps` installs it"
    )]
    CannotStart { program: String, error: std::io::Error },
    /// The process ended, or was not ready in time.
    #[error("{program} did not come up: {reason}; it said:\n{log}")]
    NotReady {
        program: String,
        /// The last error of the readiness check.
        reason: String,
        /// The end of the server's log.
        log: String,
    },
    /// A setup program or a client program failed.
    #[error("{program} failed: {output}")]
    Failed {
        program: String,
        /// The program's output.
        output: String,
    },
    /// The command of a user failed.
    #[error(transparent)]
    Shell(#[from] crate::ShellError),
    /// The folder or the port cannot be created.
    #[error("no place for a server: {0}")]
    NoFolderOrPort(#[from] std::io::Error),
}

/// A running server. A drop kills it.
#[derive(Debug)]
pub struct ServerProcess {
    program: String,
    guard: Child,
    /// Stays open: otherwise the guard's writes to standard output would fail.
    _stdout: BufReader<ChildStdout>,
    server: Pid,
}

/// The path of a program on Debian, which is often not in `PATH`, if a file is there; else its name.
#[must_use]
pub fn path_or_name(debian_path: &'static str) -> &'static str {
    if Path::new(debian_path).exists() {
        debian_path
    } else {
        debian_path.rsplit('/').next().unwrap_or(debian_path)
    }
}

/// A port of the loopback interface that was free a moment ago.
pub fn free_port() -> Result<u16, ServiceError> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Repeats a check until it succeeds; at the time limit, returns its last error.
pub(crate) fn retry_until_ok(check: impl Fn() -> Result<(), String>) -> Result<(), String> {
    retry_while(START_TIMEOUT, || true, check)
}

/// Repeats a check until it succeeds; returns its last error after `limit`, which the last check may exceed, or that the server ended.
pub(crate) fn retry_while(
    limit: Duration,
    is_alive: impl Fn() -> bool,
    mut check: impl FnMut() -> Result<(), String>,
) -> Result<(), String> {
    #[expect(clippy::disallowed_methods, reason = "servers start in real time")]
    let started = Instant::now();
    loop {
        let result = check();
        // Another process may have taken the port.
        if !is_alive() {
            return Err("it ended".to_owned());
        }
        if result.is_ok() || started.elapsed() >= limit {
            return result;
        }
        #[expect(clippy::disallowed_methods, reason = "servers do not report their readiness")]
        thread::sleep(CHECK_INTERVAL);
    }
}

/// A folder for a server's files. It is removed when it is dropped or when its owner's process dies.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    guard: Child,
}

impl Folder {
    pub(crate) fn new(name: &str) -> Result<Self, ServiceError> {
        let folder = TempDir::with_prefix(format!("stockade-{name}-"))?;
        let guard = guard(FOLDER_GUARD).arg(folder.path()).spawn()?;
        Ok(Self { path: folder.keep(), guard })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        end(&mut self.guard);
    }
}

/// Succeeds if a server accepts connections.
pub(crate) fn accepts(port: u16) -> Result<(), String> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map(drop).map_err(|error| error.to_string())
}

/// Succeeds if a server responds to an HTTP request, with any status.
pub(crate) fn serves_http(port: u16) -> Result<(), String> {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(stream, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line)
    };
    match ask() {
        Ok(line) if line.starts_with("HTTP/1.1 ") => Ok(()),
        Ok(line) => Err(line),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs a program to its end and returns its output.
pub(crate) fn run(command: &mut Command) -> Result<String, ServiceError> {
    let program = command.get_program().to_string_lossy().into_owned();
    // The server's user may have no access to the current folder.
    let output = command.current_dir("/").output();
    let output = output.map_err(|error| ServiceError::CannotStart { program: program.clone(), error })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if !output.status.success() {
        let output = format!("{}\n{}", text(&output.stdout), text(&output.stderr)).trim().to_owned();
        return Err(ServiceError::Failed { program, output });
    }
    Ok(text(&output.stdout))
}

/// Checks for the program first, because the shell that starts it reports a missing one only in the log.
fn is_installed(program: &str) -> bool {
    let paths = env::var_os("PATH").unwrap_or_default();
    // A path is used as it is; a name is searched for in the folders of `PATH`.
    program.contains('/') && Path::new(program).exists()
        || env::split_paths(&paths).any(|folder| folder.join(program).exists())
}

/// A shell that runs until its standard input ends.
fn guard(script: &str) -> Command {
    let mut guard = Command::new("sh");
    // A process group of its own, because Ctrl-C at a terminal must not stop the guard before its cleanup.
    guard.args(["-c", script, "guard"]).stdin(Stdio::piped()).process_group(0);
    guard
}

/// Closes the guard's standard input and waits for the end of its cleanup.
fn end(guard: &mut Child) {
    drop(guard.stdin.take());
    let _ = guard.wait();
}

impl ServerProcess {
    /// Starts a server and waits until `is_ready` succeeds. The server's output goes to `log` in the folder. To stop the
    /// server, the guard sends it `signal`.
    pub(crate) fn start<S: AsRef<OsStr>>(
        folder: &Folder,
        signal: &str,
        command: &[S],
        is_ready: impl Fn() -> Result<(), String>,
    ) -> Result<Self, ServiceError> {
        let program = command.first().map(|program| program.as_ref().to_string_lossy().into_owned());
        let program = program.unwrap_or_default();
        let cannot_start = |error| ServiceError::CannotStart { program: program.clone(), error };
        if !is_installed(&program) {
            return Err(cannot_start(std::io::ErrorKind::NotFound.into()));
        }
        let log = folder.path().join("log");
        let mut guard = guard(SERVER_GUARD);
        guard.arg(signal).arg(&log).args(command).stdout(Stdio::piped());
        let mut guard = guard.spawn().map_err(cannot_start)?;
        let stdout =
            guard.stdout.take().ok_or_else(|| cannot_start(std::io::ErrorKind::BrokenPipe.into()))?;
        let (mut stdout, mut line) = (BufReader::new(stdout), String::new());
        stdout.read_line(&mut line).map_err(cannot_start)?;
        let server = line.trim().parse().ok().and_then(Pid::from_raw);
        let server = server.ok_or_else(|| cannot_start(std::io::ErrorKind::InvalidData.into()))?;
        let process = Self { program, guard, _stdout: stdout, server };
        process.await_ready(&log, is_ready)?;
        Ok(process)
    }

    fn await_ready(&self, log: &Path, is_ready: impl Fn() -> Result<(), String>) -> Result<(), ServiceError> {
        retry_while(START_TIMEOUT, || self.is_alive(), is_ready).map_err(|reason| {
            let log = fs::read_to_string(log).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            let log = lines[lines.len().saturating_sub(20)..].join("\n");
            ServiceError::NotReady { program: self.program.clone(), reason, log }
        })
    }

    /// True if the process exists and is not a zombie. The guard reaps it only at the end.
    fn is_alive(&self) -> bool {
        ProcessStat::of(self.server).is_some_and(|stat| !stat.is_zombie)
    }

    /// Sends the server a signal, without its children.
    pub fn signal(&self, number: Signal) {
        signal(self.server, number);
    }

    /// Suspends the server: it does not respond, and its connections stay open.
    pub fn freeze(&self) {
        // The parent first, so that it starts no more children.
        signal(self.server, Signal::STOP);
        self.children().for_each(|child| signal(child, Signal::STOP));
    }

    /// Resumes a frozen server.
    pub fn thaw(&self) {
        self.children().chain([self.server]).for_each(|process| signal(process, Signal::CONT));
    }

    /// Kills the server and its children at once.
    pub fn kill(&mut self) {
        self.freeze();
        let processes = self.children().chain([self.server]);
        let processes: Vec<_> =
            processes.filter_map(|process| pidfd_open(process, PidfdFlags::empty()).ok()).collect();
        for process in &processes {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
        // Waits for the children, because a server that replaces this one would find them.
        for process in &processes {
            let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], None);
        }
        end(&mut self.guard);
    }

    /// The ids of the server and of its children.
    pub fn ids(&self) -> impl Iterator<Item = u32> + use<> {
        self.children().chain([self.server]).map(|process| process.as_raw_nonzero().get().unsigned_abs())
    }

    /// The child processes that still run.
    fn children(&self) -> impl Iterator<Item = Pid> + use<> {
        let parent = Some(self.server);
        processes().filter(move |pid| ProcessStat::of(*pid).is_some_and(|stat| stat.parent == parent))
    }
}

/// The ids of all processes.
pub(crate) fn processes() -> impl Iterator<Item = Pid> + use<> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

/// A process as `/proc/PID/stat` shows it.
pub(crate) struct ProcessStat {
    pub(crate) is_zombie: bool,
    /// `None`: it is of another namespace.
    pub(crate) parent: Option<Pid>,
    pub(crate) group: Option<Pid>,
}

impl ProcessStat {
    /// `None`: the process does not exist.
    pub(crate) fn of(process: Pid) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
        // The name in brackets, which may contain any character, the state, the parent, the group.
        let mut fields = stat.rsplit(')').next()?.split_whitespace();
        let is_zombie = fields.next()? == "Z";
        let mut id = || Pid::from_raw(fields.next()?.parse().ok()?);
        let (parent, group) = (id(), id());
        Some(Self { is_zombie, parent, group })
    }
}

fn signal(process: Pid, signal: Signal) {
    // An error means that the process has ended.
    let _ = kill_process(process, signal);
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        end(&mut self.guard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_end_with_the_time_or_the_server() {
        let refused = || Err("refused".to_owned());
        assert_eq!(retry_while(Duration::ZERO, || true, refused), refused());
        assert_eq!(retry_while(START_TIMEOUT, || false, refused), Err("it ended".to_owned()));
        assert_eq!(retry_while(START_TIMEOUT, || false, || Ok(())), Err("it ended".to_owned()));
        assert_eq!(retry_while(Duration::ZERO, || true, || Ok(())), Ok(()));
    }
}
