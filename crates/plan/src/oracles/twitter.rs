//! A workload for each of Twitter's clusters: independent requests with the published Zipf exponent, requests for each key, size,
//! ttl and share of reads, as lines of a trace of Twitter.
//!
//! - **LRU without a ttl**: a key is present if its last request was less than the characteristic time ago (Che, Tung, Wang,
//!   "Hierarchical web caching systems", 2002; for Zipf: Fricker, Robert, Roberts, ITC 2012).
//! - **A ttl and room for everything**: of the requests of a Poisson process the first is a miss, and then the first after each ttl
//!   (Jung, Berger, Balakrishnan, INFOCOM 2003).

use std::{fmt::Write as _, time::Duration};

use rand::RngExt;
use rand_distr::{Distribution, Exp};
use stockade_logs::LogReader;
use stockade_model::seed::Seed;

use crate::{
    Capacity, LatencyOption, PlanOptions, Policy, SizeOption, TtlOption, Warmup, plan,
    read::{KeyRules, REQUESTS_MAX, read},
};

const FACTS: &str = include_str!("twitter.csv");
const WEEK_S: f64 = 7.0 * 86_400.0;
const KEYS: usize = 2_000;
const READS: usize = 60_000;
/// The part of the requests that fills the cache.
const WARMUP: f64 = 0.2;
/// Entries of the smaller cache, at least.
const ENTRIES_MIN: f64 = 32.0;
/// The greatest difference to theory, as a share of the requests.
const TOLERANCE: f64 = 0.01;

struct Cluster {
    number: u64,
    value_bytes: u64,
    requests_per_key: f64,
    get_share: f64,
    zipf_alpha: f64,
    /// The most common one.
    ttl_s: f64,
}

/// The clusters whose facts are complete.
fn clusters() -> Vec<Cluster> {
    let lines = FACTS.lines().filter(|line| !line.starts_with('#')).skip(1);
    let cluster = |line: &str| {
        let columns: Vec<&str> = line.split(',').collect();
        let number = |column: usize| columns[column].parse::<f64>().ok();
        Some(Cluster {
            number: columns[0].parse().expect("a number"),
            value_bytes: columns[3].parse().ok()?,
            requests_per_key: number(5)?,
            get_share: number(6)?,
            zipf_alpha: number(7)?,
            ttl_s: columns[8].split(':').next()?.parse().ok()?,
        })
    };
    lines.filter_map(cluster).collect()
}

impl Cluster {
    /// Reads of each key a second.
    fn rates(&self) -> Vec<f64> {
        let weights: Vec<f64> = (1..=KEYS).map(|rank| (rank as f64).powf(-self.zipf_alpha)).collect();
        let all_per_s = KEYS as f64 * self.requests_per_key / WEEK_S;
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| all_per_s * weight / sum).collect()
    }

    /// The lines of a trace: `time,key,key size,value size,client,operation,ttl`.
    fn trace(&self, rates: &[f64]) -> String {
        let mut rng = Seed(self.number).stream("requests");
        let sums: Vec<f64> = rates
            .iter()
            .scan(0.0, |sum, rate| {
                *sum += rate;
                Some(*sum)
            })
            .collect();
        let all_per_s = sums[KEYS - 1];
        let gap = Exp::new(all_per_s).expect("a rate");
        // A write for each read at most.
        let writes_per_read = ((1.0 - self.get_share) / self.get_share.max(0.01)).min(1.0);
        let (mut at_s, mut writes, mut lines) = (0.0, 0.0, String::new());
        for _ in 0..READS {
            at_s += gap.sample(&mut rng);
            let point = rng.random::<f64>() * all_per_s;
            let key = sums.partition_point(|sum| *sum < point).min(KEYS - 1);
            let Self { value_bytes, ttl_s, .. } = self;
            let _ = writeln!(lines, "{at_s:.6},{key},9,{value_bytes},1,get,0");
            writes += writes_per_read;
            if writes >= 1.0 {
                writes -= 1.0;
                let _ = writeln!(lines, "{at_s:.6},{key},9,{value_bytes},1,set,{ttl_s}");
            }
        }
        lines
    }
}

/// The characteristic time of an LRU cache: that in which as many keys are requested as it has entries. Infinite if it has room for
/// all of them.
fn characteristic_time_s(rates: &[f64], entries: f64) -> f64 {
    let requested = |time_s: f64| rates.iter().map(|rate| 1.0 - (-rate * time_s).exp()).sum::<f64>();
    let (mut low, mut high) = (0.0, 1e12);
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if requested(middle) < entries { low = middle } else { high = middle }
    }
    high
}

/// The share of misses between two times of an LRU cache that was empty at time 0.
fn lru_misses(rates: &[f64], time_s: f64, (from_s, to_s): (f64, f64)) -> f64 {
    // At first nothing is older than the log.
    let filled_s = time_s.clamp(from_s, to_s);
    let misses = |rate: &f64| {
        let filling = (-rate * from_s).exp() - (-rate * filled_s).exp();
        filling + rate * (to_s - filled_s) * (-rate * time_s.min(to_s)).exp()
    };
    let all: f64 = rates.iter().sum();
    rates.iter().map(misses).sum::<f64>() / (all * (to_s - from_s))
}

/// The share of misses between two times of a cache with room for everything and a ttl.
fn ttl_misses(rates: &[f64], ttl_s: f64, (from_s, to_s): (f64, f64)) -> f64 {
    let misses = |rate: f64| {
        let cycle_s = ttl_s + 1.0 / rate;
        if to_s > 100.0 * cycle_s {
            (to_s - from_s) / cycle_s
        } else {
            loads(rate, ttl_s, to_s) - loads(rate, ttl_s, from_s)
        }
    };
    let all: f64 = rates.iter().sum();
    rates.iter().map(|rate| misses(*rate)).sum::<f64>() / (all * (to_s - from_s))
}

/// The expected number of loads of a key until a time: the nth is after n gaps and n - 1 ttls.
fn loads(rate: f64, ttl_s: f64, until_s: f64) -> f64 {
    let mut sum = 0.0;
    for n in 1_u32.. {
        let time_s = until_s - f64::from(n - 1) * ttl_s;
        if time_s <= 0.0 {
            break;
        }
        // The nth event of a Poisson process comes before that: 1 less the probability of fewer events.
        let mean = rate * time_s;
        let (mut term, mut fewer) = ((-mean).exp(), 0.0);
        for events in 1..=n {
            fewer += term;
            term *= mean / f64::from(events);
        }
        if 1.0 - fewer < 1e-12 {
            break;
        }
        sum += 1.0 - fewer;
    }
    sum
}

#[test]
fn plans_for_twitters_clusters_agree_with_theory() {
    let clusters = clusters();
    // No facts of cluster 5 are published, and no exponent of 43 and 46.
    assert_eq!(clusters.len(), 51);
    let mut worst = (0.0_f64, 0.0_f64);
    for cluster in clusters {
        let rates = cluster.rates();
        let span_s = READS as f64 / rates.iter().sum::<f64>();
        let counted = (WARMUP * span_s, span_s);
        let requested: f64 = rates.iter().map(|rate| 1.0 - (-rate * span_s).exp()).sum();
        let entries = (requested / 4.0).max(ENTRIES_MIN).round();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some hundred")]
        let small = Capacity::Bytes(entries as u64 * cluster.value_bytes);
        let all = Capacity::Bytes(2 * KEYS as u64 * cluster.value_bytes);
        let options = PlanOptions {
            memory: None,
            ttls: vec![TtlOption::Never, TtlOption::Fixed(Duration::from_secs_f64(cluster.ttl_s))],
            staleness: None,
            latency: LatencyOption::Fixed(Duration::ZERO),
            policies: vec![Policy::LRU],
            sizes: vec![SizeOption::Fixed(small), SizeOption::Fixed(all)],
            is_exact: true,
            warmup: Warmup::Share(WARMUP),
            max_object: None,
            overhead_bytes: 0,
        };
        let trace = cluster.trace(&rates);
        let reader = LogReader::from_reader("trace", trace.as_bytes(), None).expect("readable");
        assert_eq!(reader.format().to_string(), "twitter");
        let content = read(reader, &KeyRules::default(), REQUESTS_MAX).expect("a trace");
        let plan = plan("trace".to_owned(), content, &options, &|_, _| {}).expect("a plan");
        let theory = (
            lru_misses(&rates, characteristic_time_s(&rates, entries), counted),
            ttl_misses(&rates, cluster.ttl_s, counted),
        );
        let found = (plan.curves[0].points[0].miss_ratio, plan.curves[1].points[1].miss_ratio);
        let differences = ((found.0 - theory.0).abs(), (found.1 - theory.1).abs());
        assert!(
            differences.0 <= TOLERANCE && differences.1 <= TOLERANCE,
            "cluster {}: found {found:?}, theory {theory:?}",
            cluster.number
        );
        worst = (worst.0.max(differences.0), worst.1.max(differences.1));
    }
    println!("greatest differences: {worst:?}");
}
