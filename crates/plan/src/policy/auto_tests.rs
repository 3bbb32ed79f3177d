//! `auto` compared with its candidates, on generated traces.

use rand::RngExt;
use rand_distr::{Distribution, Exp, LogNormal, Zipf};
use stockade_model::seed::{Rng, Seed};

use super::Policy;
use crate::{
    Capacity,
    replay::{CacheSetup, Replay},
    trace::{NewRequest, Trace, TraceBuilder},
};

const REQUESTS: u32 = 120_000;
const ROOM: u32 = 300;

/// Requests one a millisecond. `next` returns the key of a request by its number.
fn trace(mut next: impl FnMut(&mut Rng, u32) -> u32) -> Trace {
    let mut random = Seed(1).stream("keys");
    let sizes = LogNormal::new(8.0, 1.2).expect("a distribution");
    let mut builder = TraceBuilder::new(usize::MAX, 1);
    for number in 0..REQUESTS {
        let key = next(&mut random, number);
        let bytes: f64 = sizes.sample(&mut Seed(1).nth(key.into()));
        let bytes = bytes.clamp(200.0, 200_000.0);
        builder.push(&NewRequest {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "within these bounds"
            )]
            bytes: Some(bytes as u64),
            ..NewRequest::read(u64::from(number) * 1_000_000 + 1, &key.to_le_bytes())
        });
    }
    builder.finish()
}

fn zipf(keys: u32, exponent: f64) -> impl Fn(&mut Rng) -> u32 {
    let zipf = Zipf::new(f64::from(keys), exponent).expect("a distribution");
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank")]
    move |random: &mut Rng| zipf.sample(random) as u32
}

fn traces() -> Vec<(&'static str, Trace)> {
    let (popular, flat) = (zipf(5_000, 1.0), zipf(5_000, 0.8));
    let recent = Exp::new(1.0 / 120.0).expect("a distribution");
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
    let recent = move |random: &mut Rng, number: u32| {
        1_000_000 + (number / 3).saturating_sub(recent.sample(random) as u32)
    };
    vec![
        ("frequency", trace(|random, _| popular(random))),
        ("recency", trace(&recent)),
        ("scan", trace(|random, number| if number % 5 == 0 { 1_000_000 + number } else { flat(random) })),
        ("loop", trace(|_, number| number % (ROOM + 100))),
        // Of three ranks one gets a new key every 3,000 requests.
        (
            "churn",
            trace(|random, number| {
                let rank = flat(random);
                rank * 100 + (number / 3_000 + rank % 3) / 3
            }),
        ),
        (
            "phases",
            trace(
                |random, number| {
                    if number / 40_000 == 1 { recent(random, number) } else { popular(random) }
                },
            ),
        ),
        (
            "loop in part",
            trace(
                |random, number| {
                    if random.random_bool(0.5) { flat(random) } else { 1_000_000 + number % 600 }
                },
            ),
        ),
    ]
}

fn ratio(replay: &Replay) -> f64 {
    replay.misses as f64 / replay.requests as f64
}

/// The aim of decision 028: within half a point of the best candidate, and with at most 0.8 % more misses than FIFO.
#[test]
fn auto_is_near_the_best_candidate() {
    for (name, trace) in traces() {
        for (capacity, candidates) in [
            (Capacity::Entries(ROOM.into()), ["sieve", "s3-fifo", "lru", "lfu"]),
            (Capacity::Bytes(u64::from(ROOM) * 6_000), ["sieve", "s3-fifo", "lru", "gdsf"]),
        ] {
            let setup = CacheSetup { entry_max: capacity.entry_max(None), ..CacheSetup::of(capacity) };
            let misses = |policy: &str| {
                ratio(&Policy::named(policy).expect("it is registered").replay(&trace, &setup))
            };
            let (auto, fifo) = (misses("auto"), misses("fifo"));
            let of_candidates = candidates.map(|policy| (policy, misses(policy)));
            let best = of_candidates.iter().map(|(_, misses)| *misses).fold(1.0, f64::min);
            println!("{name}, {capacity:?}: auto {auto:.4}, fifo {fifo:.4}, {of_candidates:.4?}");
            assert!(auto <= best + 0.005, "{name}, {capacity:?}: auto {auto}, {of_candidates:?}");
            assert!(auto <= fifo * 1.008, "{name}, {capacity:?}: auto {auto}, fifo {fifo}");
        }
    }
}

#[test]
fn auto_is_the_same_in_each_run() {
    let (_, trace) = traces().swap_remove(5);
    let setup = CacheSetup::of(Capacity::Entries(ROOM.into()));
    let auto = Policy::named("auto").expect("it is registered");
    assert_eq!(auto.replay(&trace, &setup), auto.replay(&trace, &setup));
}
