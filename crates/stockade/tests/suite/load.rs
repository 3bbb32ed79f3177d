//! `stockade load` as its users run it: a process that sends requests to real servers over real connections, and prints a
//! report.

mod capacity;
mod expect;
mod plans;
mod records;
mod reports;
mod requests_sent;
pub mod stub;
mod usage;
mod wire;

use std::net::SocketAddr;

use serde_json::Value;

use crate::{
    running::{Running, get},
    support::{ProgramOutput, Sandbox},
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

    /// The body of an admin page.
    fn page(&self, name: &str) -> String {
        let answer = get(self.admin, &format!("/_admin/{name}"));
        answer.split_once("\r\n\r\n").expect("a head and a body").1.to_owned()
    }

    /// The requests that it has counted so far.
    fn count(&self) -> Value {
        serde_json::from_str(&self.page("current_count")).expect("JSON")
    }

    /// The JSON report of a load on this path.
    #[track_caller]
    fn measure(&self, path: &str, options: &[&str]) -> Value {
        measure(&self.sandbox, &[&[self.url(path).as_str()], options].concat())
    }
}

/// Every `--format`.
const FORMATS: [&str; 11] = [
    "text",
    "json",
    "vegeta",
    "vegeta-hist",
    "hdrplot",
    "hgrm",
    "hlog",
    "siege",
    "siege-json",
    "openmetrics",
    "csv",
];

/// Runs `stockade load` in this directory.
fn load(sandbox: &Sandbox, arguments: &[&str]) -> ProgramOutput {
    without_record(Running::start(sandbox, &[&["load"], arguments].concat(), "").ended())
}

/// The start of the line that names the record.
const RECORD: &str = "record, report.md and report.html in ";

/// Without the line that names the record: `records` checks it.
fn without_record(output: ProgramOutput) -> ProgramOutput {
    let is_other = |line: &&str| !line.starts_with(RECORD);
    let stderr = output.stderr.split_inclusive('\n').filter(is_other).collect();
    ProgramOutput { stderr, ..output }
}

/// The JSON report of a load that ended.
#[track_caller]
fn measure(sandbox: &Sandbox, arguments: &[&str]) -> Value {
    let output = load(sandbox, &[arguments, &["--format", "json"]].concat());
    assert_done(&output);
    json(&output)
}

#[track_caller]
fn json(output: &ProgramOutput) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The load exited with 0, or with 1 because every request failed. On a busy machine it says that the generator was late.
#[track_caller]
fn assert_done(output: &ProgramOutput) {
    const LATE: &str = "INVALID: the generator was ";
    if output.code == 1 {
        let is_one_line = output.stderr.lines().count() == 1;
        assert!(output.stderr.starts_with("error: all of ") && is_one_line, "{output:?}");
        return;
    }
    assert!(
        output.code == 0
            && output.stderr.lines().all(|line| line.starts_with(LATE) || line.starts_with(RECORD)),
        "{output:?}"
    );
}

/// The lines of a file that a load has written.
#[track_caller]
fn written(sandbox: &Sandbox, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(sandbox.path().join(name)).expect("it was written");
    text.lines().map(str::to_owned).collect()
}
