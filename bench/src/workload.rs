//! The requested keys.

use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_distr::Zipf;
use rand_pcg::Pcg64Mcg;

/// The number of different keys.
pub const KEYS: u32 = 1_000_000;
/// The capacity of a cache in entries.
pub const CAPACITY: usize = 100_000;
/// The exponent of Zipf's law: key number n is requested n^-0.99 times as often as the first.
const EXPONENT: f64 = 0.99;
/// Keys per batch.
pub const BATCH: usize = 1 << 16;
/// Batches drawn for each thread before the measurement: 4 Mi keys.
pub const BATCHES: usize = 64;

/// The keys that each of `threads` threads requests: batches of [`BATCH`].
///
/// A key's number is independent of its rank, so that popular keys are not neighbours.
#[expect(clippy::missing_panics_doc, reason = "the law is a sound one")]
#[must_use]
pub fn draws(threads: usize, batches: usize, seed: u64) -> Vec<Vec<u32>> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut by_rank: Vec<u32> = (0..KEYS).collect();
    by_rank.shuffle(&mut rng);
    let zipf = Zipf::new(f64::from(KEYS), EXPONENT).expect("a sound law");
    let mut draw = || {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank, from 1 to KEYS")]
        let rank = rng.sample(zipf) as usize;
        by_rank[rank - 1]
    };
    (0..threads).map(|_| (0..BATCH * batches).map(|_| draw()).collect()).collect()
}

/// Marks a drawn key that is written, not read.
pub const WRITE: u32 = 1 << 31;

/// The same keys; this share of them is marked as writes.
#[must_use]
pub fn mark_writes(draws: &[Vec<u32>], share: f64, seed: u64) -> Vec<Vec<u32>> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut mark = |key: &u32| if rng.random_bool(share) { key | WRITE } else { *key };
    draws.iter().map(|keys| keys.iter().map(&mut mark).collect()).collect()
}
