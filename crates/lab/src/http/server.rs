//! The server of a target `url` that a measurement starts and stops: `command`.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader},
    net::{TcpStream, ToSocketAddrs},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};

use super::{HttpError, child::pause};

/// The limit from its start until it accepts connections.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// The limit from SIGTERM to its exit.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// The limit of a command that has to end by itself.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Lines of its output in an error message.
const LOG_LINES_MAX: usize = 12;

/// Prints the process id of the command, and ends the whole group when standard input closes: the server does not outlive
/// this process.
const WRAPPER: &str = r#"
exec 3<&0
sh -c "$1" <&- 3<&- >&2 &
server=$!
echo "$server"
exec >&-
{ cat <&3 >/dev/null; kill -TERM 0; } &
exec 3<&-
wait "$server"
"#;

/// Names of variables in the environment of commands.
const ORIGIN: &str = "STOCKADE_ORIGIN";
const FOLDER: &str = "STOCKADE_FOLDER";

/// The environment of the commands of one measurement.
#[derive(Clone, Copy)]
pub(super) struct CommandPlace<'a> {
    /// The experiment's folder, where commands run.
    pub(super) experiment: &'a Path,
    /// The folder of the measurement, for their files and output.
    pub(super) folder: &'a Path,
    /// The URL of the run's origin.
    pub(super) origin: Option<&'a str>,
}

/// A server in a process group of its own.
#[derive(Debug)]
pub(super) struct ServerProcess {
    /// The process of the command.
    pub(super) id: u32,
    wrapper: Mutex<Child>,
    log: PathBuf,
}

impl CommandPlace<'_> {
    fn shell(&self, log: &Path) -> io::Result<Command> {
        let mut shell = Command::new("sh");
        let folder = fs::canonicalize(self.folder)?;
        shell.current_dir(if self.experiment.as_os_str().is_empty() {
            Path::new(".")
        } else {
            self.experiment
        });
        shell.env(FOLDER, folder).env(ORIGIN, self.origin.unwrap_or_default());
        // Ctrl-C at a terminal goes to this process, which ends its children.
        shell.process_group(0).stderr(File::create(log)?);
        Ok(shell)
    }

    /// Runs a command that ends by itself, such as one that empties a cache.
    pub(super) fn run(&self, key: &str, command: &str) -> Result<(), HttpError> {
        let log = self.folder.join(format!("{}.log", key.replace('.', "-")));
        let failed = |what: String| HttpError::Command(format!("`{key}` {what}{}", last_lines(&log)));
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
                kill_group(child.id(), Signal::KILL);
                let _ = child.wait();
                Err(failed(format!("did not end within {} s", COMMAND_TIMEOUT.as_secs())))
            }
        }
    }
}

impl ServerProcess {
    /// Starts the command, and waits until `url` accepts connections.
    pub(super) fn start(command: &str, url: &str, place: CommandPlace<'_>) -> Result<Self, HttpError> {
        if is_reachable(url) {
            return Err(HttpError::Command(format!(
                "something listens at {url} already: stop it, or leave `command` out to test it as it is"
            )));
        }
        let log = place.folder.join("target.log");
        let not_started = |error: io::Error| HttpError::Command(format!("`command` cannot start: {error}"));
        let mut shell = place.shell(&log).map_err(not_started)?;
        let shell = shell.args(["-c", WRAPPER, "sh", command]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut wrapper = shell.spawn().map_err(not_started)?;
        let mut line = String::new();
        if let Some(output) = wrapper.stdout.take() {
            BufReader::new(output).read_line(&mut line).map_err(not_started)?;
        }
        let id = line.trim().parse().unwrap_or_else(|_| wrapper.id());
        let server = Self { id, wrapper: Mutex::new(wrapper), log };
        let until = now() + START_TIMEOUT;
        while !is_reachable(url) {
            server.check()?;
            if now() > until {
                return Err(
                    server.failed(&format!("does not listen at {url} after {} s", START_TIMEOUT.as_secs()))
                );
            }
            pause();
        }
        server.check()?;
        Ok(server)
    }

    /// An error if it has ended. A command that becomes a daemon counts as ended.
    pub(super) fn check(&self) -> Result<(), HttpError> {
        match self.wrapper.lock().unwrap_or_else(PoisonError::into_inner).try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                Err(self.failed(&format!("has ended: {status}; it has to stay in the foreground")))
            }
            Err(error) => Err(self.failed(&format!("cannot be waited for: {error}"))),
        }
    }

    fn failed(&self, what: &str) -> HttpError {
        HttpError::Command(format!("the server of `command` {what}{}", last_lines(&self.log)))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let wrapper = self.wrapper.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(wrapper.stdin.take());
        let has_ended = wait(wrapper, END_TIMEOUT).is_ok_and(|status| status.is_some());
        // Descendants that ignored SIGTERM.
        kill_group(wrapper.id(), Signal::KILL);
        if !has_ended {
            let _ = wrapper.wait();
        }
    }
}

fn kill_group(id: u32, signal: Signal) {
    if let Some(group) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, signal);
    }
}

/// Its exit within `time`.
fn wait(child: &mut Child, time: Duration) -> io::Result<Option<ExitStatus>> {
    let until = now() + time;
    loop {
        let status = child.try_wait()?;
        if status.is_some() || now() > until {
            return Ok(status);
        }
        pause();
    }
}

/// True if something accepts connections at the host and port of `url`.
pub(super) fn is_reachable(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    let default_port = if url.starts_with("https:") { 443 } else { 80 };
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let authority = if has_port { authority.to_owned() } else { format!("{authority}:{default_port}") };
    authority.to_socket_addrs().is_ok_and(|mut addresses| {
        addresses.any(|to| TcpStream::connect_timeout(&to, CONNECT_TIMEOUT).is_ok())
    })
}

fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("\n");
    if last.is_empty() { String::new() } else { format!("; it said:\n{last}") }
}

#[expect(clippy::disallowed_methods, reason = "processes use real time")]
fn now() -> Instant {
    Instant::now()
}
