//! Origins and proxies on agents.

use std::{
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use stockade_model::proc::process_tree;
use stockade_services::NatsServer;

use super::agent;
use crate::{running::Running, support::Sandbox};

/// Longer than anything takes after a fault, also on a busy machine.
const BOUND: Duration = Duration::from_mins(1);

/// Two agents that send loads, one for the origin, one for the proxy.
struct Machines {
    nats: NatsServer,
    sandbox: Sandbox,
    _load: [Running; 2],
    origin: Running,
    proxy: Running,
}

impl Machines {
    fn start(seconds: u32) -> Self {
        let (sandbox, nats) = (Sandbox::new(), NatsServer::start().unwrap());
        let load = ["a", "b"].map(|name| agent(&sandbox, &nats.url(), name, &[]));
        let [origin, proxy] = [("db", "127.0.0.2"), ("edge", "127.0.0.3")].map(|(name, address)| {
            let agent = Running::start(
                &sandbox,
                &["agent", "--nats", &nats.url(), "--name", name, "--serve", address, "--label", name],
                "",
            );
            let ready: Value = serde_json::from_str(&agent.stdout_line()).expect("a line of JSON");
            assert_eq!(ready["serves"], address);
            agent
        });
        sandbox.file(
            "experiment.toml",
            &format!(
                "title = \"On four machines\"\n[target]\nkind = \"proxy\"\n[cache]\nstrategy = \"stampede\"\n\
                 [origin]\nrecipe = {{ route = \"/*\", body = \"hello\", headers = {{ \"cache-control\" = \"max-age=60\" }}, \
                 stages = [{{ at = 0, latency = \"1ms\" }}] }}\n\
                 [load]\npath = \"/{{key}}\"\nkeys = \"uniform:10\"\nrate = \"100/s\"\nduration = \"{seconds}s\"\n[[arm]]\nname = \"x\"\n\
                 [[hypothesis]]\ntext = \"a load for each key\"\nexpect = [\"x.source_loads == 10\", \"x.success == 1.0\"]\n"
            ),
        );
        Self { nats, sandbox, _load: load, origin, proxy }
    }

    fn run(&self, more: &[&str]) -> Running {
        let on = self.nats.url();
        let arguments = ["run", "experiment.toml", "--on", &on, "--agents", "2", "--out", "record"];
        Running::start(&self.sandbox, &[&arguments, more].concat(), "")
    }

    /// The process of the proxy, a second or two after the start of the load.
    #[expect(clippy::disallowed_methods, reason = "real processes in real time")]
    fn proxy_process(&self) -> Pid {
        let folder = self.sandbox.path().join("record/setup/x.1");
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < BOUND, "no proxy");
            let is_measuring = folder.exists();
            let child = process_tree(self.proxy.id()).into_iter().find(|id| *id != self.proxy.id());
            if let Some(child) = child.filter(|_| is_measuring) {
                thread::park_timeout(Duration::from_secs(2));
                return Pid::from_raw(child.cast_signed()).expect("a process");
            }
            thread::park_timeout(Duration::from_millis(10));
        }
    }

    /// True if no agent has a server.
    fn have_no_servers(&self) -> bool {
        [&self.origin, &self.proxy].iter().all(|agent| process_tree(agent.id()).len() == 1)
    }

    /// True once no agent has a server.
    #[expect(clippy::disallowed_methods, reason = "real processes in real time")]
    fn end_servers(&self) -> bool {
        let since = Instant::now();
        while !self.have_no_servers() && since.elapsed() < BOUND {
            thread::park_timeout(Duration::from_millis(10));
        }
        self.have_no_servers()
    }
}

const LABELS: [&str; 4] = ["--origin-label", "db", "--proxy-label", "edge"];

#[test]
fn origin_and_proxy_on_agents_are_measured_there() {
    let machines = Machines::start(2);
    let output = machines.run(&[&LABELS[..], &["--format", "json"]].concat()).ended();
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(output.stderr.contains("agents: a, b; proxy: edge; origin: db\n"), "{}", output.stderr);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(report["servers"], serde_json::json!({"origin": "db", "proxy": "edge"}));
    let arm = &report["arms"]["x"];
    assert_eq!((arm["requests"].as_u64(), arm["source_loads"].as_u64()), (Some(200), Some(10)));
    for role in ["origin", "proxy"] {
        assert!(arm["rss_mib"][role]["max"].as_f64().is_some_and(|mib| mib > 1.0), "{arm}");
        assert!(arm["cpu"][role]["mean"].as_f64().is_some_and(|cores| cores < 1.0), "{arm}");
    }
    assert!(arm["rss_mib"]["load"].is_null(), "{arm}");
    let record = Running::start(&machines.sandbox, &["report", "record"], "").ended();
    assert!(record.stdout.contains("edge") && record.stdout.contains("db"), "{}", record.stdout);
    assert!(machines.have_no_servers(), "it has not waited for their end");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "real processes in real time")]
fn server_that_ends_and_agent_that_is_lost_are_named() {
    let machines = Machines::start(300);
    let run = machines.run(&LABELS);
    let (proxy, since) = (machines.proxy_process(), Instant::now());
    kill_process(proxy, Signal::KILL).expect("it runs");
    let output = run.ended();
    assert!(since.elapsed() < BOUND, "{:?}", since.elapsed());
    assert_eq!(output.code, 1, "{}", output.stderr);
    assert!(output.stderr.contains("agent edge: the proxy has ended: signal: 9"), "{}", output.stderr);
    assert!(machines.end_servers(), "a server goes on");
    std::fs::remove_dir_all(machines.sandbox.path().join("record")).expect("a record");
    let run = machines.run(&LABELS);
    machines.proxy_process();
    let since = Instant::now();
    machines.proxy.signal(Signal::STOP);
    let output = run.ended();
    assert!(output.stderr.contains("agent edge: no sign of life for 1.5 s"), "{}", output.stderr);
    assert!(since.elapsed() < BOUND);
    // It goes on, and finds that its time is over.
    machines.proxy.signal(Signal::CONT);
    assert!(machines.end_servers(), "a server goes on");
}

#[test]
fn servers_end_with_their_coordinator() {
    let machines = Machines::start(300);
    for signal in [Signal::KILL, Signal::INT] {
        let run = machines.run(&LABELS);
        machines.proxy_process();
        run.signal(signal);
        assert!(machines.end_servers(), "{signal:?}: a server goes on");
        drop(run);
        std::fs::remove_dir_all(machines.sandbox.path().join("record")).expect("a record");
    }
}

#[test]
fn servers_that_cannot_be_placed_are_refused() {
    let machines = Machines::start(1);
    let run = |more: &[&str]| machines.run(&[&["--agents-wait", "1s"], more].concat()).ended();
    let output = run(&["--origin-label", "db", "--proxy-label", "nowhere"]);
    assert_eq!(output.code, 1, "{}", output.stderr);
    for part in [
        "no agent with --serve and the label nowhere is free for the proxy after 1 s",
        "agent a sends loads, and runs no servers: it has no --serve",
        "agent edge has no label nowhere",
    ] {
        assert!(output.stderr.contains(part), "{part} in {}", output.stderr);
    }

    machines.sandbox.file(
        "url.toml",
        "title = \"x\"\n[target]\nurl = \"http://127.0.0.1:1\"\n[load]\npath = \"/\"\nrate = \"1/s\"\nduration = \"1s\"\n\
         [[arm]]\nname = \"x\"\n",
    );
    let on = machines.nats.url();
    let arguments = ["run", "url.toml", "--on", &on, "--proxy-label", "edge"];
    let output = Running::start(&machines.sandbox, &arguments, "").ended();
    assert_eq!((output.code, output.stdout.as_str()), (2, ""));
    assert!(
        output.stderr.contains("this experiment starts no proxy: remove --proxy-label"),
        "{}",
        output.stderr
    );
}
