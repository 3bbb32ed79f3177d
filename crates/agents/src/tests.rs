//! In virtual time any number of agents gives the same record, bit for bit.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    rc::Rc,
    sync::{Arc, Mutex},
    time::Duration,
};

use stockade_cache::{Cache, Strategy};
use stockade_load::{
    generator::{GeneratorEnd, GeneratorSecond, Share},
    keys::Keys,
    sample::{Response, Sample},
    schedule::{ArrivalProcess, Schedule, Step},
    summary::{GeneratorHealth, SecondCounts},
};
use stockade_model::{
    latency::Latency,
    seed::Seed,
    time::{Runtime, Time, Virtual},
};
use stockade_record::timing::Timing;

use crate::{roster::Roster, wire::RecordPart};

const SEED: Seed = Seed(11);

/// A load that changes its rate, by a Poisson process in part.
fn schedule() -> Schedule {
    let rate = |text: &str| text.parse::<stockade_load::schedule::Rate>().unwrap();
    Schedule::new(vec![
        Step::steady(rate("425/s"), Duration::from_secs(20)),
        Step::ramp(rate("100/s"), rate("900/s"), Duration::from_secs(20))
            .with_arrivals(ArrivalProcess::Poisson),
        Step::steady(rate("700/s"), Duration::from_secs(20)).with_arrivals(ArrivalProcess::Poisson),
    ])
}

/// Runs the load with agents of these weights on one cache, and returns what the coordinator has after each second.
fn run(weights: &[u32]) -> (Vec<GeneratorSecond>, GeneratorEnd) {
    let runtime = Virtual::new();
    let strategy = Strategy { ttl: Some(Duration::from_secs(5)), ..Strategy::preset("stampede").unwrap() };
    let cache = Arc::new(Cache::builder(strategy).build_on(runtime.clone(), SEED).unwrap());
    let keys: Keys = "zipf:5000".parse().unwrap();
    let latency: Latency = "lognormal(median=20ms, p99=200ms)".parse().unwrap();
    let tallies: Vec<_> = weights.iter().map(|_| Arc::new(Mutex::new(BTreeMap::new()))).collect();
    let shares =
        Share::by_weight(&weights.iter().map(|weight| (*weight).try_into().unwrap()).collect::<Vec<_>>());
    let main = async {
        for (share, tally) in shares.into_iter().zip(&tallies) {
            let (tally, latency, clock, cache) =
                (Arc::clone(tally), latency.clone(), runtime.clone(), Arc::clone(&cache));
            runtime.spawn(async move {
                let due: Vec<Duration> = schedule().due_times(SEED).collect();
                for number in
                    (0..).map(|own| share.number(own)).take_while(|number| *number < due.len() as u64)
                {
                    let scheduled = Time::ZERO + due[usize::try_from(number).unwrap()];
                    clock.sleep_until(scheduled).await;
                    let (clock, latency, cache, tally) =
                        (clock.clone(), latency.clone(), Arc::clone(&cache), Arc::clone(&tally));
                    clock.clone().spawn(async move {
                        let started = clock.now();
                        let key = keys.nth(number, SEED.child("keys"));
                        let source = clock.clone();
                        let load = async move || {
                            let lasts = latency.draw(&mut SEED.child("latency").nth(number));
                            source.sleep_until(source.now() + lasts).await;
                            Ok::<_, std::convert::Infallible>(key)
                        };
                        let answer = cache.get_with(key, load).await.unwrap();
                        let finished = clock.now();
                        let result = Response {
                            status: 200,
                            bytes: 5,
                            wire_bytes: 5,
                            outcome: Some(answer.outcome),
                            may_be_stale: false,
                            deviation: None,
                            stated: None,
                        };
                        let timing = Timing { scheduled, started, finished };
                        record(&tally, &Sample { number, timing, bytes_out: 0, result: Ok(result) });
                    });
                }
            });
        }
        runtime.sleep_until(Time::ZERO + Duration::from_secs(70)).await;
    };
    runtime.run(main).unwrap();
    coordinate(tallies.iter().map(|tally| tally.lock().unwrap().clone()).collect())
}

fn record(seconds: &Mutex<BTreeMap<u64, GeneratorSecond>>, sample: &Sample) {
    let mut seconds = seconds.lock().unwrap();
    let at = sample.timing.finished.elapsed().as_secs();
    let second =
        seconds.entry(at).or_insert_with(|| GeneratorSecond { second: at, ..GeneratorSecond::default() });
    second.measured.record(sample);
    second.seconds.entry(at).or_default().finished += 1;
    let sent = SecondCounts { sent: 1, ..SecondCounts::default() };
    *second.seconds.entry(sample.timing.started.elapsed().as_secs()).or_default() += sent;
}

/// Passes the seconds of all agents through messages to the coordinator's side.
fn coordinate(agents: Vec<BTreeMap<u64, GeneratorSecond>>) -> (Vec<GeneratorSecond>, GeneratorEnd) {
    let mut roster = Roster::new((0..agents.len()).map(|index| format!("a{index}")), Duration::ZERO);
    let merged = Rc::new(RefCell::new(Vec::new()));
    for (agent, mut seconds) in agents.into_iter().enumerate() {
        let last = 70;
        for second in 0..last {
            let empty = GeneratorSecond { second, ..GeneratorSecond::default() };
            let record = RecordPart::Second(Box::new(seconds.remove(&second).unwrap_or(empty)));
            let message = serde_json::to_vec(&record).unwrap();
            roster.record(agent, serde_json::from_slice(&message).unwrap(), Duration::ZERO);
        }
        assert!(seconds.is_empty());
        let end = GeneratorEnd {
            rest: GeneratorSecond::default(),
            schedule_end: Time::from_nanos(60_000_000_000),
            in_flight_at_end: 0,
            in_flight_max: 0,
            health: GeneratorHealth::default(),
            was_cancelled: false,
        };
        roster.record(
            agent,
            RecordPart::End { seconds: last, end: Box::new(end), fault: None },
            Duration::ZERO,
        );
        merged.borrow_mut().extend(std::iter::from_fn(|| roster.next_second().map(|(second, _)| second)));
    }
    assert!(roster.have_ended() && !roster.has_fault());
    (merged.take(), roster.end(false))
}

#[test]
fn any_number_of_agents_has_the_record_of_one() {
    let one = run(&[1]);
    let requests: u64 = one.0.iter().map(|second| second.measured.requests()).sum();
    let hits: u64 = one.0.iter().map(|second| second.measured.outcomes.hit).sum();
    let coalesced: u64 = one.0.iter().map(|second| second.measured.outcomes.coalesced).sum();
    assert!(requests > 30_000 && hits > requests / 2 && coalesced > 100, "{requests} {hits} {coalesced}");
    for weights in [vec![1; 2], vec![1; 4], vec![1; 8], vec![3, 1, 2]] {
        let several = run(&weights);
        assert!(several == one, "{weights:?}");
    }
}
