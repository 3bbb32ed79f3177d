//! Agents whose clocks are wrong start at the same time.

use std::{
    net::SocketAddr,
    sync::mpsc,
    time::{Duration, Instant},
};

use stockade_agents::{AgentClock, AgentOptions};
use stockade_load::plan::Plan;
use stockade_services::{NatsServer, serve_hello};

use super::fixture::{Agent, agent_options, constant, coordinator, hello, load, run};

#[test]
fn wrong_clocks_are_estimated_to_within_the_stated_bound() {
    let nats = NatsServer::start().unwrap();
    let errors = [("ahead", 5_000_i64, 200.0), ("behind", -5_000, -200.0), ("right", 0, 0.0)];
    let _agents = errors.map(|(name, offset_ms, drift_ppm)| {
        let clock = AgentClock::with_error(offset_ms * 1_000_000, drift_ppm);
        Agent::start(AgentOptions { clock, ..agent_options(&nats, name) })
    });
    let summary =
        run(&coordinator(&nats, 3).unwrap(), &load(hello().0, constant("100/s", Duration::from_secs(4))))
            .unwrap()
            .summary;
    for agent in &summary.agents {
        let (_, offset_ms, drift_ppm) = errors.iter().find(|(name, ..)| *name == agent.name).unwrap();
        let clock = agent.clock.unwrap();
        println!("{}: {clock:?}", agent.name);
        // Since it started, the clock has drifted on, and the load started within some seconds of that.
        let drifted_ms = 4.0 * drift_ppm.abs() / 1e3;
        let error_ms = (clock.offset_ms - *offset_ms as f64).abs();
        assert!(error_ms <= clock.uncertainty_ms + drifted_ms + 0.05, "{}: {clock:?}", agent.name);
        let drift_error = (clock.drift_ppm.unwrap() - drift_ppm).abs();
        // Two readings some seconds apart, each within its uncertainty. On a busy machine one of them is less certain than the best one.
        assert!(drift_error <= 2.0 * clock.uncertainty_ms * 1e3 / 4.0 + 80.0, "{}: {clock:?}", agent.name);
    }
}

/// A server that reports when each request arrives.
fn arrivals() -> (SocketAddr, mpsc::Receiver<Instant>) {
    let (arrived, arrivals) = mpsc::channel();
    #[expect(clippy::disallowed_methods, reason = "real arrivals")]
    let address = serve_hello(move || _ = arrived.send(Instant::now())).unwrap();
    (address, arrivals)
}

#[test]
fn agents_with_wrong_clocks_start_together() {
    let nats = NatsServer::start().unwrap();
    let _agents = [5_i64, -5].map(|offset_s| {
        let clock = AgentClock::with_error(offset_s * 1_000_000_000, 0.0);
        Agent::start(AgentOptions { clock, ..agent_options(&nats, &format!("by{offset_s}s")) })
    });
    let (server, arrivals) = arrivals();
    let summary =
        run(&coordinator(&nats, 2).unwrap(), &load(server, Plan::burst(2).unwrap())).unwrap().summary;
    assert_eq!(summary.measured.successes, 2);
    let arrived: Vec<_> = arrivals.try_iter().collect();
    let apart = arrived[1].max(arrived[0]) - arrived[0].min(arrived[1]);
    println!("apart: {apart:?}");
    // Without correction it would be ten seconds.
    assert!(apart < Duration::from_secs(1), "{apart:?}");
}
