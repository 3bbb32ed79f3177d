//! A disk that is full, a log that nobody reads, and no file descriptors left.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    process::Command,
};

use rustix::process::Signal;

use super::{Got, RECIPE, serves, stats, until};
use crate::{
    running::{PATIENCE, Running, get},
    support::Sandbox,
};

struct Strained {
    sandbox: Sandbox,
    proxy: Running,
    _origin: Running,
    address: SocketAddr,
    admin: SocketAddr,
}

/// Whose log goes there.
fn start(log: &str, wrap: impl Fn(Command) -> Command) -> Strained {
    let sandbox = Sandbox::new();
    let origin = Running::origin(&sandbox, &["-", "--listen", "0"], RECIPE);
    let origin_url = format!("http://{}", origin.listens("http"));
    write_config(&sandbox, log, &origin_url);
    let mut command = sandbox.command();
    command.args(["proxy", "--config", "stockade.toml", "--admin", "0", "--threads", "1"]);
    let proxy = Running::spawn(wrap(command), "");
    let (address, admin) = serves(&proxy);
    Strained { sandbox, proxy, _origin: origin, address, admin }
}

fn write_config(sandbox: &Sandbox, log: &str, origin: &str) {
    let text = format!("listen = [\"127.0.0.1:0\"]\n[log]\n{log}\n[[origin]]\nurl = \"{origin}\"\n");
    sandbox.file("stockade.toml", &text);
}

#[test]
fn a_full_disk_costs_lines_and_no_requests() {
    let strained = start("path = \"/dev/full\"", |command| command);
    let Strained { sandbox, proxy, address, admin, .. } = &strained;
    for _ in 0..10 {
        assert_eq!(Got::of(&get(*address, "/news")).status, 200);
    }
    until(|| stats(*admin)["log_dropped"] == 10);
    let line = proxy.says();
    assert!(line.contains("the access log dropped ") && line.contains("cannot write to /dev/full"), "{line}");
    assert!(
        line.contains("No space left on device")
            && line.contains("it continues when the output takes lines again"),
        "{line}"
    );

    // There is a disk with room.
    let file = fs::read_to_string(sandbox.path().join("stockade.toml")).unwrap();
    sandbox.file("stockade.toml", &file.replace("/dev/full", "access.log"));
    proxy.signal(Signal::HUP);
    assert_eq!(proxy.says(), "log: is in force\n");
    let log = sandbox.path().join("access.log");
    // What is recorded within 20 ms may still go where lines went before.
    until(|| {
        assert_eq!(Got::of(&get(*address, "/news?after")).status, 200);
        fs::read_to_string(&log).unwrap_or_default().contains("\"url\":\"/news?after\"")
    });
    let dropped = stats(*admin)["log_dropped"].clone();
    get(*address, "/news?last");
    until(|| fs::read_to_string(&log).unwrap_or_default().contains("/news?last"));
    assert_eq!(stats(*admin)["log_dropped"], dropped);
}

#[test]
fn a_log_that_is_moved_away_is_written_anew() {
    let strained = start("path = \"access.log\"\nformat = \"combined\"", |command| command);
    let Strained { sandbox, proxy, address, .. } = &strained;
    let (log, old) = (sandbox.path().join("access.log"), sandbox.path().join("access.log.1"));
    let lines = |path: &std::path::Path| fs::read_to_string(path).unwrap_or_default();
    get(*address, "/news?before");
    until(|| lines(&log).contains("/news?before"));
    fs::rename(&log, &old).unwrap();
    proxy.signal(Signal::HUP);
    assert_eq!(proxy.says(), "reloaded: no setting has changed\n");
    until(|| {
        get(*address, "/news?after");
        lines(&log).contains("\"GET /news?after HTTP/1.1\" 200 11 ")
    });
    assert!(lines(&old).contains("before") && !lines(&log).contains("before"));
}

#[test]
fn without_file_descriptors_it_waits_and_goes_on() {
    const DESCRIPTORS: usize = 64;
    let limited = |command: Command| {
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit -n {DESCRIPTORS}; exec \"$@\""), "sh"]);
        limited.arg(command.get_program()).args(command.get_args());
        limited.current_dir(command.get_current_dir().expect("the sandbox"));
        limited
    };
    let strained = start("format = \"none\"", limited);
    let Strained { address, admin, .. } = &strained;
    assert_eq!(Got::of(&get(*address, "/news")).outcome(), "miss");
    // More than it has descriptors for. Those who say nothing leave for those who ask.
    let idle: Vec<_> = (0..2 * DESCRIPTORS)
        .map(|_| TcpStream::connect_timeout(address, PATIENCE).expect("the kernel takes it"))
        .collect();
    for _ in 0..10 {
        Got::of(&get(*address, "/news")).assert(200, "all is well", "hit");
    }
    drop(idle);
    // With all of them gone it asks its origin again, and is looked at.
    until(|| stats(*admin)["connections"] == 0);
    Got::of(&get(*address, "/weather")).assert(200, "rain", "miss");
}
