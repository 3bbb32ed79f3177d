//! What an origin does when: pure functions of the time since its clock started.

use std::time::Duration;

use http::StatusCode;
use rand::RngExt;
use stockade_model::{latency::Latency, seed::Rng};

/// Stages in the order of time. Before the first one begins a route has no answer: 406.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stages(Vec<Stage>);

/// What a route does from some moment on.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// When it begins, on the route's clock.
    pub at: Duration,
    /// What it answers with.
    pub status: Odds<StatusCode>,
    /// How long an answer takes.
    pub latency: Latency,
    /// What goes wrong instead; nothing, most often.
    pub fault: Odds<Option<Fault>>,
    /// How fast a body leaves, in bytes a second; `None`: as fast as it can.
    pub byte_rate: Option<u64>,
}

/// One of several, each with its share of the requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Odds<T> {
    /// With the shares of all up to it; the last has them all.
    up_to: Vec<(f64, T)>,
}

/// How real origins fail, beyond a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// Nobody listens: a new connection is refused, one that is open is reset.
    Refuse,
    /// The request is read, and never answered.
    Silent,
    /// Half of the body leaves, then the connection is reset.
    Reset,
    /// Half of the body leaves, then the connection is closed as if that were all.
    Cut,
    /// The head is none.
    Malformed,
}

/// By name, in recipes and in counts.
pub const FAULTS: [(&str, Fault); 5] = [
    ("refuse", Fault::Refuse),
    ("silent", Fault::Silent),
    ("reset", Fault::Reset),
    ("cut", Fault::Cut),
    ("malformed", Fault::Malformed),
];

/// What is to become of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What it is answered with, unless something goes wrong.
    pub status: StatusCode,
    /// After which time.
    pub latency: Duration,
    /// What goes wrong when that time is over; a refusal does at once.
    pub fault: Option<Fault>,
    /// How fast the body leaves, in bytes a second.
    pub byte_rate: Option<u64>,
}

impl Stages {
    /// In whatever order they were written.
    #[must_use]
    pub fn new(mut stages: Vec<Stage>) -> Self {
        stages.sort_by_key(|stage| stage.at);
        Self(stages)
    }

    /// The stage at a moment: the last one that has begun.
    #[must_use]
    pub fn at(&self, elapsed: Duration) -> Option<&Stage> {
        let begun = self.0.partition_point(|stage| stage.at <= elapsed);
        self.0[..begun].last()
    }

    /// When the stage after that moment begins.
    #[must_use]
    pub fn next_after(&self, elapsed: Duration) -> Option<Duration> {
        let begun = self.0.partition_point(|stage| stage.at <= elapsed);
        self.0.get(begun).map(|stage| stage.at)
    }

    /// The one that lasts for ever.
    #[must_use]
    pub fn last(&self) -> Option<&Stage> {
        self.0.last()
    }
}

impl Stage {
    /// What becomes of a request, by chance where the stage leaves it to chance.
    pub fn plan(&self, chance: &mut Rng) -> Plan {
        Plan {
            status: *self.status.draw(chance),
            latency: self.latency.draw(chance),
            fault: *self.fault.draw(chance),
            byte_rate: self.byte_rate,
        }
    }

    /// What becomes of every request, where nothing is left to chance.
    #[must_use]
    pub fn certain(&self) -> Option<Plan> {
        Some(Plan {
            status: *self.status.certain()?,
            latency: self.latency.constant()?,
            fault: *self.fault.certain()?,
            byte_rate: self.byte_rate,
        })
    }

    /// Whether nobody listens, for certain.
    #[must_use]
    pub fn refuses(&self) -> bool {
        self.fault.certain() == Some(&Some(Fault::Refuse))
    }
}

impl Fault {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        FAULTS.iter().find(|(_, fault)| *fault == self).map_or("", |(name, _)| name)
    }
}

impl<T> Odds<T> {
    /// Each with its share, of 1 in all; what lacks to 1 goes to the last.
    ///
    /// # Panics
    /// Without any.
    #[must_use]
    pub fn new(shares: Vec<(f64, T)>) -> Self {
        assert!(!shares.is_empty(), "something has to happen");
        let mut sum = 0.0;
        let up_to = shares.into_iter().map(|(share, of)| {
            sum += share;
            (sum, of)
        });
        Self { up_to: up_to.collect() }
    }

    /// Each, with its share.
    pub fn shares(&self) -> impl Iterator<Item = (f64, &T)> {
        let before = [0.0].into_iter().chain(self.up_to.iter().map(|(up_to, _)| *up_to));
        self.up_to.iter().zip(before).map(|((up_to, of), before)| ((up_to - before).max(0.0), of))
    }

    fn draw(&self, chance: &mut Rng) -> &T {
        if let Some(of) = self.certain() {
            return of;
        }
        let at: f64 = chance.random();
        let last = self.up_to.len() - 1;
        let found = self.up_to.iter().position(|(up_to, _)| at < *up_to).unwrap_or(last);
        &self.up_to[found].1
    }

    fn certain(&self) -> Option<&T> {
        match self.up_to.as_slice() {
            [(_, of)] => Some(of),
            _ => None,
        }
    }
}

impl std::fmt::Display for Odds<StatusCode> {
    /// `503`, or `200:0.9,503:0.1`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(status) = self.certain() {
            return f.write_str(status.as_str());
        }
        for (n, (share, status)) in self.shares().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            // What is left of 1 - 0.9 is 0.1.
            write!(f, "{comma}{}:{}", status.as_str(), (share * 1e9).round() / 1e9)?;
        }
        Ok(())
    }
}

impl<T> From<T> for Odds<T> {
    /// Always the same.
    fn from(of: T) -> Self {
        Self { up_to: vec![(1.0, of)] }
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
    fn a_stage_lasts_until_the_next_begins() {
        // The scenario of OriginSimulator's README, and nothing before its first stage here.
        let stages = Stages::new(vec![
            stage(SECOND * 4, 503, "2s"),
            stage(SECOND * 6, 200, "100ms"),
            stage(SECOND, 404, "50ms"),
        ]);
        let told = |millis| {
            let plan = stages.at(Duration::from_millis(millis))?.certain()?;
            Some((plan.status.as_u16(), plan.latency.as_millis()))
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
            assert_eq!(told(millis), expected, "{millis} ms");
        }
        let next = |millis| stages.next_after(Duration::from_millis(millis));
        assert_eq!([next(0), next(1_000), next(6_000)], [Some(SECOND), Some(SECOND * 4), None]);
    }

    #[test]
    fn odds_are_kept() {
        let odds = Odds::new(vec![(0.7, 'a'), (0.2, 'b'), (0.1, 'c')]);
        assert_eq!(odds.certain(), None);
        let mut seen = [0_u32; 3];
        for n in 0..100_000 {
            let at = ['a', 'b', 'c'].iter().position(|of| of == odds.draw(&mut Seed(7).nth(n))).unwrap();
            seen[at] += 1;
        }
        let expected = [70_000.0, 20_000.0, 10_000.0];
        let chi_squared: f64 =
            seen.iter().zip(expected).map(|(seen, n)| (f64::from(*seen) - n).powi(2) / n).sum();
        // Chi-squared, 2 degrees of freedom: 13.8 is exceeded by chance once in a thousand seeds.
        assert!(chi_squared < 13.8, "{seen:?}");
    }

    #[test]
    fn the_nth_request_meets_the_same_fate_whatever_thread_it_is_on() {
        let chancy = Stage {
            status: Odds::new(vec![(0.5, StatusCode::OK), (0.5, StatusCode::BAD_GATEWAY)]),
            fault: Odds::new(vec![(0.1, Some(Fault::Reset)), (0.9, None)]),
            ..stage(Duration::ZERO, 200, "1ms..9ms")
        };
        assert_eq!(chancy.certain(), None);
        let plans = |from: u64| (from..100).map(|n| chancy.plan(&mut Seed(3).nth(n))).collect::<Vec<_>>();
        assert_eq!(plans(0)[50..], plans(50));
    }
}
