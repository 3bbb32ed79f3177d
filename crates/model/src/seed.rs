//! Randomness is an argument: each random choice comes from a named stream of one seed.

use std::hash::{BuildHasher, Hasher, RandomState};

use rand_pcg::{Pcg64Mcg, rand_core::SeedableRng};

/// The generator of each stream: PCG-64-MCG (O'Neill 2014). Its values are the same on every machine and in every
/// release.
pub type Rng = Pcg64Mcg;

/// The seed of all random choices in a run.
///
/// ```
/// use rand::RngExt;
/// use stockade_model::seed::Seed;
///
/// let draw = |seed: Seed| seed.stream("documents").random_range(0..680);
/// assert_eq!(draw(Seed(7)), draw(Seed(7)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Seed(pub u64);

impl Seed {
    /// A seed from the operating system, for uses that need no repetition.
    #[must_use]
    pub fn from_entropy() -> Self {
        Self(RandomState::new().build_hasher().finish())
    }

    /// An independent generator for the purpose `name`.
    #[must_use]
    pub fn stream(self, name: &str) -> Rng {
        Rng::seed_from_u64(self.child(name).0)
    }

    /// The generator of worker `n`. Its values depend neither on the order of the draws nor on the thread.
    #[must_use]
    pub fn nth(self, n: u64) -> Rng {
        Rng::seed_from_u64(mixed(self.0 ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// An independent seed for the part `name`.
    #[must_use]
    pub fn child(self, name: &str) -> Self {
        // FNV-1a over the name, then mixed: stable, and one changed bit changes half of the result.
        let mut hash = self.0 ^ 0xcbf2_9ce4_8422_2325;
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Self(mixed(hash))
    }
}

/// The finalizer of `SplitMix64` (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014): a bijection in which
/// one changed bit changes half of the result.
#[inline]
#[must_use]
pub const fn mixed(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;

    #[test]
    fn streams_are_stable_and_distinct() {
        let draw = |seed: u64, name: &str| Seed(seed).stream(name).random_range(0..1_000_000_u32);
        assert_eq!(draw(1, "documents"), draw(1, "documents"));
        assert_ne!(draw(1, "documents"), draw(1, "arms"));
        assert_ne!(draw(1, "documents"), draw(2, "documents"));
        let nth = |n| Seed(1).nth(n).random_range(0..1_000_000_u32);
        assert_eq!(nth(7), nth(7));
        assert_ne!(nth(7), nth(8));
        // Documents in existing databases were drawn with these values, so the values must not change.
        assert_eq!(Seed(1).child("documents").0, 635_002_724_027_729_755);
    }
}
