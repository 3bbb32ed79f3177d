//! This program as a child process: it reports when it listens, and ends with its parent.

use std::{
    io::{self, Write},
    thread,
};

use rustix::process::{Signal, getpid, kill_process};
use serde_json::json;

use crate::{cli::ParentArgs, exit::CommandError};

/// Where a server listens.
pub struct Listening {
    /// URLs.
    pub listen: Vec<String>,
    /// The base URL of its admin pages.
    pub admin: Option<String>,
}

/// Reports on standard output where the server listens, a URL a line or one line of JSON, and then follows the parent's
/// standard input. Standard output has nothing else.
pub fn report_ready(ready: &Listening, args: &ParentArgs) -> Result<(), CommandError> {
    let text = if args.ready_json {
        json!({ "listen": ready.listen, "admin": ready.admin }).to_string()
    } else {
        ready.listen.join("\n")
    };
    if args.until_stdin_ends {
        end_with_stdin();
    }
    writeln!(io::stdout(), "{text}").map_err(CommandError::Output)
}

/// Sends SIGTERM to this process when its standard input has ended. Nothing on it is read.
pub fn end_with_stdin() {
    let watch = || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let _ = kill_process(getpid(), Signal::TERM);
    };
    // Without a thread the parent has to send the signal.
    drop(thread::Builder::new().name("parent".to_owned()).spawn(watch));
}
