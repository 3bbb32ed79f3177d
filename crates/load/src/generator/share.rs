//! The requests of a load that one of several generators sends.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// The share of one generator: the requests, and in closed loops the connections, whose numbers have certain remainders.
///
/// The shares of all generators are the load of a single one, whatever their count: the number, the due time and the content of a request
/// do not depend on the generator that sends it. Within a share, requests are counted by their *own* numbers, from 0 on without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct Share {
    /// The first of the remainders.
    first: u64,
    /// The count of the remainders.
    count: u64,
    /// The divisor.
    of: u64,
}

/// The fields of a share, which others may have written.
#[derive(Serialize, Deserialize)]
struct Parts {
    first: u32,
    count: u32,
    of: u32,
}

impl TryFrom<Parts> for Share {
    type Error = &'static str;

    fn try_from(Parts { first, count, of }: Parts) -> Result<Self, Self::Error> {
        match first.checked_add(count) {
            Some(end) if count > 0 && end <= of => {
                Ok(Self { first: first.into(), count: count.into(), of: of.into() })
            }
            _ => Err("this is no share of a load"),
        }
    }
}

impl From<Share> for Parts {
    fn from(share: Share) -> Self {
        let part = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Self { first: part(share.first), count: part(share.count), of: part(share.of) }
    }
}

impl Share {
    /// The share of the only generator.
    pub const WHOLE: Self = Self { first: 0, count: 1, of: 1 };

    /// The shares of generators with these weights, in their order. Numbers of requests are proportional to weights.
    ///
    /// ```
    /// use stockade_load::generator::Share;
    ///
    /// let shares = Share::by_weight(&[2.try_into()?, 1.try_into()?]);
    /// let numbers = |share: &Share| [0, 1, 2, 3].map(|own| share.number(own));
    /// assert_eq!(shares.iter().map(numbers).collect::<Vec<_>>(), [[0, 1, 3, 4], [2, 5, 8, 11]]);
    /// # Ok::<(), std::num::TryFromIntError>(())
    /// ```
    #[must_use]
    pub fn by_weight(weights: &[NonZeroU32]) -> Vec<Self> {
        let of = weights.iter().map(|weight| u64::from(weight.get())).sum();
        let mut first = 0;
        let share = |weight: &NonZeroU32| {
            let count = u64::from(weight.get());
            first += count;
            Self { first: first - count, count, of }
        };
        weights.iter().map(share).collect()
    }

    /// The number of a request with this own number.
    #[must_use]
    pub const fn number(self, own: u64) -> u64 {
        own / self.count * self.of + self.first + own % self.count
    }

    /// Count of the share's requests with numbers below `number`: the own number of the first that is not.
    #[must_use]
    pub fn below(self, number: u64) -> u64 {
        number / self.of * self.count + (number % self.of).saturating_sub(self.first).min(self.count)
    }

    /// The part of all requests.
    pub(super) fn fraction(self) -> f64 {
        self.count as f64 / self.of as f64
    }

    /// [`below`](Self::below), for counts of connections.
    pub(super) fn part_of(self, total: usize) -> usize {
        usize::try_from(self.below(total as u64)).unwrap_or(total)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_number_is_in_one_share(
            weights in prop::collection::vec((1_u32..5).prop_map(|weight| weight.try_into().unwrap()), 1..6),
            total in 0_u64..100,
        ) {
            let shares = Share::by_weight(&weights);
            let mut numbers = Vec::new();
            for share in &shares {
                let own: Vec<u64> = (0..share.below(total)).map(|own| share.number(own)).collect();
                prop_assert!(own.is_sorted() && share.number(own.len() as u64) >= total);
                numbers.extend(own);
            }
            numbers.sort_unstable();
            prop_assert_eq!(numbers, (0..total).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_whole_has_all() {
        assert_eq!(Share::by_weight(&[NonZeroU32::MIN]), [Share::WHOLE]);
        assert_eq!([0, 7].map(|own| (Share::WHOLE.number(own), Share::WHOLE.below(own))), [(0, 0), (7, 7)]);
    }
}
