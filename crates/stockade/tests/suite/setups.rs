//! Setups that cannot work are refused before the first request, with the arm, the place and the remedy.

use std::{net::TcpListener, process::Stdio};

use stockade_services::free_port;

use crate::{proxy::until, running::Running, support::Sandbox};

/// A cache that runs already, in front of the run's origin at `ORIGIN`, and a second arm that is replaced.
fn experiment(target: &str, origin: u16, second: &str) -> String {
    format!(
        r#"
title = "Setups"
[origin]
listen = "127.0.0.1:{origin}"
recipe = [{{ route = "/*", body = "hello", stages = [{{ at = 0 }}], headers = {{ cache-control = "max-age=60" }} }}]
[load]
rate = "50/s"
duration = "10m"
path = "/{{key}}"
keys = "uniform:5"
[[arm]]
name = "works"
target.url = "{target}"
[[arm]]
name = "broken"
{second}
"#
    )
}

/// A load of ten minutes shows that nothing was sent: the test would take as long.
#[test]
fn setups_that_cannot_work_are_refused_before_the_first_request() {
    let sandbox = Sandbox::new();
    let origin = free_port().expect("a port");
    let url = format!("http://127.0.0.1:{origin}");
    let proxy = Running::start(&sandbox, &["proxy", "--origin", &url, "--listen", "0"], "");
    let target = format!("http://{}", proxy.listens("http"));
    let foreign_origin = free_port().expect("a port");
    let foreign = format!("http://127.0.0.1:{foreign_origin}");
    let elsewhere = Running::start(&sandbox, &["proxy", "--origin", &foreign, "--listen", "0"], "");
    let elsewhere = format!("http://{}", elsewhere.listens("http"));
    let closed = free_port().expect("a port");
    let busy = TcpListener::bind("127.0.0.1:0").expect("a port");
    let busy_url = format!("http://{}", busy.local_addr().expect("its address"));
    let works = format!("target.url = \"{target}\"");
    let with = |more: &str| format!("{works}\n{more}");
    let cases: [(&str, String, i32, &[&str]); 12] = [
        (
            "wrong port",
            format!("target.url = \"http://127.0.0.1:{closed}\""),
            1,
            &["arm `broken`: nothing listens at http://127.0.0.1:", "correct the URL"],
        ),
        (
            "dead pid",
            with("target.pid = 4194304"),
            2,
            &["arm `broken`: there is no process 4194304", "leave it out"],
        ),
        (
            "foreign origin",
            format!("target.url = \"{elsewhere}\""),
            1,
            &["arm `broken`: a request to", "does not reach the origin of this run", "let the cache forward"],
        ),
        (
            "busy port",
            format!("target.url = \"{busy_url}\"\ntarget.command = \"cat\""),
            1,
            &["arm `broken`: something listens at", "leave the command out"],
        ),
        (
            "missing file",
            with("origin.recipe = \"gone.json\""),
            2,
            &["arm `broken`", "gone.json", "No such file"],
        ),
        (
            "missing unit",
            with("[preflight]\nprobes = [{ at = 5, path = \"/\", status = 200 }]"),
            2,
            &["setups.toml:", "unit"],
        ),
        (
            "unknown preset",
            "target.kind = \"proxy\"\ncache.strategy = \"stampde\"".to_owned(),
            2,
            &["setups.toml:", "stampede"],
        ),
        (
            "command that ends",
            format!(
                "target.url = \"http://127.0.0.1:{closed}\"\ntarget.command = \"echo out of order; exit 3\""
            ),
            1,
            &["arm `broken`: the server of the command has ended", "exit status: 3", "out of order"],
        ),
        (
            "command that is missing",
            format!("target.url = \"http://127.0.0.1:{closed}\"\ntarget.command = \"no-such-cache -F\""),
            1,
            &["arm `broken`", "no-such-cache"],
        ),
        (
            "purge that is refused",
            with("target.reset = { purge = \"PURGE /\" }"),
            1,
            &["arm `broken`: `reset.purge`: PURGE http://", "reset.command"],
        ),
        (
            "reset that fails",
            with("target.reset = { command = \"exit 4\" }"),
            1,
            &["arm `broken`: `reset.command` failed", "4"],
        ),
        (
            "settings of our proxy",
            "target.kind = \"proxy\"\ncache.strategy = \"simple\"\nproxy.threads = 0".to_owned(),
            2,
            &["arm `broken`", "threads"],
        ),
    ];
    for (name, second, code, words) in cases {
        let file = sandbox.file("setups.toml", &experiment(&target, origin, &second));
        let output = sandbox.stockade(&["run", &file, "--out", "record"]);
        assert_eq!(output.code, code, "{name}: {}{}", output.stdout, output.stderr);
        for word in words {
            assert!(output.stderr.contains(word), "{name}: `{word}` in {}", output.stderr);
        }
        assert!(!sandbox.path().join("record").exists(), "{name}: nothing was measured");
    }
}

#[test]
fn origin_without_an_address_is_refused_beside_a_url() {
    let sandbox = Sandbox::new();
    let text = experiment("http://127.0.0.1:1", 1, "target.url = \"http://127.0.0.1:2\"");
    let file = sandbox.file("setups.toml", &text.replace("listen = \"127.0.0.1:1\"\n", ""));
    sandbox.stockade(&["run", &file]).assert_refused(2, &["there is no address of the origin", "listen ="]);
}

/// Each measurement starts the command anew, so that each is equally cold, and ends all its processes.
#[test]
fn command_is_started_for_each_measurement_and_stopped_after_it() {
    let sandbox = Sandbox::new();
    let (origin, listen) = (free_port().expect("a port"), free_port().expect("a port"));
    let program = env!("CARGO_BIN_EXE_stockade");
    let text = format!(
        r#"
title = "A command"
repeat = 2
[target]
url = "http://127.0.0.1:{listen}"
command = "echo started >> starts; {program} proxy --origin $STOCKADE_ORIGIN --listen 127.0.0.1:{listen}"
before = "echo before >> starts; test -d $STOCKADE_FOLDER"
[origin]
listen = "127.0.0.1:{origin}"
recipe = [{{ route = "/*", body = "hello", stages = [{{ at = 0 }}], headers = {{ cache-control = "max-age=60" }} }}]
[load]
rate = "100/s"
duration = "1s"
path = "/{{key}}"
keys = "scan:5"
[[hypothesis]]
text = "it is cold each time, and its processes are measured"
expect = ["source_loads == 5", "offload == 0.95", "success == 1", "proxy.rss.max > 1"]
"#
    );
    let file = sandbox.file("command.toml", &text);
    let output = sandbox.stockade(&["run", &file, "--out", "record"]);
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    let starts = std::fs::read_to_string(sandbox.path().join("starts")).expect("it was started");
    // Once before the load, to see whether it works, and once for each repeat.
    assert_eq!(starts, "before\nstarted\n".repeat(3));
    drop(TcpListener::bind(("127.0.0.1", listen)).expect("nothing listens there any more"));
}

/// The shell's children would go on if only the shell was ended.
#[test]
fn command_ends_with_a_run_that_is_killed() {
    let sandbox = Sandbox::new();
    let (origin, listen) = (free_port().expect("a port"), free_port().expect("a port"));
    let program = env!("CARGO_BIN_EXE_stockade");
    let target = format!("http://127.0.0.1:{listen}");
    let second = format!(
        "target.url = \"{target}\"\ntarget.command = \"{program} proxy --origin $STOCKADE_ORIGIN --listen 127.0.0.1:{listen}; true\""
    );
    let text = experiment(&target, origin, &second)
        .replace("[[arm]]\nname = \"works\"\ntarget.url", "[unused]\nurl");
    let file = sandbox.file("killed.toml", &text.replace(&format!("[unused]\nurl = \"{target}\"\n"), ""));
    let mut run = sandbox
        .command()
        .args(["run", &file, "--out", "record"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let is_measured = || std::fs::metadata(sandbox.path().join("record/record.json")).is_ok();
    let listens = || std::net::TcpStream::connect(("127.0.0.1", listen)).is_ok();
    until(|| is_measured() && listens());
    run.kill().expect("it can be killed");
    run.wait().expect("it ends");
    until(|| !listens());
}
