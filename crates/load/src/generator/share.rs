//! The requests of a load that one of several generators sends.

use std::{num::NonZeroU32, sync::Arc};

use serde::{Deserialize, Serialize};

/// The share of one generator: the requests, and in closed loops the connections, whose numbers have certain remainders.
///
/// The shares of all generators are the load of a single one, whatever their count: the number, the due time and the content of a request
/// do not depend on the generator that sends it. Within a share, requests are counted by their *own* numbers, from 0 on without gaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Option<PartialShare>", into = "Option<PartialShare>")]
pub struct Share(Option<Arc<PartialShare>>);

/// A share that is not the whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PartialShare {
    /// In ascending order.
    remainders: Vec<u32>,
    /// The divisor.
    of: u32,
}

impl Share {
    /// The share of the only generator.
    pub const WHOLE: Self = Self(None);

    /// The shares of generators with these weights, in their order. Numbers of requests are proportional to weights, and those of each
    /// generator are spread evenly: with equal weights, generator `i` of `k` has the numbers that are `i` modulo `k`.
    ///
    /// ```
    /// use stockade_load::generator::Share;
    ///
    /// let shares = Share::by_weight(&[2.try_into()?, 1.try_into()?]);
    /// let numbers = |share: &Share| [0, 1, 2, 3].map(|own| share.number(own));
    /// assert_eq!(shares.iter().map(numbers).collect::<Vec<_>>(), [[0, 2, 3, 5], [1, 4, 7, 10]]);
    /// # Ok::<(), std::num::TryFromIntError>(())
    /// ```
    #[must_use]
    pub fn by_weight(weights: &[NonZeroU32]) -> Vec<Self> {
        if weights.len() == 1 {
            return vec![Self::WHOLE];
        }
        // The jth number of a generator is best placed at this part of a round.
        let place = |weight: u32, j: u32| (f64::from(j) + 0.5) / f64::from(weight);
        let numbers = weights.iter().enumerate().flat_map(|(generator, weight)| {
            (0..weight.get()).map(move |j| (place(weight.get(), j), generator))
        });
        let mut numbers: Vec<(f64, usize)> = numbers.collect();
        numbers.sort_by(|(a, of_a), (b, of_b)| a.total_cmp(b).then(of_a.cmp(of_b)));
        let of = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        let mut remainders = vec![Vec::new(); weights.len()];
        for (remainder, (_, generator)) in (0..of).zip(numbers) {
            remainders[generator].push(remainder);
        }
        remainders
            .into_iter()
            .map(|remainders| Self(Some(Arc::new(PartialShare { remainders, of }))))
            .collect()
    }

    /// The number of a request with this own number.
    #[must_use]
    pub fn number(&self, own: u64) -> u64 {
        let Some(partial) = &self.0 else { return own };
        let count = partial.remainders.len();
        // The remainder of a division by a length is an index.
        let at = usize::try_from(own % count as u64).unwrap_or_default();
        own / count as u64 * u64::from(partial.of) + u64::from(partial.remainders[at])
    }

    /// Count of the share's requests with numbers below `number`: the own number of the first that is not.
    #[must_use]
    pub fn below(&self, number: u64) -> u64 {
        let Some(partial) = &self.0 else { return number };
        let (round, left) = (number / u64::from(partial.of), number % u64::from(partial.of));
        let below = partial.remainders.partition_point(|remainder| u64::from(*remainder) < left);
        round * partial.remainders.len() as u64 + below as u64
    }

    /// The part of all requests.
    pub(super) fn fraction(&self) -> f64 {
        self.0.as_ref().map_or(1.0, |partial| partial.remainders.len() as f64 / f64::from(partial.of))
    }

    /// [`below`](Self::below), for counts of connections.
    pub(super) fn part_of(&self, total: usize) -> usize {
        usize::try_from(self.below(total as u64)).unwrap_or(total)
    }
}

impl TryFrom<Option<PartialShare>> for Share {
    type Error = &'static str;

    fn try_from(partial: Option<PartialShare>) -> Result<Self, Self::Error> {
        let Some(partial) = partial else { return Ok(Self::WHOLE) };
        let is_ascending = partial.remainders.is_sorted_by(|a, b| a < b);
        match partial.remainders.last() {
            Some(last) if is_ascending && *last < partial.of => Ok(Self(Some(Arc::new(partial)))),
            _ => Err("this is not a share of a load"),
        }
    }
}

impl From<Share> for Option<PartialShare> {
    fn from(share: Share) -> Self {
        share.0.map(|partial| PartialShare::clone(&partial))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shares(weights: &[u32]) -> Vec<Share> {
        Share::by_weight(&weights.iter().map(|weight| (*weight).try_into().unwrap()).collect::<Vec<_>>())
    }

    proptest! {
        #[test]
        fn each_number_is_in_one_share(weights in prop::collection::vec(1_u32..9, 1..6), total in 0_u64..100) {
            let mut numbers = Vec::new();
            for (share, weight) in shares(&weights).iter().zip(&weights) {
                let own: Vec<u64> = (0..share.below(total)).map(|own| share.number(own)).collect();
                prop_assert!(own.is_sorted() && share.number(own.len() as u64) >= total);
                // Also of a few numbers, a share has its part, to one for each generator.
                let part = total as f64 * f64::from(*weight) / f64::from(weights.iter().sum::<u32>());
                prop_assert!((own.len() as f64 - part).abs() <= weights.len() as f64, "{} of {}", own.len(), total);
                numbers.extend(own);
            }
            numbers.sort_unstable();
            prop_assert_eq!(numbers, (0..total).collect::<Vec<_>>());
        }
    }

    #[test]
    fn equal_weights_take_turns_and_unequal_ones_are_mixed() {
        let numbers = |weights: &[u32], total| {
            shares(weights)
                .iter()
                .map(|share| (0..share.below(total)).map(|own| share.number(own)).collect::<Vec<_>>())
                .collect::<Vec<_>>()
        };
        assert_eq!(numbers(&[1, 1, 1], 6), [[0, 3], [1, 4], [2, 5]]);
        // Seven connections of machines with seven and with five cores.
        let counts: Vec<_> = numbers(&[7, 5], 7).iter().map(Vec::len).collect();
        assert_eq!(counts, [4, 3]);
        assert_eq!(shares(&[3]), [Share::WHOLE]);
        assert_eq!([0, 7].map(|own| (Share::WHOLE.number(own), Share::WHOLE.below(own))), [(0, 0), (7, 7)]);
    }

    #[test]
    fn shares_of_others_are_checked() {
        for share in shares(&[2, 3]).into_iter().chain([Share::WHOLE]) {
            let text = serde_json::to_string(&share).unwrap();
            assert_eq!(serde_json::from_str::<Share>(&text).unwrap(), share, "{text}");
        }
        for text in [
            r#"{"remainders":[],"of":3}"#,
            r#"{"remainders":[3],"of":3}"#,
            r#"{"remainders":[1,1],"of":3}"#,
            r#"{"remainders":[0],"of":0}"#,
        ] {
            assert!(serde_json::from_str::<Share>(text).is_err(), "{text}");
        }
    }
}
