//! Seeded random numbers for lookups, drawn without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

use stockade_model::seed::{Seed, mixed};

/// `SplitMix64` (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014). Its state is a
/// counter, so threads can draw concurrently.
#[derive(Debug)]
pub(crate) struct Random(AtomicU64);

/// The maximum of [`Random::exponential`], which draws from 2^53 equally likely numbers.
pub(crate) const NATS_MAX: f64 = 36.74;

impl Random {
    pub(crate) fn new(seed: Seed) -> Self {
        Self(AtomicU64::new(seed.0))
    }

    /// A seed for another generator.
    pub(crate) fn seed(&self) -> Seed {
        Seed(self.uniform().to_bits())
    }

    /// Uniformly distributed, above 0 and up to 1.
    pub(crate) fn uniform(&self) -> f64 {
        const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
        let bits = mixed(self.0.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA));
        ((bits >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Exponentially distributed, with mean 1.
    pub(crate) fn exponential(&self) -> f64 {
        -self.uniform().ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_uniform_and_the_same_for_the_same_seed() {
        let draw = |seed| -> Vec<f64> {
            let chance = Random::new(Seed(seed));
            (0..100_000).map(|_| chance.uniform()).collect()
        };
        let mut counts = [0_u32; 20];
        for uniform in draw(1) {
            assert!(uniform > 0.0 && uniform <= 1.0);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 19")]
            let bin = (uniform * 20.0).ceil() as usize - 1;
            counts[bin] += 1;
        }
        // Chi-squared, 19 degrees of freedom: 43.8 is exceeded by chance once in a thousand seeds.
        let chi_squared: f64 = counts.iter().map(|n| (f64::from(*n) - 5_000.0).powi(2) / 5_000.0).sum();
        assert!(chi_squared < 43.8, "{counts:?}");
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!(-(2.0_f64.powi(-53)).ln() < NATS_MAX);
    }
}
