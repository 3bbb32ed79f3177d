//! The schedule of a route: what it does at which time. Pure functions of the time since the route's clock started.

use std::time::Duration;

use http::StatusCode;
use rand::RngExt;
use stockade_model::{latency::Latency, seed::Rng};

/// Stages in ascending order of their start. Before the first stage starts, a route answers 406.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stages(Vec<Stage>);

/// The behavior of a route from `at` until the next stage starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Start of the stage, since the route's clock started.
    pub at: Duration,
    /// Status of the responses.
    pub status: WeightedChoice<StatusCode>,
    /// Time from the start of processing to the response.
    pub latency: Latency,
    /// Fault that replaces the response, if any.
    pub fault: WeightedChoice<Option<Fault>>,
    /// Speed of a response body in bytes per second; `None`: unlimited.
    pub byte_rate: Option<u64>,
}

/// A random choice between values. Each value has a share of all requests.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedChoice<T> {
    /// Values with their cumulative shares, in ascending order. The last value takes what rounding leaves up to 1.
    cumulative: Vec<(f64, T)>,
}

/// Failures of real origins that a status cannot express.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The listener is closed: the system refuses new connections. An open connection is reset at its next request.
    Refuse,
    /// The origin reads the request and never answers.
    Silent,
    /// The origin sends half of the body, then resets the connection.
    Reset,
    /// The origin sends half of the body, then closes the connection normally.
    Cut,
    /// The origin sends a response head that is not HTTP.
    Malformed,
}

/// Every fault with its name in recipes and counters.
pub const FAULTS: [(&str, Fault); 5] = [
    ("refuse", Fault::Refuse),
    ("silent", Fault::Silent),
    ("reset", Fault::Reset),
    ("cut", Fault::Cut),
    ("malformed", Fault::Malformed),
];

/// The result of all random choices of a stage for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behavior {
    /// Status of the response if there is no fault.
    pub status: StatusCode,
    /// Time from the start of processing to the response or fault.
    pub latency: Duration,
    /// Fault after the latency. [`Fault::Refuse`] does not wait for the latency.
    pub fault: Option<Fault>,
    /// Speed of the body in bytes per second; `None`: unlimited.
    pub byte_rate: Option<u64>,
}

impl Stages {
    /// Sorts the stages by their start.
    #[must_use]
    pub fn new(mut stages: Vec<Stage>) -> Self {
        stages.sort_by_key(|stage| stage.at);
        Self(stages)
    }

    /// The last stage that has started at `elapsed`.
    #[must_use]
    pub fn last_started_at(&self, elapsed: Duration) -> Option<&Stage> {
        let started = self.0.partition_point(|stage| stage.at <= elapsed);
        self.0[..started].last()
    }

    /// Start of the first stage after `elapsed`.
    #[must_use]
    pub fn next_start_after(&self, elapsed: Duration) -> Option<Duration> {
        let started = self.0.partition_point(|stage| stage.at <= elapsed);
        self.0.get(started).map(|stage| stage.at)
    }

    /// The stage that never ends.
    #[must_use]
    pub fn last(&self) -> Option<&Stage> {
        self.0.last()
    }
}

impl Stage {
    /// Draws the behavior for one request.
    pub fn draw(&self, draws: &mut Rng) -> Behavior {
        Behavior {
            status: *self.status.draw(draws),
            latency: self.latency.draw(draws),
            fault: *self.fault.draw(draws),
            byte_rate: self.byte_rate,
        }
    }

    /// The behavior for every request, or `None` if the stage leaves anything to chance.
    #[must_use]
    pub fn constant(&self) -> Option<Behavior> {
        Some(Behavior {
            status: *self.status.constant()?,
            latency: self.latency.constant()?,
            fault: *self.fault.constant()?,
            byte_rate: self.byte_rate,
        })
    }

    /// True if every request meets [`Fault::Refuse`].
    #[must_use]
    pub fn always_refuses(&self) -> bool {
        self.fault.constant() == Some(&Some(Fault::Refuse))
    }
}

impl Fault {
    /// Name in recipes and counters.
    #[must_use]
    pub fn name(self) -> &'static str {
        FAULTS.iter().find(|(_, fault)| *fault == self).map_or("", |(name, _)| name)
    }
}

impl<T> WeightedChoice<T> {
    /// Takes shares that sum to 1. The last value takes the difference if they sum to less.
    ///
    /// # Panics
    /// If `shares` is empty.
    #[must_use]
    pub fn new(shares: Vec<(f64, T)>) -> Self {
        assert!(!shares.is_empty(), "a choice has at least one value");
        let mut sum = 0.0;
        let cumulative = shares.into_iter().map(|(share, value)| {
            sum += share;
            (sum, value)
        });
        Self { cumulative: cumulative.collect() }
    }

    /// Each value with its share.
    pub fn shares(&self) -> impl Iterator<Item = (f64, &T)> {
        let previous = [0.0].into_iter().chain(self.cumulative.iter().map(|(sum, _)| *sum));
        self.cumulative
            .iter()
            .zip(previous)
            .map(|((sum, value), previous)| ((sum - previous).max(0.0), value))
    }

    fn draw(&self, draws: &mut Rng) -> &T {
        if let Some(value) = self.constant() {
            return value;
        }
        let point: f64 = draws.random();
        let last = self.cumulative.len() - 1;
        let index = self.cumulative.iter().position(|(sum, _)| point < *sum).unwrap_or(last);
        &self.cumulative[index].1
    }

    fn constant(&self) -> Option<&T> {
        match self.cumulative.as_slice() {
            [(_, value)] => Some(value),
            _ => None,
        }
    }
}

impl std::fmt::Display for WeightedChoice<StatusCode> {
    /// `503`, or `200:0.9,503:0.1`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(status) = self.constant() {
            return f.write_str(status.as_str());
        }
        for (n, (share, status)) in self.shares().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            // Rounds away binary remainders: 1 - 0.9 shows as 0.1.
            write!(f, "{comma}{}:{}", status.as_str(), (share * 1e9).round() / 1e9)?;
        }
        Ok(())
    }
}

impl<T> From<T> for WeightedChoice<T> {
    /// Always `value`.
    fn from(value: T) -> Self {
        Self { cumulative: vec![(1.0, value)] }
    }
}

#[cfg(test)]
mod tests {
    use stockade_model::seed::Seed;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn stage(at: Duration, status: u16, latency: &str) -> Stage {
        Stage {
            at,
            status: StatusCode::from_u16(status).unwrap().into(),
            latency: latency.parse().unwrap(),
            fault: None.into(),
            byte_rate: None,
        }
    }

    #[test]
    fn stage_lasts_until_next_starts() {
        // The scenario of OriginSimulator's README. Here the first stage starts at 1 s instead of 0.
        let stages = Stages::new(vec![
            stage(SECOND * 4, 503, "2s"),
            stage(SECOND * 6, 200, "100ms"),
            stage(SECOND, 404, "50ms"),
        ]);
        let active = |millis| {
            let behavior = stages.last_started_at(Duration::from_millis(millis))?.constant()?;
            Some((behavior.status.as_u16(), behavior.latency.as_millis()))
        };
        for (millis, expected) in [
            (0, None),
            (999, None),
            (1_000, Some((404, 50))),
            (3_999, Some((404, 50))),
            (4_000, Some((503, 2_000))),
            (5_999, Some((503, 2_000))),
            (6_000, Some((200, 100))),
            (u64::MAX / 2, Some((200, 100))),
        ] {
            assert_eq!(active(millis), expected, "{millis} ms");
        }
        let next = |millis| stages.next_start_after(Duration::from_millis(millis));
        assert_eq!([next(0), next(1_000), next(6_000)], [Some(SECOND), Some(SECOND * 4), None]);
    }

    #[test]
    fn values_are_drawn_by_share() {
        let choice = WeightedChoice::new(vec![(0.7, 'a'), (0.2, 'b'), (0.1, 'c')]);
        assert_eq!(choice.constant(), None);
        let mut counts = [0_u32; 3];
        for n in 0..100_000 {
            let index =
                ['a', 'b', 'c'].iter().position(|value| value == choice.draw(&mut Seed(7).nth(n))).unwrap();
            counts[index] += 1;
        }
        let expected = [70_000.0, 20_000.0, 10_000.0];
        let chi_squared: f64 =
            counts.iter().zip(expected).map(|(count, n)| (f64::from(*count) - n).powi(2) / n).sum();
        // Chi-squared, 2 degrees of freedom: 13.8 is exceeded by chance once in a thousand seeds.
        assert!(chi_squared < 13.8, "{counts:?}");
    }

    #[test]
    fn behavior_depends_on_request_number_and_seed_alone() {
        let random = Stage {
            status: WeightedChoice::new(vec![(0.5, StatusCode::OK), (0.5, StatusCode::BAD_GATEWAY)]),
            fault: WeightedChoice::new(vec![(0.1, Some(Fault::Reset)), (0.9, None)]),
            ..stage(Duration::ZERO, 200, "1ms..9ms")
        };
        assert_eq!(random.constant(), None);
        let behaviors = |from: u64| (from..100).map(|n| random.draw(&mut Seed(3).nth(n))).collect::<Vec<_>>();
        assert_eq!(behaviors(0)[50..], behaviors(50));
    }
}
