//! Loads from several machines, each a process here, at a real NATS server.

mod faults;
mod link;
mod servers;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use stockade_services::{NatsServer, serve_hello};

use crate::{running::Running, support::Sandbox};

/// Starts `stockade agent` and waits until it is ready.
fn agent(sandbox: &Sandbox, nats: &str, name: &str, more: &[&str]) -> Running {
    let agent = Running::start(
        sandbox,
        &[&["agent", "--nats", nats, "--name", name, "--weight", "1"], more].concat(),
        "",
    );
    let ready: Value = serde_json::from_str(&agent.stdout_line()).expect("a line of JSON");
    assert_eq!(ready["name"], name);
    agent
}

/// A server, and the number of its requests.
fn counting() -> (SocketAddr, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let address = serve_hello(move || _ = counted.fetch_add(1, Relaxed)).expect("a free port");
    (address, count)
}

#[test]
fn load_on_agents_has_the_report_of_one_and_a_line_for_each_agent() {
    let sandbox = Sandbox::new();
    let nats = NatsServer::start().unwrap();
    let (server, count) = counting();
    let _agents = ["a", "b"].map(|name| agent(&sandbox, &nats.url(), name, &[]));
    let url = format!("http://{server}/");
    let load = |more: &[&str]| {
        let on = nats.url();
        let arguments =
            [&["load", &url, "--rate", "200/s", "-d", "2s", "--on", &on, "--agents", "2"], more].concat();
        Running::start(&sandbox, &arguments, "").ended()
    };
    let output = load(&["--format", "json", "--expect", "failed == 0"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(output.stderr.contains("agents: a, b\n"), "{}", output.stderr);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((report["requests"].as_u64(), count.load(Relaxed)), (Some(400), 400));
    let agents = report["stockade"]["agents"].as_array().unwrap();
    for (agent, name) in agents.iter().zip(["a", "b"]) {
        assert_eq!((agent["name"].as_str(), agent["requests"].as_u64()), (Some(name), Some(200)));
        for figure in ["/clock/offset_ms", "/clock/uncertainty_ms", "/cpu", "/send_lag/p99_ms"] {
            assert!(agent.pointer(figure).is_some_and(Value::is_number), "{figure} in {agent}");
        }
    }
    let text = load(&["--expect", "failed == 0"]).stdout;
    assert!(text.contains("\nagents      a: 200 requests, send lag p99 "), "{text}");
}

#[test]
fn experiment_runs_on_agents() {
    let sandbox = Sandbox::new();
    let nats = NatsServer::start().unwrap();
    let (server, _) = counting();
    let _agents = ["a", "b"].map(|name| agent(&sandbox, &nats.url(), name, &[]));
    sandbox.file(
        "experiment.toml",
        &format!(
            "title = \"From two machines\"\n[[hypothesis]]\ntext = \"all answered\"\nexpect = [\"x.success == 1.0\"]\n\
             [target]\nurl = \"http://{server}\"\n[load]\npath = \"/news\"\nrate = \"100/s\"\nduration = \"2s\"\n[[arm]]\nname = \"x\"\n"
        ),
    );
    let on = format!("{},stockade", nats.url());
    let output = Running::start(
        &sandbox,
        &["run", "experiment.toml", "--on", &on, "--agents", "2", "--format", "json"],
        "",
    )
    .ended();
    assert_eq!(output.code, 0, "{}", output.stderr);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(report["verdict"], "supported");
    assert_eq!(report["arms"]["x"]["requests"], 200);
    let requests: Vec<_> = report["agents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|agent| agent["requests"].as_u64().unwrap())
        .collect();
    assert_eq!(requests, [100, 100]);
}

#[test]
fn lost_agent_makes_its_measurement_invalid_and_is_named_in_the_record() {
    let sandbox = Sandbox::new();
    let nats = NatsServer::start().unwrap();
    let (server, count) = counting();
    let [_a, b] = ["a", "b"].map(|name| agent(&sandbox, &nats.url(), name, &[]));
    sandbox.file(
        "experiment.toml",
        &format!(
            "title = \"One is lost\"\n[[hypothesis]]\ntext = \"all answered\"\nexpect = [\"x.success == 1.0\"]\n\
             [target]\nurl = \"http://{server}\"\n[load]\npath = \"/news\"\nrate = \"100/s\"\nduration = \"60s\"\n\
             [[arm]]\nname = \"x\"\n"
        ),
    );
    let arguments = [
        "run",
        "experiment.toml",
        "--on",
        &nats.url(),
        "--agents",
        "2",
        "--out",
        "record",
        "--format",
        "text",
    ];
    let run = Running::start(&sandbox, &arguments, "");
    // Some seconds of both are recorded.
    while count.load(Relaxed) < 300 {
        thread::yield_now();
    }
    drop(b);
    let output = run.ended();
    assert_eq!(output.code, 98, "{}", output.stderr);
    assert!(output.stdout.contains("agent b: no sign of life for 1.5 s"), "{}", output.stdout);
    let record = std::fs::read_to_string(sandbox.path().join("record/record.json")).unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    assert_eq!(record["verdict"], "invalid");
    let agents = record.pointer("/runs/0/http/agents").and_then(Value::as_array).expect("its agents");
    assert!(agents.iter().all(|agent| agent["requests"].as_u64().unwrap() > 0), "{agents:?}");
    assert_eq!(record.pointer("/runs/0/http/usage/load"), None, "the load is not of this process");
}

#[test]
fn share_of_a_slow_agent_moves_if_asked_and_each_request_is_sent_once() {
    let sandbox = Sandbox::new();
    let nats = NatsServer::start().unwrap();
    let (server, count) = counting();
    let [_a, b] = ["a", "b"].map(|name| agent(&sandbox, &nats.url(), name, &[]));
    let url = format!("http://{server}/");
    let arguments = [
        "load",
        &url,
        "--rate",
        "200/s",
        "-d",
        "12s",
        "--format",
        "json",
        "--expect",
        "failed == 0",
        "--on",
        &nats.url(),
        "--agents",
        "2",
        "--rebalance",
    ];
    let load = Running::start(&sandbox, &arguments, "");
    while count.load(Relaxed) < 20 {
        thread::yield_now();
    }
    // Suspended for a fifth of each half second: late, but alive.
    while count.load(Relaxed) < 1_600 {
        b.signal(Signal::STOP);
        thread::park_timeout(Duration::from_millis(100));
        b.signal(Signal::CONT);
        thread::park_timeout(Duration::from_millis(400));
    }
    let output = load.ended();
    assert_eq!(output.code, 0, "{}", output.stderr);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((report["requests"].as_u64(), count.load(Relaxed)), (Some(2_400), 2_400));
    let agents = report["stockade"]["agents"].as_array().unwrap();
    let figures = |at: usize, name: &str| agents[at].pointer(name).and_then(Value::as_f64).unwrap();
    assert!(figures(0, "/requests") > figures(1, "/requests") + 200.0, "{agents:?}");
    assert!(figures(1, "/moves/0/share") < 0.34 && figures(1, "/moves/0/at_s") > 2.0, "{agents:?}");
}

#[test]
fn bad_arguments_and_absent_servers_have_one_clear_line() {
    let sandbox = Sandbox::new();
    sandbox.file("engine.toml", "title = \"e\"\n[target]\nkind = \"engine\"\n[load]\nburst = 10\n[[arm]]\nname = \"x\"\ncache.strategy = \"stampede\"\n");
    for (arguments, code, words) in [
        (&["agent", "--nats", "http://a"][..], 2, "this is not an address of a NATS server"),
        (&["agent", "--nats", "nats://a,b.c"], 2, "`b.c` is not a subject"),
        (&["agent", "--nats", "nats://a", "--allow-target", "a b"], 2, "`a b` is not a pattern of servers"),
        (
            &["agent", "--nats", "nats://127.0.0.1:1", "--wait", "100ms"],
            1,
            "cannot reach NATS at nats://127.0.0.1:1",
        ),
        (
            &["load", "http://127.0.0.1:1", "--on", "nats://ann:secret@127.0.0.1:1"],
            1,
            "cannot reach NATS at nats://127.0.0.1:1",
        ),
        (&["load", "http://127.0.0.1:1", "--agents", "2"], 2, "--on"),
        (
            &["load", "http://127.0.0.1:1", "--on", "nats://127.0.0.1:1", "--out", "a.json"],
            2,
            "start them as `stockade agent --out DIR`",
        ),
        (
            &["run", "engine.toml", "--on", "nats://127.0.0.1:1"],
            2,
            "no load of this experiment goes over HTTP",
        ),
        (&["agent", "--nats", "nats://127.0.0.1:1", "--name", "../a"], 1, "`../a` is not a name of an agent"),
        (
            &["agent", "--nats", "nats://127.0.0.1:1", "--nats-credentials", "absent"],
            2,
            "cannot read the credentials absent",
        ),
    ] {
        let output = Running::start(&sandbox, arguments, "").ended();
        assert_eq!(output.code, code, "{arguments:?}: {}", output.stderr);
        assert!(
            output.stderr.contains(words) && !output.stderr.contains("secret"),
            "{arguments:?}: {}",
            output.stderr
        );
    }
}
