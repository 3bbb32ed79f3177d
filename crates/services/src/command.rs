//! Shell commands of a user: those that end by themselves, and those that are a server.

use std::{
    env,
    fs::{self, OpenOptions},
    io::{self, BufRead, BufReader},
    net::{TcpStream, ToSocketAddrs as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::process::{ProcessStat, processes, retry_while};

/// The limit from its start until it accepts connections.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// The limit from SIGTERM to its exit.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// The limit of a command that has to end by itself.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Lines of a log in an error message.
const LOG_LINES_MAX: usize = 12;

/// Prints the process id of the command, and waits for its exit. When standard input closes, a process outside of the group ends
/// the group, by SIGTERM and after five seconds by SIGKILL: the server does not outlive this process.
const WRAPPER: &str = r#"
exec 3<&0
sh -c "$1" </dev/null 3<&- >&2 &
server=$!
# After the start, because the server would inherit it.
trap '' TERM
echo "$server"
exec >&-
setsid sh -c '
    cat <&3 >/dev/null
    kill -s TERM -- "-$0"
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        sleep 0.5
        kill -s 0 -- "-$0" 2>/dev/null || exit
    done
    kill -s KILL -- "-$0"
' $$ 2>/dev/null &
exec 3<&-
wait "$server"
"#;

/// Names of variables in the environment of commands.
const ORIGIN: &str = "STOCKADE_ORIGIN";
const FOLDER: &str = "STOCKADE_FOLDER";
const PROCESS: &str = "STOCKADE_PID";

/// A command failed: which one, how, and the end of its output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ShellError(pub String);

/// Where commands run, and the variables that they see.
#[derive(Clone, Debug, Default)]
pub struct CommandEnvironment {
    /// Their folder; empty: that of this process.
    pub current: PathBuf,
    /// A folder for their files and output.
    pub folder: PathBuf,
    /// The URL of the origin.
    pub origin: Option<String>,
    /// The process of the cache, once it runs.
    pub process: Option<u32>,
}

/// The server of a command, in a process group of its own. It ends on drop, and with this process.
#[derive(Debug)]
pub struct CommandServer {
    command: String,
    place: ServerPlace,
    environment: CommandEnvironment,
    log: PathBuf,
    /// `None`: it was stopped.
    running: Mutex<Option<RunningCommand>>,
}

/// Where a server accepts connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerPlace {
    /// In messages.
    pub url: String,
    pub host: String,
    pub port: u16,
}

/// It ends on drop.
#[derive(Debug)]
struct RunningCommand {
    /// The process of the command.
    id: u32,
    wrapper: Child,
}

impl CommandEnvironment {
    fn shell(&self, log: &Path) -> io::Result<Command> {
        let mut shell = Command::new("sh");
        let folder = fs::canonicalize(&self.folder)?;
        shell.current_dir(if self.current.as_os_str().is_empty() { Path::new(".") } else { &self.current });
        // Debian has servers in /usr/sbin, which is not in the path of every user.
        let path = env::var("PATH").unwrap_or_default();
        shell.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        shell.env(FOLDER, folder).env(ORIGIN, self.origin.as_deref().unwrap_or_default());
        shell.env(PROCESS, self.process.map(|id| id.to_string()).unwrap_or_default());
        // Ctrl-C at a terminal goes to this process, which ends its children.
        shell.process_group(0).stderr(OpenOptions::new().create(true).append(true).open(log)?);
        Ok(shell)
    }

    /// Runs a command that ends by itself, such as one that empties a cache. `key`: its name in messages and of its log.
    ///
    /// # Errors
    /// It does not start, fails, or does not end within 30 s.
    pub fn run(&self, key: &str, command: &str) -> Result<(), ShellError> {
        let log = self.folder.join(format!("{}.log", key.trim_start_matches('-').replace('.', "-")));
        let failed = |what: String| ShellError(format!("`{key}` {what}{}", quoted_log(&log)));
        let mut shell = self.shell(&log).map_err(|error| failed(format!("cannot start: {error}")))?;
        let shell = shell
            .args(["-c", "exec >&2; eval \"$1\"", "sh", command])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let mut child = shell.spawn().map_err(|error| failed(format!("cannot start: {error}")))?;
        let status = wait(&mut child, COMMAND_TIMEOUT).map_err(|error| failed(error.to_string()))?;
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(failed(format!("failed: {status}"))),
            None => {
                signal_group(child.id(), Signal::KILL);
                let _ = child.wait();
                Err(failed(format!("did not end within {} s", COMMAND_TIMEOUT.as_secs())))
            }
        }
    }
}

impl ServerPlace {
    /// True if something accepts connections there.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let mut addresses = (host, self.port).to_socket_addrs().into_iter().flatten();
        addresses.any(|address| {
            // A port in the range of clients may connect to itself.
            let is_other = |tcp: TcpStream| tcp.local_addr().ok() != tcp.peer_addr().ok();
            TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok_and(is_other)
        })
    }
}

impl CommandServer {
    /// Starts the command, and waits until the place accepts connections.
    ///
    /// # Errors
    /// Something listens there already, or it does not start.
    pub fn start(
        command: &str,
        place: ServerPlace,
        environment: CommandEnvironment,
    ) -> Result<Self, ShellError> {
        if place.is_reachable() {
            return Err(ShellError(format!(
                "something listens at {} already: stop it, or leave the command out to test it as it is",
                place.url
            )));
        }
        let (command, log) = (command.to_owned(), environment.folder.join("target.log"));
        let server = Self { command, place, environment, log, running: Mutex::new(None) };
        server.run()?;
        Ok(server)
    }

    fn run(&self) -> Result<(), ShellError> {
        let not_started = |error: io::Error| ShellError(format!("the server cannot start: {error}"));
        let mut shell = self.environment.shell(&self.log).map_err(not_started)?;
        let shell =
            shell.args(["-c", WRAPPER, "sh", &self.command]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut wrapper = shell.spawn().map_err(not_started)?;
        let mut line = String::new();
        if let Some(output) = wrapper.stdout.take() {
            BufReader::new(output).read_line(&mut line).map_err(not_started)?;
        }
        let id = line.trim().parse().unwrap_or_else(|_| wrapper.id());
        *self.running() = Some(RunningCommand { id, wrapper });
        let check = || if self.place.is_reachable() { Ok(()) } else { Err(String::new()) };
        let is_ready = retry_while(START_TIMEOUT, || self.check().is_ok(), check);
        self.check()?;
        is_ready.map_err(|_| {
            let limit = START_TIMEOUT.as_secs();
            self.failed(&format!("does not listen at {} after {limit} s", self.place.url))
        })
    }

    /// Ends it by SIGTERM, or at once by [`Signal::KILL`], and starts it again if `is_due` returns true, which may wait.
    ///
    /// # Errors
    /// It was stopped already, or does not start.
    pub fn restart(&self, signal: Signal, is_due: impl FnOnce() -> bool) -> Result<(), ShellError> {
        let Some(running) = self.running().take() else {
            return Err(ShellError("the server was stopped already".to_owned()));
        };
        if signal == Signal::KILL {
            signal_group(running.wrapper.id(), signal);
        }
        drop(running);
        if is_due() { self.run() } else { Ok(()) }
    }

    /// The process of the command; `None`: it was stopped.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        self.running().as_ref().map(|running| running.id)
    }

    fn running(&self) -> MutexGuard<'_, Option<RunningCommand>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error if it has ended by itself. A command that becomes a daemon counts as ended.
    ///
    /// # Errors
    /// It has ended.
    pub fn check(&self) -> Result<(), ShellError> {
        let ended = self.running().as_mut().map(|running| running.wrapper.try_wait());
        match ended {
            None | Some(Ok(None)) => Ok(()),
            Some(Ok(Some(status))) => {
                Err(self.failed(&format!("has ended: {status}; it has to stay in the foreground")))
            }
            Some(Err(error)) => Err(self.failed(&format!("cannot be waited for: {error}"))),
        }
    }

    fn failed(&self, what: &str) -> ShellError {
        ShellError(format!("the server of the command {what}{}", quoted_log(&self.log)))
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let wrapper = &mut self.wrapper;
        drop(wrapper.stdin.take());
        // The wrapper is a member, and a shell between it and the server may end first.
        let group = group_of(wrapper.id());
        let mut is_running = || {
            let _ = wrapper.try_wait();
            group.is_some_and(|group| test_kill_process_group(group).is_ok() && has_running_member(group))
        };
        let mut ended = || if is_running() { Err(String::new()) } else { Ok(()) };
        let _ = retry_while(END_TIMEOUT, || true, &mut ended);
        signal_group(wrapper.id(), Signal::KILL);
        let _ = wrapper.wait();
    }
}

/// The last lines of a log, for an error message.
#[must_use]
pub fn quoted_log(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("\n");
    if last.is_empty() { String::new() } else { format!("; it said:\n{last}") }
}

fn group_of(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

/// True if a process of the group has not ended. One that has may wait a second for the process that reaps it.
fn has_running_member(group: Pid) -> bool {
    processes().any(|process| {
        // The other threads of a zombie still hold its sockets.
        let tasks = || fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero()));
        let threads = || tasks().map_or(0, Iterator::count);
        ProcessStat::of(process)
            .is_some_and(|stat| stat.group == Some(group) && (!stat.is_zombie || threads() > 1))
    })
}

fn signal_group(id: u32, signal: Signal) {
    if let Some(group) = group_of(id) {
        let _ = kill_process_group(group, signal);
    }
}

/// Its exit within `limit`.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let mut exit = Ok(None);
    let _ = retry_while(
        limit,
        || true,
        || {
            exit = child.try_wait();
            if matches!(exit, Ok(None)) { Err(String::new()) } else { Ok(()) }
        },
    );
    exit
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::free_port;

    fn environment(folder: &TempDir) -> CommandEnvironment {
        CommandEnvironment { folder: folder.path().to_owned(), ..CommandEnvironment::default() }
    }

    #[test]
    fn command_that_fails_is_quoted() {
        let folder = TempDir::new().unwrap();
        let commands = CommandEnvironment { process: Some(7), ..environment(&folder) };
        assert_eq!(commands.run("--reset", "test \"$STOCKADE_PID\" = 7"), Ok(()));
        let error = commands.run("--reset", "echo it broke; exit 3").unwrap_err().to_string();
        assert_eq!(error, "`--reset` failed: exit status: 3; it said:\nit broke");
    }

    #[test]
    fn server_ends_and_starts_again() {
        let (folder, port) = (TempDir::new().unwrap(), free_port().unwrap());
        let place = ServerPlace { url: "here".to_owned(), host: "127.0.0.1".to_owned(), port };
        let command = format!("exec redis-server --port {port} --save '' --bind 127.0.0.1");
        let server = CommandServer::start(&command, place.clone(), environment(&folder)).unwrap();
        let mut last = server.process();
        for signal in [Signal::TERM, Signal::KILL] {
            let restarted = server.restart(signal, || {
                assert!(!place.is_reachable(), "its sockets are closed");
                true
            });
            restarted.unwrap();
            assert!(server.process().is_some_and(|id| Some(id) != last) && place.is_reachable());
            last = server.process();
        }
        let taken = CommandServer::start(&command, place.clone(), environment(&folder)).unwrap_err();
        assert!(taken.to_string().starts_with("something listens at here already: stop it"), "{taken}");
        server.restart(Signal::TERM, || false).unwrap();
        assert_eq!((server.process(), server.check(), place.is_reachable()), (None, Ok(()), false));
        assert!(server.restart(Signal::TERM, || true).is_err());
        let ended = CommandServer::start("echo no; exit 4", place, environment(&folder)).unwrap_err();
        let text = ended.to_string();
        assert!(text.contains("has ended: exit status: 4; it has to stay") && text.ends_with("no"), "{text}");
    }
}
