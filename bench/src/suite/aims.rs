//! Times with a bound of their own. Tests do not assert them, since they have to pass on slow machines.

use std::{
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use stockade_cache::{Cache, EvictionOrder, Limit, Policy, Strategy, heap_bytes};

use super::{AIM, Bench, Better, Figure, Metric, OURS, Result, Sitting};
use crate::generators::stockade;

pub(super) const BENCH: Bench = Bench {
    name: "aims",
    shows: "the longest store around a reclaim, and the last of 10,000 workers under `stampede`, compared with their bounds",
    method: "The longest of 1,000 stores beyond 36,000 entries of 1 KiB, `lrw`, reclaim 0.3, one thread; and the last answer of \
             `stockade stampede` with 10,000 workers, above the 50 ms of the source.",
    seconds: 10,
    needs: &[],
    peers: &[],
    metrics: &[Metric { name: "time", unit: "ms", digits: 2, better: Better::Lower, aim: Some(1.0) }],
    limits: &[],
    measure,
    child: None,
};

fn measure(sitting: &Sitting) -> Result<Vec<Figure>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let _context = runtime.enter();
    let contenders = [OURS, AIM];
    let case = "longest store around a reclaim";
    let mut figures = sitting.interleave(case, ["time"], &contenders, 5, |at| {
        Ok([if at == 0 { longest_store_ms()? } else { 1.0 }])
    })?;
    let program = stockade()?;
    let case = "10,000 workers, above the source";
    figures.extend(sitting.interleave(case, ["time"], &contenders, 5, |at| {
        Ok([if at == 0 { stampede_ms(&program)? } else { 20.0 }])
    })?);
    Ok(figures)
}

fn longest_store_ms() -> Result<f64> {
    const ENTRIES: u64 = 36_000;
    let limit = Limit {
        policy: Policy::LRW,
        reclaim: 0.3,
        order: EvictionOrder::Global,
        ..Limit::entries(usize::try_from(ENTRIES)?)
    };
    let strategy = Strategy { limit: Some(limit), ..Strategy::preset("stampede")? };
    let cache: Cache<u64, Arc<[u8]>> = Cache::builder(strategy).weigh(heap_bytes).build()?;
    for key in 0..ENTRIES {
        cache.insert(key, [7; 1_024].into());
    }
    let mut longest = Duration::ZERO;
    for key in ENTRIES..ENTRIES + 1_000 {
        let value: Arc<[u8]> = [7; 1_024].into();
        let began = Instant::now();
        cache.insert(key, value);
        longest = longest.max(began.elapsed());
    }
    Ok(longest.as_secs_f64() * 1e3)
}

fn stampede_ms(program: &Path) -> Result<f64> {
    let arguments = ["10000", "--strategy", "stampede", "--source-latency", "50ms", "--format", "json"];
    let output = Command::new(program).arg("stampede").args(arguments).output()?;
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let finished = report["runs"][0]["finished_ms"].as_f64().ok_or("the report has no finished_ms")?;
    Ok(finished - 50.0)
}
