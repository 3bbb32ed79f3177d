//! `stockade load` as its users run it: a process that asks real servers, over real connections, and tells on standard
//! output what became of it.

mod asked;
mod capacity;
mod plans;
mod reports;
mod stub;
mod usage;
mod wire;

use std::net::SocketAddr;

use serde_json::Value;

use crate::{
    running::{Running, get},
    support::{Said, Sandbox},
};

/// An origin that serves while a test goes on.
struct Origin {
    sandbox: Sandbox,
    address: SocketAddr,
    admin: SocketAddr,
    scheme: &'static str,
    _running: Running,
}

impl Origin {
    fn new(recipe: &str) -> Self {
        Self::with("http", &[], recipe)
    }

    /// With a certificate of its own.
    fn encrypted(recipe: &str) -> Self {
        Self::with("https", &["--tls"], recipe)
    }

    fn with(scheme: &'static str, options: &[&str], recipe: &str) -> Self {
        let sandbox = Sandbox::new();
        let always = ["-", "--listen", "0", "--admin", "0"];
        let running = Running::origin(&sandbox, &[&always, options].concat(), recipe);
        let (address, admin) = (running.listens(scheme), running.takes_recipes("http"));
        Self { sandbox, address, admin, scheme, _running: running }
    }

    fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }

    /// What an admin page says.
    fn page(&self, name: &str) -> String {
        let answer = get(self.admin, &format!("/_admin/{name}"));
        answer.split_once("\r\n\r\n").expect("a head and a body").1.to_owned()
    }

    /// What it was asked so far.
    fn count(&self) -> Value {
        serde_json::from_str(&self.page("current_count")).expect("JSON")
    }

    /// One JSON report, of a load of this path.
    #[track_caller]
    fn measure(&self, path: &str, options: &[&str]) -> Value {
        measure(&self.sandbox, &[&[self.url(path).as_str()], options].concat())
    }
}

/// Loads, in this directory.
fn load(sandbox: &Sandbox, arguments: &[&str]) -> Said {
    Running::start(sandbox, &[&["load"], arguments].concat(), "").ended()
}

/// One JSON report of a load that ended as loads do.
#[track_caller]
fn measure(sandbox: &Sandbox, arguments: &[&str]) -> Value {
    let said = load(sandbox, &[arguments, &["--format", "json"]].concat());
    assert_done(&said);
    json(&said)
}

#[track_caller]
fn json(said: &Said) -> Value {
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

/// It ended by itself, and has nothing to say besides its report. Where others keep the machine busy, a load may have been
/// late, and says so.
#[track_caller]
fn assert_done(said: &Said) {
    const LATE: &str = "INVALID: the generator was ";
    let is_late = said.stdout.contains(LATE) || said.stderr.contains(LATE);
    assert!(said.code == 0 || (said.code == 98 && is_late), "{said:?}");
    assert!(said.stderr.lines().all(|line| said.code == 98 && line.starts_with(LATE)), "{said:?}");
}

/// The lines of a file that a load has written.
#[track_caller]
fn written(sandbox: &Sandbox, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(sandbox.path().join(name)).expect("it was written");
    text.lines().map(str::to_owned).collect()
}
