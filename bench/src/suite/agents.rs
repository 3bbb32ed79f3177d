//! Loads from agents at a NATS server.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use super::{AIM, Bench, Better, Figure, Metric, OURS, Result, Sitting};
use crate::{
    generators::{responder, stockade},
    origin::Server,
    responder::RESPONDER,
};

const ROUNDS: usize = 5;
const AGENTS: usize = 4;
const NATS: &str = "127.0.0.1:18422";
const ONE: &str = "one generator";

pub(super) const BENCH: Bench = Bench {
    name: "agents",
    shows: "the send lag of a load from one, two and four agents compared with that of one generator, and what reporting costs an agent",
    method: "The responder has the first core. Nothing else is pinned: nats-server, coordinator and four agents share the machine. An \
             agent on a machine of its own is the case of one; with four, there are more processes than cores. The cost of reporting is the \
             processor time of an agent's main thread, which sends seconds and signs of life and answers for its clock; its load has \
             threads of its own.",
    seconds: 400,
    needs: &["nats-server"],
    peers: &["nats-server"],
    metrics: &[
        Metric { name: "send lag p99", unit: "us", digits: 1, better: Better::Lower, aim: Some(1.2) },
        Metric { name: "reporting", unit: "cores", digits: 4, better: Better::Lower, aim: Some(1.0) },
    ],
    limits: &[],
    measure,
    child: None,
};

/// An agent, killed on drop.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Agent {
    fn start(program: &str, name: &str) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["agent", "--nats", &format!("nats://{NATS}"), "--name", name, "--weight", "1"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut ready = String::new();
        BufReader::new(child.stdout.take().ok_or("a pipe")?).read_line(&mut ready)?;
        Ok(Self(child))
    }

    /// The processor seconds of its main thread.
    fn main_thread_seconds(&self) -> Result<f64> {
        let id = self.0.id();
        let path = format!("/proc/{id}/task/{id}/schedstat");
        let nanos = fs::read_to_string(Path::new(&path))?;
        Ok(nanos.split_whitespace().next().ok_or("an empty file")?.parse::<f64>()? / 1e9)
    }
}

fn measure(sitting: &Sitting) -> Result<Vec<Figure>> {
    let program = stockade()?;
    let program = program.to_str().ok_or("a path that is not text")?;
    let _responder = responder()?;
    let (address, port) = NATS.split_once(':').ok_or("no port")?;
    let store = sitting.memory_folder.join("streams");
    let store = store.to_str().ok_or("a path that is not text")?;
    let nats = ["nats-server", "--jetstream", "--addr", address, "--port", port, "--store_dir", store];
    let _nats = Server::start_anywhere(&nats, NATS)?;
    let agents =
        (0..AGENTS).map(|index| Agent::start(program, &format!("a{index}"))).collect::<Result<Vec<_>>>()?;
    let seconds = sitting.scaled(5.0, 1.0);
    let mut figures = Vec::new();
    for (count, rate) in [1, 2, AGENTS].into_iter().flat_map(|count| [(count, "425"), (count, "10000")]) {
        let case = format!("{rate} requests a second, agents: {count}");
        figures.extend(sitting.interleave(&case, ["send lag p99"], &[OURS, ONE], ROUNDS, |at| {
            Ok([send_lag_p99_us(program, rate, seconds, if at == 0 { count } else { 0 })?])
        })?);
    }
    let case = "an agent's part of 10000 requests a second";
    figures.extend(sitting.interleave(case, ["reporting"], &[OURS, AIM], ROUNDS, |at| {
        if at == 1 {
            return Ok([0.01]);
        }
        let before = agents[0].main_thread_seconds()?;
        send_lag_p99_us(program, "10000", seconds, AGENTS)?;
        Ok([(agents[0].main_thread_seconds()? - before) / seconds])
    })?);
    Ok(figures)
}

/// Of a load from this number of agents; 0: from this program alone.
fn send_lag_p99_us(program: &str, rate: &str, seconds: f64, agents: usize) -> Result<f64> {
    let (url, rate, lasts) = (format!("http://{RESPONDER}/1"), format!("{rate}/s"), format!("{seconds}s"));
    let mut command = Command::new(program);
    command.args(["load", &url, "--rate", &rate, "-d", &lasts, "--format", "json"]);
    if agents > 0 {
        command.args(["--on", &format!("nats://{NATS}"), "--agents", &agents.to_string()]);
    }
    let output = command.stdin(Stdio::null()).output()?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let p99 = report.pointer("/stockade/send_lag/p99_ms").and_then(Value::as_f64);
    Ok(p99.ok_or("the report has no send lag")? * 1e3)
}
