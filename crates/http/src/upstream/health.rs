//! The health of an endpoint or address. Pure.

use std::{num::NonZeroU32, time::Duration};

use stockade_model::time::Time;

/// When an address counts as unhealthy, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// Consecutive failures.
    pub failures: NonZeroU32,
    /// How long it gets no requests. With probes: until they succeed.
    pub rest: Duration,
    pub probe: Option<HealthProbe>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthProbe {
    /// `GET` of this path, relative to the origin's URL; 2xx and 3xx are healthy.
    pub path: String,
    /// From the end of one probe to the start of the next.
    pub every: Duration,
    /// For connecting and the response together.
    pub timeout: Duration,
    /// Consecutive successes that make it healthy again.
    pub successes: NonZeroU32,
}

impl Default for HealthSettings {
    /// 5 failures, 10 s, no probes.
    fn default() -> Self {
        const FAILURES: NonZeroU32 = NonZeroU32::new(5).expect("not zero");
        Self { failures: FAILURES, rest: Duration::from_secs(10), probe: None }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Health {
    /// Consecutive.
    failures: u32,
    /// Consecutive, since it is unhealthy.
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

    /// One success resets the failures; with probes, recovery takes as many as configured.
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

    /// Consecutive.
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
        let probe = probe_successes.map(|successes| HealthProbe {
            path: "/".to_owned(),
            every: SECOND,
            timeout: SECOND,
            successes: NonZeroU32::new(successes).expect("not zero"),
        });
        let failures = NonZeroU32::new(failures).expect("not zero");
        HealthSettings { failures, rest: SECOND * 10, probe }
    }

    /// `f` is a failure, `s` a success, a digit waits for that many seconds.
    #[test]
    fn an_address_rests_after_failures_in_a_row() {
        for (failures, probe, events, expected) in [
            (3, None, "ff", false),
            (3, None, "fff", true),
            (3, None, "ffsff", false),
            (3, None, "fff9", true),
            (3, None, "fff91", false),
            // After a rest, one more failure is enough.
            (3, None, "fff91f", true),
            (3, None, "fff91sff", false),
            (3, None, "fffs", false),
            (1, None, "f", true),
            // With probes, time alone does not recover it.
            (1, Some(2), "f99", true),
            (1, Some(2), "f99s", true),
            (1, Some(2), "f99sfs", true),
            (1, Some(2), "f99ss", false),
            (2, Some(3), "fsf", false),
        ] {
            let settings = settings(failures, probe);
            let (mut health, mut now) = (Health::default(), 0);
            for event in events.chars() {
                match event {
                    'f' => health.fail(at(now), &settings),
                    's' => health.succeed(&settings),
                    wait => now += wait.to_digit(10).expect("a digit"),
                }
            }
            assert_eq!(health.is_resting(at(now)), expected, "{failures} {probe:?} {events}");
        }
    }
}
