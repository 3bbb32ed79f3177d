//! The server of a target `url` that a measurement starts and stops: `command`.

use std::{
    env,
    fs::{self, File},
    io::{self, BufRead, BufReader},
    net::TcpStream,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use super::{
    HttpError,
    child::{pause, quoted_log},
    fetch::connect,
};
use stockade_record::clock::instant;

/// The limit from its start until it accepts connections.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// The limit from SIGTERM to its exit.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// The limit of a command that has to end by itself.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

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

/// The environment of the commands of one measurement.
#[derive(Clone, Copy)]
pub(super) struct CommandEnvironment<'a> {
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

impl CommandEnvironment<'_> {
    fn shell(&self, log: &Path) -> io::Result<Command> {
        let mut shell = Command::new("sh");
        let folder = fs::canonicalize(self.folder)?;
        shell.current_dir(if self.experiment.as_os_str().is_empty() {
            Path::new(".")
        } else {
            self.experiment
        });
        // Debian has servers in /usr/sbin, which is not in the path of every user.
        let path = env::var("PATH").unwrap_or_default();
        shell.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        shell.env(FOLDER, folder).env(ORIGIN, self.origin.unwrap_or_default());
        // Ctrl-C at a terminal goes to this process, which ends its children.
        shell.process_group(0).stderr(File::create(log)?);
        Ok(shell)
    }

    /// Runs a command that ends by itself, such as one that empties a cache.
    pub(super) fn run(&self, key: &str, command: &str) -> Result<(), HttpError> {
        let log = self.folder.join(format!("{}.log", key.replace('.', "-")));
        let failed = |what: String| HttpError::Command(format!("`{key}` {what}{}", quoted_log(&log)));
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

impl ServerProcess {
    /// Starts the command, and waits until `url` accepts connections.
    pub(super) fn start(
        command: &str,
        url: &str,
        environment: CommandEnvironment<'_>,
    ) -> Result<Self, HttpError> {
        if is_reachable(url) {
            return Err(HttpError::Command(format!(
                "something listens at {url} already: stop it, or leave `command` out to test it as it is"
            )));
        }
        let log = environment.folder.join("target.log");
        let not_started = |error: io::Error| HttpError::Command(format!("`command` cannot start: {error}"));
        let mut shell = environment.shell(&log).map_err(not_started)?;
        let shell = shell.args(["-c", WRAPPER, "sh", command]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut wrapper = shell.spawn().map_err(not_started)?;
        let mut line = String::new();
        if let Some(output) = wrapper.stdout.take() {
            BufReader::new(output).read_line(&mut line).map_err(not_started)?;
        }
        let id = line.trim().parse().unwrap_or_else(|_| wrapper.id());
        let server = Self { id, wrapper: Mutex::new(wrapper), log };
        let until = instant() + START_TIMEOUT;
        while !is_reachable(url) {
            server.check()?;
            if instant() > until {
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
        HttpError::Command(format!("the server of `command` {what}{}", quoted_log(&self.log)))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let wrapper = self.wrapper.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(wrapper.stdin.take());
        let until = instant() + END_TIMEOUT;
        // The wrapper is a member, and a shell between it and the server may end first.
        let is_running = |wrapper: &mut Child| {
            let _ = wrapper.try_wait();
            group_of(wrapper.id()).is_some_and(|group| test_kill_process_group(group).is_ok())
        };
        while is_running(wrapper) && instant() < until {
            pause();
        }
        signal_group(wrapper.id(), Signal::KILL);
        let _ = wrapper.wait();
    }
}

fn group_of(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

fn signal_group(id: u32, signal: Signal) {
    if let Some(group) = group_of(id) {
        let _ = kill_process_group(group, signal);
    }
}

/// Its exit within `time`.
fn wait(child: &mut Child, time: Duration) -> io::Result<Option<ExitStatus>> {
    let until = instant() + time;
    loop {
        let status = child.try_wait()?;
        if status.is_some() || instant() > until {
            return Ok(status);
        }
        pause();
    }
}

/// True if something accepts connections at the host and port of `url`.
pub(super) fn is_reachable(url: &str) -> bool {
    // A port in the range of clients may connect to itself.
    let is_other = |tcp: TcpStream| tcp.local_addr().ok() != tcp.peer_addr().ok();
    connect(url, CONNECT_TIMEOUT).is_some_and(is_other)
}
