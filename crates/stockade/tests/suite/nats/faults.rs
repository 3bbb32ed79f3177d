//! Something fails at some point of a load: the outcome is the right figures, or the reason and its place; nothing hangs, and nothing
//! goes on.
//!
//! `STOCKADE_FAULTS=100 cargo test -p stockade --all-features --test suite nats::faults -- --nocapture` tries more points.

use std::{
    env,
    sync::atomic::Ordering::Relaxed,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;
use stockade_services::NatsServer;

use super::{agent, counting, link::Link};
use crate::{running::Running, support::Sandbox};

#[derive(Clone, Copy, Debug)]
enum Fault {
    KillAgent,
    FreezeAgent,
    CutAgent,
    KillCoordinator,
    FreezeCoordinator,
    CutCoordinator,
    RestartNats,
    KillNats,
    Interrupt,
}

const FAULTS: [Fault; 9] = [
    Fault::KillAgent,
    Fault::KillCoordinator,
    Fault::FreezeAgent,
    Fault::CutAgent,
    Fault::RestartNats,
    Fault::FreezeCoordinator,
    Fault::CutCoordinator,
    Fault::KillNats,
    Fault::Interrupt,
];

/// 3 s at 200/s.
const REQUESTS: u64 = 600;
/// Nothing takes longer after a fault; on a busy machine ten times as long.
const STOPS_WITHIN: Duration = Duration::from_secs(5);

fn wait(time: Duration) {
    thread::park_timeout(time);
}

/// The end of a load after a fault.
struct Outcome {
    /// From the fault to the end of the coordinator; `None`: it was killed or frozen.
    ended_after: Option<Duration>,
    /// From the fault to the last request.
    silent_after: Duration,
    is_valid: bool,
}

/// Runs a load on three agents, with a fault so long after its start.
#[expect(clippy::disallowed_methods, reason = "real processes in real time")]
fn run(fault: Fault, after: Duration) -> Outcome {
    let sandbox = Sandbox::new();
    let mut nats = NatsServer::start().unwrap();
    let (server, count) = counting();
    let links = ["a", "b", "c"].map(|name| (name, Link::to(nats.port())));
    let mut agents: Vec<Running> = links
        .iter()
        .map(|(name, link)| agent(&sandbox, &format!("nats://{}", link.address), name, &[]))
        .collect();
    let own_link = Link::to(nats.port());
    let (url, on) = (format!("http://{server}/"), format!("nats://{}", own_link.address));
    let arguments = [
        "load", &url, "--rate", "200/s", "-d", "3s", "--drain", "1s", "--on", &on, "--agents", "3",
        "--format", "json",
    ];
    let coordinator = Running::start(&sandbox, &arguments, "");
    wait(after);
    let failed_at = Instant::now();
    match fault {
        Fault::KillAgent => drop(agents.remove(1)),
        Fault::FreezeAgent => agents[1].signal(Signal::STOP),
        Fault::CutAgent => links[1].1.cut(),
        Fault::KillCoordinator => coordinator.signal(Signal::KILL),
        Fault::FreezeCoordinator => coordinator.signal(Signal::STOP),
        Fault::CutCoordinator => own_link.cut(),
        Fault::RestartNats => nats.restart().unwrap(),
        Fault::KillNats => nats.kill(),
        Fault::Interrupt => coordinator.signal(Signal::INT),
    }
    // The last request that arrives, while the coordinator ends.
    let watched = {
        let count = count.clone();
        thread::spawn(move || {
            let (mut seen, mut last) = (count.load(Relaxed), failed_at);
            while last.elapsed() < STOPS_WITHIN {
                wait(Duration::from_millis(20));
                if count.load(Relaxed) > seen {
                    (seen, last) = (count.load(Relaxed), Instant::now());
                }
            }
            (seen, last - failed_at)
        })
    };
    let is_gone = matches!(fault, Fault::KillCoordinator | Fault::FreezeCoordinator);
    let output = (!is_gone).then(|| coordinator.ended());
    let ended_after = output.is_some().then(|| failed_at.elapsed());
    let (seen, silent_after) = watched.join().expect("no panic");
    // A frozen agent goes on and finds that its time is over.
    if matches!(fault, Fault::FreezeAgent) {
        agents[1].signal(Signal::CONT);
        wait(Duration::from_millis(500));
        assert_eq!(count.load(Relaxed), seen, "{fault:?} after {after:?}: an agent goes on");
    }
    let is_valid = output.as_ref().is_some_and(|output| output.code == 0);
    if let Some(output) = output {
        let what = format!("{fault:?} after {after:?}: {} {}", output.code, output.stderr);
        match output.code {
            0 => {
                let report: Value = serde_json::from_str(&output.stdout).expect(&what);
                assert_eq!(report["requests"], REQUESTS, "{what}");
                assert_eq!(seen, REQUESTS, "{what}");
            }
            98 => {
                let is_explained = ["agent a", "agent b", "agent c", "interrupted"]
                    .iter()
                    .any(|word| output.stderr.contains(word));
                assert!(is_explained, "{what}");
                if let Ok(report) = serde_json::from_str::<Value>(&output.stdout) {
                    let measured = report["requests"].as_u64().expect("a count");
                    assert!(measured <= seen, "{what}: {measured} of {seen}");
                }
            }
            // Before the load.
            1 => assert!(output.stderr.contains("error: "), "{what}"),
            _ => panic!("{what}"),
        }
    }
    Outcome { ended_after, silent_after, is_valid }
}

#[test]
fn every_fault_ends_in_right_figures_or_a_reason() {
    let points = env::var("STOCKADE_FAULTS").ok().and_then(|count| count.parse().ok());
    let mut random = 88_172_645_463_325_252_u64;
    let mut slowest = (Duration::ZERO, Duration::ZERO);
    for point in 0..points.unwrap_or(5) {
        // Marsaglia's xorshift.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let fault = FAULTS[point % FAULTS.len()];
        let after = match (points, fault) {
            (Some(_), _) => random % 4_500,
            // While agents are awaited.
            (None, Fault::RestartNats) => 20,
            (None, _) => 1_500,
        };
        let after = Duration::from_millis(after);
        let outcome = run(fault, after);
        println!(
            "{fault:?} after {after:?}: ended after {:?}, silent after {:?}{}",
            outcome.ended_after,
            outcome.silent_after,
            if outcome.is_valid { ", valid" } else { "" }
        );
        if !outcome.is_valid {
            slowest.0 = slowest.0.max(outcome.ended_after.unwrap_or_default());
            slowest.1 = slowest.1.max(outcome.silent_after);
        }
    }
    println!("slowest: ended after {:?}, silent after {:?}", slowest.0, slowest.1);
    assert!(slowest.0.max(slowest.1) < 10 * STOPS_WITHIN, "{slowest:?}");
}
