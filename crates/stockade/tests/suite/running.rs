//! Processes that run during a test, and HTTP requests to them.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{ProgramOutput, Sandbox};

/// The longest wait for a line, for a response or for an exit.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// A process of the program, killed on drop.
pub struct Running {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl Running {
    /// Starts `stockade origin` with this text on standard input.
    pub fn origin(sandbox: &Sandbox, arguments: &[&str], stdin: &str) -> Self {
        Self::start(sandbox, &[&["origin"], arguments].concat(), stdin)
    }

    /// Starts `stockade` with this text on standard input.
    pub fn start(sandbox: &Sandbox, arguments: &[&str], stdin: &str) -> Self {
        let mut command = sandbox.command();
        command.args(arguments);
        Self::spawn(command, stdin)
    }

    /// Starts a command that becomes the program, with this text on standard input.
    pub fn spawn(mut command: Command, stdin: &str) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let stdout = lines(child.stdout.take().expect("a pipe"));
        let stderr = lines(child.stderr.take().expect("a pipe"));
        let mut running = Self { child, stdout, stderr };
        let mut pipe = running.child.stdin.take().expect("a pipe");
        pipe.write_all(stdin.as_bytes()).expect("it reads its standard input");
        running
    }

    /// Waits until it serves, and returns the address in the first line of standard output.
    #[track_caller]
    pub fn listens(&self, scheme: &str) -> SocketAddr {
        let Ok(url) = self.stdout.recv_timeout(PATIENCE) else {
            panic!("it does not say where it listens, but: {}", rest(&self.stderr));
        };
        between(&url, &format!("{scheme}://"), "\n")
    }

    /// The address for recipes in the first line of standard error.
    #[track_caller]
    pub fn takes_recipes(&self, scheme: &str) -> SocketAddr {
        let line = self.stderr.recv_timeout(PATIENCE).expect("a line on standard error");
        let (before, after) =
            (format!("recipes: POST to {scheme}://"), "/_admin/add_recipe; Ctrl-C stops the origin\n");
        between(&line, &before, after)
    }

    /// The next line of standard error.
    #[track_caller]
    pub fn stderr_line(&self) -> String {
        self.stderr.recv_timeout(PATIENCE).expect("a line on standard error")
    }

    /// The next line of standard output.
    #[track_caller]
    pub fn stdout_line(&self) -> String {
        self.stdout.recv_timeout(PATIENCE).expect("a line on standard output")
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Ends it by a signal.
    pub fn stopped_by(self, signal: Signal) -> ProgramOutput {
        self.signal(signal);
        self.ended()
    }

    /// Waits for its exit; the output is without the lines read before.
    pub fn ended(mut self) -> ProgramOutput {
        let (stdout, stderr) = (rest(&self.stdout), rest(&self.stderr));
        // Its pipes end with it.
        let status = self.child.wait().expect("it has ended");
        let code = status.code().unwrap_or_else(|| panic!("{status}: {stderr}"));
        ProgramOutput { code, stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a pipe as they arrive, each with its line break.
fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    let mut pipe = BufReader::new(pipe);
    thread::spawn(move || {
        let mut line = String::new();
        while pipe.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            if sender.send(std::mem::take(&mut line)).is_err() {
                break;
            }
        }
    });
    lines
}

/// The remaining output, until the pipe ends.
#[track_caller]
fn rest(lines: &Receiver<String>) -> String {
    let mut rest = String::new();
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) => rest += &line,
            Err(RecvTimeoutError::Disconnected) => return rest,
            Err(RecvTimeoutError::Timeout) => panic!("it still runs after {PATIENCE:?}; its output: {rest}"),
        }
    }
}

#[track_caller]
fn between(line: &str, before: &str, after: &str) -> SocketAddr {
    let address = line.strip_prefix(before).and_then(|line| line.strip_suffix(after));
    let address = address.unwrap_or_else(|| panic!("{line:?} is not {before:?}, an address and {after:?}"));
    address.parse().expect("an address")
}

/// Sends a request on its own connection and returns the whole response, with its head.
#[track_caller]
pub fn request(address: SocketAddr, method: &str, path: &str, body: &str) -> String {
    let mut tcp = TcpStream::connect_timeout(&address, PATIENCE).expect("the address is open");
    tcp.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    let length = body.len();
    // The admin pages of an origin take no other names.
    let host = if path.starts_with("/_admin/") { "localhost" } else { "origin" };
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    tcp.write_all(text.as_bytes()).expect("a request is sent");
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).expect("an answer");
    answer
}

#[track_caller]
pub fn get(address: SocketAddr, path: &str) -> String {
    request(address, "GET", path, "")
}
