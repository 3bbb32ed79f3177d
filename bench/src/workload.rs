//! The requested keys.

use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_distr::Zipf;
use rand_pcg::Pcg64Mcg;

/// How many different keys there are.
pub const KEYS: u32 = 1_000_000;
/// How many entries a cache may hold.
pub const CAPACITY: usize = 100_000;
/// How much more popular the popular keys are: key number n is asked for n^-0.99 times as often as the first.
const EXPONENT: f64 = 0.99;
/// Keys are served in batches of this many.
pub const BATCH: usize = 1 << 16;
/// How many batches are drawn for each thread, before anything is measured: 4 Mi keys.
pub const BATCHES: usize = 64;

/// The keys that each of `threads` threads asks for.
///
/// A key's number says nothing of its rank, so that the popular ones are no neighbours.
#[expect(clippy::missing_panics_doc, reason = "the law is a sound one")]
#[must_use]
pub fn draws(threads: usize, seed: u64) -> Vec<Vec<u32>> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut by_rank: Vec<u32> = (0..KEYS).collect();
    by_rank.shuffle(&mut rng);
    let zipf = Zipf::new(f64::from(KEYS), EXPONENT).expect("a sound law");
    let mut draw = || {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank, from 1 to KEYS")]
        let rank = rng.sample(zipf) as usize;
        by_rank[rank - 1]
    };
    (0..threads).map(|_| (0..BATCH * BATCHES).map(|_| draw()).collect()).collect()
}
