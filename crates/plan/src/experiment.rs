//! An experiment that confirms a plan: a part of the log through the real proxy, as `stockade run` does it.
//!
//! ```text
//! the busiest part of the log -> faster, so that it takes half a minute; lifetimes are shorter by as much
//!     -> plan.toml, requests.jsonl, recipe.json          for the proxy
//!     -> a replay with the same requests and lifetimes   the prediction
//! ```
//!
//! The origin serves bodies of the logged sizes, rounded up to four sizes an octave. The planned ttl is a second
//! or longer: the part of the log is chosen for that.

use std::{collections::BTreeSet, fmt::Write as _};

use serde_json::json;

use crate::{
    curve::{Lifetime, Point},
    policy::Policy,
    recommend::Recommendation,
    replay::{CacheSetup, Capacity, Ttl},
    report::{Plan, cache_table, capacity_text, lifetime_text, percent},
    trace::{NewRequest, Request, Trace, TraceBuilder, busiest},
};

/// How long the load takes, at most.
const LOAD_NS: u64 = 30_000_000_000;
/// The most requests.
const REQUESTS_MAX: usize = 60_000;
/// The shortest ttl: the proxy's clock has steps of a millisecond, and a load takes about one.
const TTL_MIN_NS: u64 = 1_000_000_000;
/// A load that the origin answers at once takes about this long.
const LATENCY_MIN_NS: u64 = 1_000_000;
/// Larger bodies are cut, unless the cache stores them.
const BODY_BYTES_MAX: u32 = 4 << 20;
/// The greatest difference between a figure and its prediction, as a share of the requests.
pub const TOLERANCE: f64 = 0.01;
/// How much shorter the ttl of an arm is, to see another lifetime.
const SHORTER: u64 = 4;

/// The files of an experiment, and what they should give.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// `plan.toml`.
    pub toml: String,
    /// `requests.jsonl`: the load.
    pub requests: String,
    /// `recipe.json`: the origin.
    pub recipe: String,
    /// The planned cache first.
    pub arms: Vec<PredictedArm>,
    /// The number of requests.
    pub requests_count: u64,
}

/// A cache of the experiment.
#[derive(Clone, Debug)]
pub struct PredictedArm {
    /// The name of its arm.
    pub name: &'static str,
    /// The cache, for people.
    pub cache: String,
    /// The ratios of the replay.
    pub predicted: Point,
}

/// The experiment that confirms a plan; `None` without a recommendation.
#[must_use]
pub fn experiment(plan: &Plan) -> Option<Experiment> {
    let recommendation = plan.recommendation.as_ref().ok()?;
    let ttl_ns = recommendation.lifetime.ttl.default_ns();
    let span_max = ttl_ns.map_or(u64::MAX, |ttl_ns| (ttl_ns / TTL_MIN_NS).max(1).saturating_mul(LOAD_NS));
    let part = busiest(plan.trace.requests(), span_max, REQUESTS_MAX);
    let span_ns = part.last()?.at_ns - part.first()?.at_ns;
    let speed = (span_ns as f64 / LOAD_NS as f64).max(1.0);
    // Larger bodies are cut: they are larger than any entry of the cache, and the origin keeps all of them.
    let largest = recommendation.max_object.unwrap_or(0).saturating_mul(2).max(BODY_BYTES_MAX.into());
    let trace = faster(part, speed, u32::try_from(largest).unwrap_or(u32::MAX));

    let latency_ns = plan.settings.latency_ns.max(LATENCY_MIN_NS);
    let arms = arms(recommendation, ttl_ns, speed);
    let predicted: Vec<PredictedArm> = arms
        .iter()
        .map(|arm| {
            let setup = CacheSetup { latency_ns, ..plan.settings.setup(arm.capacity, arm.lifetime) };
            let predicted = Point::of(arm.capacity, &arm.policy.replay(&trace, &setup), &trace);
            let cache = format!(
                "{}, {}, {}",
                capacity_text(arm.capacity),
                arm.policy.name,
                lifetime_text(arm.lifetime)
            );
            PredictedArm { name: arm.name, cache, predicted }
        })
        .collect();
    Some(Experiment {
        toml: toml(plan, &arms, &predicted, &trace, speed),
        requests: requests(&trace),
        recipe: recipe(&trace, plan.settings.latency_ns, ttl_ns.is_some()),
        arms: predicted,
        requests_count: trace.totals().requests,
    })
}

struct Arm {
    name: &'static str,
    policy: &'static Policy,
    capacity: Capacity,
    lifetime: Lifetime,
}

/// The planned cache, half of the room, another policy, and a shorter ttl. Lifetimes are shorter by `speed`.
fn arms(recommendation: &Recommendation, ttl_ns: Option<u64>, speed: f64) -> Vec<Arm> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and shorter")]
    let shorter = |nanos: u64| (nanos as f64 / speed).round() as u64;
    let lifetime = Lifetime {
        ttl: ttl_ns.map_or(Ttl::Never, |ttl_ns| Ttl::Fixed(shorter(ttl_ns))),
        swr_ns: shorter(recommendation.lifetime.swr_ns),
    };
    let planned = || Arm {
        name: "planned",
        policy: recommendation.policy,
        capacity: recommendation.capacity,
        lifetime,
    };
    let other_policy = if recommendation.policy.name == "lru" { "sieve" } else { "lru" };
    let mut arms = vec![
        planned(),
        Arm { name: "half_the_room", capacity: recommendation.capacity.times(0.5), ..planned() },
    ];
    if let Ok(policy) = Policy::named(other_policy) {
        arms.push(Arm { name: other_policy, policy, ..planned() });
    }
    if let Ttl::Fixed(ttl_ns) = lifetime.ttl {
        let lifetime = Lifetime { ttl: Ttl::Fixed(ttl_ns / SHORTER), ..lifetime };
        arms.push(Arm { name: "shorter_ttl", lifetime, ..planned() });
    }
    arms
}

/// The same requests in less time, with rounded sizes.
fn faster(requests: &[Request], speed: f64, bytes_max: u32) -> Trace {
    let mut builder = TraceBuilder::new(usize::MAX, 1);
    let first_ns = requests.first().map_or(0, |first| first.at_ns);
    for request in requests {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and earlier"
        )]
        let at_ns = ((request.at_ns - first_ns) as f64 / speed) as u64;
        let bytes = u64::from(rounded_size(request.bytes, bytes_max));
        // The origin has one size for a URL: a key of several sizes becomes as many keys.
        let key = (bytes << 32) | u64::from(request.key);
        // Not a whole second, which would be spread.
        let at_ns = at_ns | 1;
        builder.push(&NewRequest { at_ns, key: &key.to_le_bytes(), bytes: Some(bytes), ttl_ns: None });
    }
    builder.finish()
}

/// The next of four sizes an octave.
fn rounded_size(bytes: u32, bytes_max: u32) -> u32 {
    let steps = (f64::from(bytes.clamp(1, bytes_max)).log2() * 4.0).ceil();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and the maximum")]
    let size = (steps / 4.0).exp2().round() as u32;
    size
}

/// One JSON object a line, as `stockade load --replay` reads it.
fn requests(trace: &Trace) -> String {
    let mut lines = String::new();
    for request in trace.requests() {
        let (seconds, micros) = (request.at_ns / 1_000_000_000, request.at_ns / 1_000 % 1_000_000);
        let _ = writeln!(
            lines,
            r#"{{"ts":{seconds}.{micros:06},"method":"GET","uri":"/{}b/{}"}}"#,
            request.bytes, request.key
        );
    }
    lines
}

/// A route for each size. With a ttl the origin states no freshness, so that the cache's own counts.
fn recipe(trace: &Trace, latency_ns: u64, has_ttl: bool) -> String {
    let cache_control = if has_ttl { "public" } else { "public, max-age=31536000" };
    let sizes: BTreeSet<u32> = trace.requests().iter().map(|request| request.bytes).collect();
    let latency = format!("{latency_ns}ns");
    let routes: Vec<_> = sizes
        .into_iter()
        .map(|bytes| {
            json!({
                "route": format!("/{bytes}b/*"),
                "random_content": format!("{bytes}b"),
                "stages": [{ "at": 0, "latency": latency }],
                "headers": { "cache-control": cache_control },
            })
        })
        .collect();
    format!("{}\n", json!(routes))
}

fn toml(plan: &Plan, arms: &[Arm], predicted: &[PredictedArm], trace: &Trace, speed: f64) -> String {
    let requests = trace.totals().requests as f64;
    let mut text = format!(
        "# Written by `stockade plan`. Run it with `stockade run plan.toml`.\n\n\
         title   = {}\n\
         context = \"\"\"\n\
         The busiest part of the log, {speed:.1} times as fast; lifetimes are shorter by as much. Each claim is a prediction of `stockade plan`,\n\
         give or take {} of the requests.\n\
         \"\"\"\n\n\
         [target]\nkind = \"proxy\"\n\n\
         [origin]\nrecipe = \"recipe.json\"\n\n\
         [load]\nreplay   = {{ log = \"requests.jsonl\" }}\nduration = \"{}us\"\n",
        json!(format!("A cache for {}", plan.log)),
        percent(TOLERANCE),
        // Until just after the last request: a shorter log would begin again.
        trace.totals().span_ns / 1_000 + 1,
    );
    for (arm, PredictedArm { name, predicted, cache }) in arms.iter().zip(predicted) {
        let _ = write!(
            text,
            "\n[[arm]]\nname  = \"{name}\"\n{}",
            cache_table("arm.cache", arm.policy, arm.capacity, arm.lifetime, plan.settings.max_object)
        );
        let hits = 1.0 - predicted.miss_ratio;
        let loads = predicted.load_ratio * requests;
        let margin = TOLERANCE * requests;
        let _ = write!(
            text,
            "\n[[hypothesis]]\ntext   = \"{cache}: hit ratio {}, {loads:.0} loads\"\n\
             expect = [\"{name}.hit_ratio >= {:.4}\", \"{name}.hit_ratio <= {:.4}\", \"{name}.source_loads >= {:.0}\", \"{name}.source_loads <= {:.0}\"]\n",
            percent(hits),
            (hits - TOLERANCE).max(0.0),
            (hits + TOLERANCE).min(1.0),
            (loads - margin).max(0.0),
            loads + margin,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_to_four_an_octave() {
        for (bytes, rounded) in
            [(0, 1), (1, 1), (1_000, 1_024), (1_024, 1_024), (1_025, 1_218), (5 << 20, 4 << 20)]
        {
            assert_eq!(rounded_size(bytes, BODY_BYTES_MAX), rounded, "{bytes}");
        }
    }

    #[test]
    fn key_of_several_sizes_becomes_several_keys() {
        let at = |at_ns: u64, bytes: u32| Request { at_ns, key: 7, bytes };
        let trace =
            faster(&[at(10, 1_000), at(20, 1_020), at(30, 5_000), at(40, 1_000)], 2.0, BODY_BYTES_MAX);
        let requests: Vec<_> = trace.requests().iter().map(|request| (request.key, request.bytes)).collect();
        assert_eq!(requests, [(0, 1_024), (0, 1_024), (1, 5_793), (0, 1_024)]);
    }
}
