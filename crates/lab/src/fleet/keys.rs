//! The keys of one partition, their exact share of the requests, and draws from them. Pure.

use rand::RngExt;
use stockade_model::seed::Rng;

use crate::engine::Popularity;

/// The keys of a partition: of `partitions`, partition `p` has the keys whose ranks, counted from 0, leave the remainder `p`. So each
/// partition has keys of every popularity, and its share of the requests is a sum with a closed form.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartitionKeys {
    /// The rank of its most popular key, from 1.
    first: f64,
    /// The difference between the ranks of neighbours: the number of partitions.
    stride: f64,
    count: u32,
    law: Law,
}

#[derive(Clone, Copy, Debug)]
enum Law {
    Uniform,
    Zipf(ZipfDraws),
}

/// Rejection-inversion for Zipf's law over ranks with equal gaps (Hoermann, Derflinger: Rejection-inversion to generate variates from
/// monotone discrete distributions, 1996). A draw is the inverse of the integral of the weights; few draws are rejected.
#[derive(Clone, Copy, Debug)]
struct ZipfDraws {
    exponent: f64,
    /// The integral at which the first key begins and the last one ends.
    from: f64,
    to: f64,
    /// A draw that lies at most this many ranks above its key is never rejected.
    accepted: f64,
}

impl PartitionKeys {
    /// The keys of partition `number`. There are at least as many keys as partitions, and at most [`u32::MAX`] in each.
    pub(super) fn new(popularity: Popularity, keys: u64, partitions: u64, number: u64) -> Self {
        let count = (keys - number).div_ceil(partitions);
        let keys = Self {
            first: (number + 1) as f64,
            stride: partitions as f64,
            count: u32::try_from(count).expect("a partition has fewer than 2^32 keys"),
            law: Law::Uniform,
        };
        match popularity {
            Popularity::Uniform => keys,
            Popularity::Zipf { exponent } => keys.with_zipf(exponent),
        }
    }

    fn with_zipf(self, exponent: f64) -> Self {
        let half = self.stride / 2.0;
        let weight = |rank: f64| weight(exponent, rank) * self.stride;
        let integral = |rank: f64| integral(exponent, rank);
        let second = self.first + self.stride;
        let accepted = second - inverse(exponent, integral(second + half) - weight(second));
        let draws = ZipfDraws {
            exponent,
            from: integral(self.first + half) - weight(self.first),
            to: integral(self.rank(self.count - 1) + half),
            accepted,
        };
        Self { law: Law::Zipf(draws), ..self }
    }

    /// The number of keys.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The rank of a key in the whole key space, from 1.
    pub(super) fn rank(&self, key: u32) -> f64 {
        self.first + f64::from(key) * self.stride
    }

    /// The sum of the weights of its keys. Its share of the requests is this over the sum of all partitions.
    pub(super) fn weight_sum(&self) -> f64 {
        match self.law {
            Law::Uniform => f64::from(self.count),
            Law::Zipf(draws) => self.zipf_weight_sum(draws.exponent),
        }
    }

    /// The first keys one by one, the others with the Euler-Maclaurin formula, which is exact to 12 digits there.
    fn zipf_weight_sum(&self, exponent: f64) -> f64 {
        const ONE_BY_ONE: u32 = 32;
        let near = self.count.min(ONE_BY_ONE);
        let sum: f64 = (0..near).rev().map(|key| weight(exponent, self.rank(key))).sum();
        if near == self.count {
            return sum;
        }
        let (from, to) = (self.rank(near), self.rank(self.count - 1));
        let between = integral_between(exponent, from, to) / self.stride;
        let ends = f64::midpoint(weight(exponent, from), weight(exponent, to));
        let slope = |rank: f64| -exponent * weight(exponent, rank) / rank * self.stride;
        let bend = |rank: f64| {
            let step = self.stride / rank;
            -exponent * (exponent + 1.0) * (exponent + 2.0) * weight(exponent, rank) * step.powi(3)
        };
        sum + between + ends + (slope(to) - slope(from)) / 12.0 - (bend(to) - bend(from)) / 720.0
    }

    /// A key from 0 to `count - 1`; lower keys are more popular.
    pub(super) fn draw(&self, random: &mut Rng) -> u32 {
        let Law::Zipf(draws) = self.law else { return random.random_range(0..self.count) };
        let ZipfDraws { exponent, from, to, accepted } = draws;
        let half = self.stride / 2.0;
        loop {
            let at = to + random.random::<f64>() * (from - to);
            let rank = inverse(exponent, at);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a float saturates, and the maximum is applied"
            )]
            let key = (((rank - self.first) / self.stride).round() as u32).min(self.count - 1);
            let drawn = self.rank(key);
            if drawn - rank <= accepted
                || at >= integral(exponent, drawn + half) - weight(exponent, drawn) * self.stride
            {
                return key;
            }
        }
    }
}

fn weight(exponent: f64, rank: f64) -> f64 {
    (-exponent * rank.ln()).exp()
}

/// The integral of the weights from one rank to another. The difference of two integrals from 1 would lose digits far from 1.
fn integral_between(exponent: f64, from: f64, to: f64) -> f64 {
    weight(exponent, from) * from * integral(exponent, to / from)
}

/// The integral of the weights from 1 to `rank`.
fn integral(exponent: f64, rank: f64) -> f64 {
    let log = rank.ln();
    let grown = (1.0 - exponent) * log;
    // `exp_m1(x) / x`, also where x is 0: the integral of 1 / rank is its logarithm.
    if grown.abs() < 1e-9 { log * (1.0 + grown / 2.0) } else { log * grown.exp_m1() / grown }
}

/// The rank up to which the integral is `area`.
fn inverse(exponent: f64, area: f64) -> f64 {
    let grown = ((1.0 - exponent) * area).max(-1.0);
    let log = if grown.abs() < 1e-9 { area * (1.0 - grown / 2.0) } else { area * grown.ln_1p() / grown };
    log.exp()
}

#[cfg(test)]
mod tests;
