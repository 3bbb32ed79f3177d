//! Chooses the requests that are counted.

use std::time::Duration;

use stockade_model::time::Time;

/// Each request of a quiet thread is chosen. A busy one chooses one of `gap`, which counts for all of them: some hundred
/// choices a second, in rounds of [`CHOICES`] after which the gap is doubled or halved.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    /// Requests until the next one is chosen, itself included.
    left: u32,
    gap: u32,
    /// Choices until the end of the round.
    choices: u32,
    round_began_at: Time,
    chosen_at: Time,
}

/// A burst of as many requests is counted completely.
const CHOICES: u32 = 32;

/// The gaps of a thread that has just become quiet are over soon.
const GAP_MAX: u32 = 64;

/// The gap is doubled after a round that took less.
const SHORT: Duration = Duration::from_millis(64);

/// The gap is halved after a round that took more.
const LONG: Duration = Duration::from_millis(256);

/// After this time without a choice every request is chosen again.
const PAUSE: Duration = Duration::from_millis(200);

impl Sampler {
    pub const NEW: Self =
        Self { left: 1, gap: 1, choices: CHOICES, round_began_at: Time::ZERO, chosen_at: Time::ZERO };

    /// The number of requests that this one counts for; `None`: it is not chosen.
    #[inline]
    pub fn choose(&mut self, now: Time) -> Option<u32> {
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        Some(self.next_gap(now))
    }

    #[cold]
    fn next_gap(&mut self, now: Time) -> u32 {
        let weight = self.gap;
        self.choices -= 1;
        if now - self.chosen_at > PAUSE {
            (self.gap, self.choices, self.round_began_at) = (1, CHOICES, now);
        } else if self.choices == 0 {
            let took = now - self.round_began_at;
            if took < SHORT {
                self.gap = (self.gap * 2).min(GAP_MAX);
            } else if took > LONG {
                self.gap = (self.gap / 2).max(1);
            }
            (self.choices, self.round_began_at) = (CHOICES, now);
        }
        self.chosen_at = now;
        // From 1 to twice the gap less one, `gap` on average: a period of the traffic does not coincide with the choice. The
        // nanoseconds of the end of a request are random enough.
        let random = now.as_nanos().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.left = 1 + u32::try_from(random % u64::from(2 * self.gap - 1)).unwrap_or(0);
        weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nanoseconds by which the end of a request varies.
    fn jitter(number: u64) -> Duration {
        Duration::from_nanos(number.wrapping_mul(7_919) % 997)
    }

    /// The weights of requests at this distance.
    fn weights(distance: Duration, requests: u32) -> Vec<u32> {
        let mut sampler = Sampler::NEW;
        let moment = |number: u32| Time::ZERO + distance * number + jitter(number.into());
        (0..requests).filter_map(|number| sampler.choose(moment(number))).collect()
    }

    #[test]
    fn weights_sum_to_the_requests() {
        for (distance, sample) in [(10, 1_000..2_500), (100, 2_000..8_000), (10_000, 100_000..100_001)] {
            let weights = weights(Duration::from_micros(distance), 100_000);
            assert!(sample.contains(&weights.len()), "{} at {distance} us", weights.len());
            let sum: u32 = weights.iter().sum();
            assert!(sum.abs_diff(100_000) < 5_000, "{sum} at {distance} us");
        }
    }

    #[test]
    fn period_of_the_traffic_is_not_the_period_of_the_sample() {
        let mut sampler = Sampler::NEW;
        let mut counted = [0_u32; 64];
        for number in 0..640_000_u64 {
            let now = Time::from_nanos(number * 10_000) + jitter(number);
            let key = usize::try_from(number % 64).expect("small");
            counted[key] += sampler.choose(now).unwrap_or(0);
        }
        assert!(counted.iter().all(|count| (7_000..13_000).contains(count)), "{counted:?}");
    }

    #[test]
    fn burst_is_chosen_completely() {
        let weights = weights(Duration::from_nanos(1), CHOICES);
        assert_eq!(weights, [1; CHOICES as usize]);
    }

    #[test]
    fn every_request_is_chosen_after_a_pause() {
        let mut sampler = Sampler::NEW;
        for number in 0..10_000 {
            sampler.choose(Time::from_nanos(number * 1_000));
        }
        let later = |number: u64| Time::from_nanos((number + 1) * 1_000_000_000);
        let chosen: Vec<_> = (0..200).filter_map(|number| sampler.choose(later(number))).collect();
        assert!(chosen.len() > 200 - 2 * 64 && chosen[1..].iter().all(|weight| *weight == 1), "{chosen:?}");
    }
}
