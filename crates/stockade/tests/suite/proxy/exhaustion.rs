//! A full disk, a moved log file, and no free file descriptors.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    process::Command,
};

use rustix::process::Signal;

use super::{RECIPE, Response, stats, until, wait_until_serving};
use crate::{
    running::{PATIENCE, Running, get},
    support::Sandbox,
};

struct LimitedProxy {
    sandbox: Sandbox,
    proxy: Running,
    _origin: Running,
    address: SocketAddr,
    admin: SocketAddr,
}

/// Starts a proxy with these `[log]` settings; `wrap` changes its command.
fn start(log: &str, wrap: impl Fn(Command) -> Command) -> LimitedProxy {
    let sandbox = Sandbox::new();
    let origin = Running::origin(&sandbox, &["-", "--listen", "0"], RECIPE);
    let origin_url = format!("http://{}", origin.listens("http"));
    write_config(&sandbox, log, &origin_url);
    let mut command = sandbox.command();
    command.args(["proxy", "--config", "stockade.toml", "--admin", "0", "--threads", "1"]);
    let proxy = Running::spawn(wrap(command), "");
    let (address, admin) = wait_until_serving(&proxy);
    LimitedProxy { sandbox, proxy, _origin: origin, address, admin }
}

fn write_config(sandbox: &Sandbox, log: &str, origin: &str) {
    let text = format!("listen = [\"127.0.0.1:0\"]\n[log]\n{log}\n[[origin]]\nurl = \"{origin}\"\n");
    sandbox.file("stockade.toml", &text);
}

#[test]
fn full_disk_loses_log_lines_and_no_requests() {
    let limited_proxy = start("path = \"/dev/full\"", |command| command);
    let LimitedProxy { sandbox, proxy, address, admin, .. } = &limited_proxy;
    for _ in 0..10 {
        assert_eq!(Response::of(&get(*address, "/news")).status, 200);
    }
    until(|| stats(*admin)["log_dropped"] == 10);
    let line = proxy.stderr_line();
    assert!(line.contains("the access log dropped ") && line.contains("cannot write to /dev/full"), "{line}");
    assert!(
        line.contains("No space left on device")
            && line.contains("it continues when the output takes lines again"),
        "{line}"
    );

    // The next output has free space.
    let file = fs::read_to_string(sandbox.path().join("stockade.toml")).unwrap();
    sandbox.file("stockade.toml", &file.replace("/dev/full", "access.log"));
    proxy.signal(Signal::HUP);
    assert_eq!(proxy.stderr_line(), "log: is in force\n");
    let log = sandbox.path().join("access.log");
    // Lines recorded within 20 ms of the reload may still go to the old output.
    until(|| {
        assert_eq!(Response::of(&get(*address, "/news?after")).status, 200);
        fs::read_to_string(&log).unwrap_or_default().contains("\"url\":\"/news?after\"")
    });
    let dropped = stats(*admin)["log_dropped"].clone();
    get(*address, "/news?last");
    until(|| fs::read_to_string(&log).unwrap_or_default().contains("/news?last"));
    assert_eq!(stats(*admin)["log_dropped"], dropped);
}

#[test]
fn moved_log_file_is_created_anew() {
    let limited_proxy = start("path = \"access.log\"\nformat = \"combined\"", |command| command);
    let LimitedProxy { sandbox, proxy, address, .. } = &limited_proxy;
    let (log, old) = (sandbox.path().join("access.log"), sandbox.path().join("access.log.1"));
    let lines = |path: &std::path::Path| fs::read_to_string(path).unwrap_or_default();
    get(*address, "/news?before");
    until(|| lines(&log).contains("/news?before"));
    fs::rename(&log, &old).unwrap();
    proxy.signal(Signal::HUP);
    assert_eq!(proxy.stderr_line(), "reloaded: no setting has changed\n");
    until(|| {
        get(*address, "/news?after");
        lines(&log).contains("\"GET /news?after HTTP/1.1\" 200 11 ")
    });
    assert!(lines(&old).contains("before") && !lines(&log).contains("before"));
}

#[test]
fn without_file_descriptors_idle_connections_are_closed() {
    const DESCRIPTORS: usize = 64;
    let limited = |command: Command| {
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit -n {DESCRIPTORS}; exec \"$@\""), "sh"]);
        limited.arg(command.get_program()).args(command.get_args());
        limited.current_dir(command.get_current_dir().expect("the sandbox"));
        limited
    };
    let limited_proxy = start("format = \"none\"", limited);
    let LimitedProxy { address, admin, .. } = &limited_proxy;
    assert_eq!(Response::of(&get(*address, "/news")).outcome(), "miss");
    // More connections than descriptors: the proxy closes idle ones to serve requests.
    let idle: Vec<_> = (0..2 * DESCRIPTORS)
        .map(|_| TcpStream::connect_timeout(address, PATIENCE).expect("the kernel takes it"))
        .collect();
    for _ in 0..10 {
        Response::of(&get(*address, "/news")).assert(200, "all is well", "hit");
    }
    drop(idle);
    // Once they are closed, it connects to its origin and to the admin client again.
    until(|| stats(*admin)["connections"] == 0);
    Response::of(&get(*address, "/weather")).assert(200, "rain", "miss");
}
