//! Agents send the requests of one generator, at the same times.

use std::{collections::BTreeMap, num::NonZeroU32, sync::atomic::Ordering::Relaxed, time::Duration};

use stockade_agents::{AgentOptions, CancellationToken};
use stockade_load::{
    generator::{LoadTest, ThisProcess},
    plan::{ClosedLoop, EndCondition, Plan},
};
use stockade_record::histogram::Histogram;
use stockade_services::NatsServer;

use super::fixture::{
    Agent, Observed, agent_options, agents, constant, coordinator, hello, lines, load, run,
};

/// A request: its number, its URL without the server, and its due time since the start in nanoseconds.
type Sent = (u64, String, u64);

/// The requests of one generator in this process.
fn sent_by_one(load: &LoadTest) -> Vec<Sent> {
    let mut observed = Observed::default();
    let load = LoadTest { observes_samples: true, ..load.clone() };
    load.run(&mut observed, &CancellationToken::new()).expect("it runs");
    let start = observed.start.expect("it starts").measured_from;
    let sent = observed.samples.iter().map(|sample| {
        let due = (sample.timing.scheduled - start).as_nanos();
        (
            sample.number,
            load.traffic.request(sample.number).path.into_owned(),
            u64::try_from(due).expect("a short load"),
        )
    });
    let mut sent: Vec<_> = sent.collect();
    sent.sort();
    sent
}

/// A line of a file of samples: the request and its response time.
fn read(line: &str) -> (Sent, Duration) {
    let json: serde_json::Value = serde_json::from_str(line).expect("JSON");
    let url = json["url"].as_str().expect("a URL");
    let path = url.splitn(4, '/').nth(3).map(|path| format!("/{path}")).expect("a path");
    let time: jiff::Timestamp = json["timestamp"].as_str().expect("a time").parse().expect("a time");
    let nanos = u64::try_from(time.as_nanosecond()).expect("after 1970");
    let latency = Duration::from_nanos(json["latency"].as_u64().expect("nanoseconds"));
    ((json["seq"].as_u64().expect("a number"), path, nanos), latency)
}

#[test]
fn four_agents_send_the_requests_of_one_generator() {
    let nats = NatsServer::start().unwrap();
    let (server, count) = hello();
    for (rate, lasts) in [("425/s", Duration::from_secs(2)), ("10000/s", Duration::from_secs(1))] {
        let load = load(server, constant(rate, lasts));
        let by_one = sent_by_one(&load);
        let folder = tempfile::tempdir().unwrap();
        let agents = agents(&nats, 4, Some(folder.path()));
        let before = count.load(Relaxed);
        let summary = run(&coordinator(&nats, 4).unwrap(), &load).unwrap().summary;
        assert_eq!(summary.measured.requests(), by_one.len() as u64);
        assert_eq!(count.load(Relaxed) - before, by_one.len() as u64, "the server has counted them");
        let samples: Vec<_> = lines(folder.path()).iter().map(|line| read(line)).collect();
        let start = samples.iter().map(|((_, _, at), _)| *at).min().unwrap();
        let mut by_four: Vec<Sent> =
            samples.iter().map(|((number, path, at), _)| (*number, path.clone(), at - start)).collect();
        by_four.sort();
        assert_eq!(by_four, by_one, "{rate}");
        // Merged histograms are the histogram of all samples.
        let all: Histogram = samples.iter().map(|(_, latency)| *latency).collect();
        assert_eq!(summary.measured.times.response, all, "{rate}");
        let by_agent: BTreeMap<_, _> =
            summary.agents.iter().map(|agent| (agent.name.as_str(), agent.requests)).collect();
        let names: Vec<_> = by_agent.keys().copied().collect();
        assert_eq!(names, ["a0", "a1", "a2", "a3"]);
        assert_eq!(by_agent.values().sum::<u64>(), by_one.len() as u64);
        assert!(
            by_agent.values().all(|requests| requests.abs_diff(by_one.len() as u64 / 4) <= 1),
            "{by_agent:?}"
        );
        for agent in agents {
            agent.stop().unwrap();
        }
    }
}

#[test]
fn weights_divide_the_load() {
    let nats = NatsServer::start().unwrap();
    let weighted = |name: &str, weight: u32| {
        let weight = NonZeroU32::new(weight).unwrap();
        Agent::start(AgentOptions { weight, ..agent_options(&nats, name) })
    };
    let _agents = [weighted("large", 6), weighted("small", 2)];
    let load = load(hello().0, constant("400/s", Duration::from_secs(1)));
    let summary = run(&coordinator(&nats, 2).unwrap(), &load).unwrap().summary;
    let requests: Vec<_> = summary.agents.iter().map(|agent| (agent.name.as_str(), agent.requests)).collect();
    assert_eq!(requests, [("large", 300), ("small", 100)]);
}

#[test]
fn closed_loops_and_bursts_are_divided_too() {
    let nats = NatsServer::start().unwrap();
    let (server, count) = hello();
    let _agents = agents(&nats, 3, None);
    let coordinator = coordinator(&nats, 3).unwrap();
    let closed = Plan::closed_loop(ClosedLoop::new(7, EndCondition::Requests(500))).unwrap();
    let summary = run(&coordinator, &load(server, closed)).unwrap().summary;
    assert_eq!((summary.measured.successes, summary.connections), (500, 7));
    let phases = "[[phase]]\nburst = 30\n[[phase]]\nconnections = 5\nrequests = 100\n[[phase]]\nrate = \"50/s\"\nfor = \"1s\"";
    let plan = Plan::parse("plan.toml", phases).unwrap();
    let summary = run(&coordinator, &load(server, plan)).unwrap().summary;
    assert_eq!(summary.measured.successes, 180);
    assert_eq!(count.load(Relaxed), 680);
}

#[test]
fn one_machine_without_nats_has_the_same_summary() {
    let nats = NatsServer::start().unwrap();
    let (server, _) = hello();
    let _agents = agents(&nats, 2, None);
    let load =
        load(server, constant("300/s", Duration::from_secs(2)).with_warmup(Duration::from_secs(1)).unwrap());
    let alone = run(&ThisProcess, &load).unwrap();
    let shared = run(&coordinator(&nats, 2).unwrap(), &load).unwrap();
    for run in [&alone, &shared] {
        let summary = &run.summary;
        assert_eq!((summary.measured.requests(), summary.warmup.as_ref().unwrap().requests()), (600, 300));
        assert_eq!(summary.seconds.iter().map(|second| second.sent).sum::<u64>(), 600);
        assert_eq!(summary.schedule, "2s at 300/s, after 1s at 300/s to warm up");
        assert_eq!((summary.schedule_end - summary.measured_from).as_millis(), 2_000);
        assert!(!run.end.was_cancelled);
    }
}
