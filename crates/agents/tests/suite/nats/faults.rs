//! An agent, the server or the coordinator fails: the load stops, and the record says why.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use stockade_agents::{CancellationToken, Coordinator};
use stockade_load::generator::{LoadProgress, LoadRunner, LoadStart, LoadTestRun, Observer};
use stockade_services::NatsServer;

use super::fixture::{HANG, agents, constant, coordinator, hello, load};

/// Calls a function after a number of seconds of a load.
struct After<F> {
    seconds: u64,
    act: Option<F>,
    acted_at: Option<Instant>,
}

impl<F: FnOnce()> Observer for After<F> {
    fn on_start(&mut self, _: LoadStart) {}

    #[expect(clippy::disallowed_methods, reason = "real time")]
    fn on_second(&mut self, progress: &LoadProgress<'_>) {
        if progress.elapsed().as_secs() == self.seconds
            && let Some(act) = self.act.take()
        {
            act();
            self.acted_at = Some(Instant::now());
        }
    }

    fn on_sample(&mut self, _: &stockade_load::sample::Sample) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs a load of a minute, and calls `act` after its first second. Returns what the coordinator has, and how long it took after.
fn interrupted(
    coordinator: &Coordinator,
    act: impl FnOnce(&CancellationToken),
) -> (LoadTestRun, Duration, Arc<AtomicU64>) {
    let (server, requests) = hello();
    let load = load(server, constant("100/s", HANG));
    let cancel = CancellationToken::new();
    let mut after = After { seconds: 1, act: Some(|| act(&cancel)), acted_at: None };
    let run = coordinator.prepare(&load).unwrap().run(&mut after, &cancel).unwrap();
    let took = after.acted_at.expect("it acted").elapsed();
    (run, took, requests)
}

/// Asserts that no request arrives any more.
fn assert_silent(requests: &AtomicU64) {
    let before = requests.load(Relaxed);
    std::thread::park_timeout(Duration::from_millis(300));
    assert_eq!(requests.load(Relaxed), before, "an orphan goes on");
}

#[test]
fn cancelled_load_stops_everywhere_and_keeps_its_record() {
    let nats = NatsServer::start().unwrap();
    let _agents = agents(&nats, 2, None);
    let (run, took, requests) = interrupted(&coordinator(&nats, 2).unwrap(), CancellationToken::cancel);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_silent(&requests);
    assert!(run.end.was_cancelled);
    assert_eq!(run.summary.measured.requests(), requests.load(Relaxed));
    let reasons = &run.summary.generator.invalid_reasons;
    assert!(reasons.last().unwrap().starts_with("interrupted after "), "{reasons:?}");
}

#[test]
fn stopped_agent_ends_the_load_and_is_named() {
    let nats = NatsServer::start().unwrap();
    let mut agents = agents(&nats, 3, None);
    let lost = agents.remove(1);
    let (run, took, requests) = interrupted(&coordinator(&nats, 3).unwrap(), move |_| lost.stop().unwrap());
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_silent(&requests);
    let reasons = &run.summary.generator.invalid_reasons;
    assert!(reasons.iter().any(|reason| reason.starts_with("agent a1: ")), "{reasons:?}");
    assert!(run.summary.measured.requests() > 0);
    // The others are free.
    assert_eq!(coordinator(&nats, 2).unwrap().agents().len(), 2);
}

#[test]
fn server_that_is_gone_ends_the_load() {
    let nats = NatsServer::start().unwrap();
    let _agents = agents(&nats, 2, None);
    let (run, took, requests) = interrupted(&coordinator(&nats, 2).unwrap(), move |_| drop(nats));
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_silent(&requests);
    let reasons = &run.summary.generator.invalid_reasons;
    assert!(reasons.iter().any(|reason| reason.contains("no sign of life")), "{reasons:?}");
}
