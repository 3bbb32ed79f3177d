//! Whether an address is worth asking. Pure.

use std::{num::NonZeroU32, time::Duration};

use stockade_model::time::Time;

/// When an address rests, and when it is asked again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// After so many failures in a row an address rests.
    pub failures: NonZeroU32,
    /// For how long. With probes: until they succeed.
    pub rest: Duration,
    /// Asks every address every so often, whatever clients ask for.
    pub probe: Option<Probe>,
}

/// What an address is asked to show that it works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// `GET` of this path and query, below the origin's own; 2xx and 3xx are healthy.
    pub path: String,
    /// How often, from one's end to the next one's beginning.
    pub every: Duration,
    /// How long connecting and answering may take together.
    pub timeout: Duration,
    /// An address that rests is asked by clients again after so many successes in a row.
    pub successes: NonZeroU32,
}

impl Default for HealthSettings {
    /// After 5 failures, for 10 s, without probes.
    fn default() -> Self {
        const FAILURES: NonZeroU32 = NonZeroU32::new(5).expect("not zero");
        Self { failures: FAILURES, rest: Duration::from_secs(10), probe: None }
    }
}

/// What is known of an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Health {
    /// In a row.
    failures: u32,
    /// In a row, since it rests.
    successes: u32,
    rests_until: Option<Time>,
}

impl Health {
    pub(super) fn fail(&mut self, now: Time, settings: &HealthSettings) {
        self.successes = 0;
        self.failures = self.failures.saturating_add(1);
        if self.failures >= settings.failures.get() {
            let until = if settings.probe.is_some() { Time::NEVER } else { now + settings.rest };
            self.rests_until = Some(until);
        }
    }

    /// One success ends the failures in a row; where there are probes, a rest takes as many as they say.
    pub(super) fn succeed(&mut self, settings: &HealthSettings) {
        self.successes = self.successes.saturating_add(1);
        let needed = settings.probe.as_ref().map_or(1, |probe| probe.successes.get());
        if self.rests_until.is_none() || self.successes >= needed {
            *self = Self::default();
        }
    }

    pub(super) fn is_resting(&self, now: Time) -> bool {
        self.rests_until.is_some_and(|until| now < until)
    }

    /// Failures in a row.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Time {
        Time::ZERO + SECOND * seconds
    }

    fn settings(failures: u32, probe_successes: Option<u32>) -> HealthSettings {
        let probe = probe_successes.map(|successes| Probe {
            path: "/".to_owned(),
            every: SECOND,
            timeout: SECOND,
            successes: NonZeroU32::new(successes).expect("not zero"),
        });
        let failures = NonZeroU32::new(failures).expect("not zero");
        HealthSettings { failures, rest: SECOND * 10, probe }
    }

    /// What happens: `f` a failure, `s` a success, a digit waits so many seconds. Then: does it rest?
    #[test]
    fn an_address_rests_after_failures_in_a_row() {
        for (failures, probe, story, expected) in [
            (3, None, "ff", false),
            (3, None, "fff", true),
            (3, None, "ffsff", false),
            (3, None, "fff9", true),
            (3, None, "fff91", false),
            // One more is enough once it has rested.
            (3, None, "fff91f", true),
            (3, None, "fff91sff", false),
            (3, None, "fffs", false),
            (1, None, "f", true),
            // Where there are probes, time alone heals nothing.
            (1, Some(2), "f99", true),
            (1, Some(2), "f99s", true),
            (1, Some(2), "f99sfs", true),
            (1, Some(2), "f99ss", false),
            (2, Some(3), "fsf", false),
        ] {
            let settings = settings(failures, probe);
            let (mut health, mut now) = (Health::default(), 0);
            for event in story.chars() {
                match event {
                    'f' => health.fail(at(now), &settings),
                    's' => health.succeed(&settings),
                    wait => now += wait.to_digit(10).expect("a digit"),
                }
            }
            assert_eq!(health.is_resting(at(now)), expected, "{failures} {probe:?} {story}");
        }
    }
}
