//! The cost of a miss, compared with other caches that have loads.

use super::{Bench, Better, Figure, Metric, Result, Sitting};
use crate::{contenders::MISSERS, misses::Load};

const CASES: [(&str, Load); 3] = [
    ("a thread, the load is a function", Load::Thread),
    ("a task, the load is ready at once", Load::Ready),
    ("a task, the load waits once", Load::Yields),
];
const ROUNDS: usize = 5;

pub(super) const BENCH: Bench = Bench {
    name: "misses",
    shows: "the time of a miss whose load costs nothing, for callers that are threads and tasks",
    method: "One caller asks for 200,000 keys that are not stored, one after the other; there is room for 10,000. The load returns the \
             key. Ours counts the load, has a deadline for it, a breaker-ready outcome, and a task that outlives the caller if it has to \
             wait; in the others a load ends with its caller. The aim is twice the time of quick_cache, which does less.",
    seconds: 20,
    needs: &[],
    peers: &["quick_cache", "moka"],
    metrics: &[Metric { name: "a miss", unit: "ns", digits: 0, better: Better::Lower, aim: Some(2.0) }],
    limits: &[],
    measure,
    child: None,
};

fn measure(sitting: &Sitting) -> Result<Vec<Figure>> {
    let names = MISSERS.map(|misser| misser.name);
    let count = sitting.scaled(200_000, 2_000);
    let mut figures = Vec::new();
    for (case, load) in CASES {
        figures.extend(sitting.interleave(case, ["a miss"], &names, ROUNDS, |at| {
            Ok([(MISSERS[at].miss)(load, count).as_nanos() as f64 / count as f64])
        })?);
    }
    Ok(figures)
}
