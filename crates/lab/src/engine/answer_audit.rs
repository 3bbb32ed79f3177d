//! Checks the answers of an open load: their ages, and their versions after invalidations.

use std::time::Duration;

use stockade_model::units::milliseconds;
use stockade_record::record::{Audit, Violation};

/// Checks every answer of an open load.
pub(super) struct AnswerAudit {
    limit: Option<Duration>,
    /// The oldest version of each key that new requests may receive.
    floors: Vec<u64>,
    too_old: u64,
    after_purge: u64,
    age_max_ms: Option<f64>,
}

pub(super) struct ServedAnswer {
    /// From the source's reply until the client received it.
    pub(super) age: Duration,
    /// The duration of the successful attempt. The answer was within its limit at the lookup, and may have aged since.
    pub(super) took: Duration,
    pub(super) version: u64,
    /// The key's floor when the request started.
    pub(super) floor: u64,
}

impl AnswerAudit {
    pub(super) fn new(limit: Option<Duration>, keys: usize) -> Self {
        Self { limit, floors: vec![0; keys], too_old: 0, after_purge: 0, age_max_ms: None }
    }

    /// The oldest version that a request which starts now may receive.
    pub(super) fn floor(&self, key: usize) -> u64 {
        self.floors[key]
    }

    /// The key was invalidated after this version was written.
    pub(super) fn raise(&mut self, key: usize, version: u64) {
        self.floors[key] = self.floors[key].max(version);
    }

    pub(super) fn see(&mut self, served: &ServedAnswer) {
        let ServedAnswer { age, took, version, floor } = *served;
        if self.limit.is_some_and(|limit| age > limit.saturating_add(took)) {
            self.too_old += 1;
        }
        if version < floor {
            self.after_purge += 1;
        }
        let age_ms = milliseconds(age);
        self.age_max_ms = Some(self.age_max_ms.map_or(age_ms, |most| most.max(age_ms)));
    }

    pub(super) fn found(&self) -> Audit {
        let counts = [(Violation::TooOld, self.too_old), (Violation::AfterPurge, self.after_purge)];
        Audit { counts: counts.into(), age_max_ms: self.age_max_ms, ..Audit::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_may_exceed_its_limit_by_the_duration_of_its_attempt() {
        let millis = Duration::from_millis;
        let mut audit = AnswerAudit::new(Some(millis(100)), 1);
        let mut see = |age, took, version, floor| {
            audit.see(&ServedAnswer { age: millis(age), took: millis(took), version, floor });
            let found = audit.found();
            let count = |violation| found.count(violation).unwrap();
            (count(Violation::TooOld), count(Violation::AfterPurge), found.age_max_ms)
        };
        assert_eq!(see(100, 0, 0, 0), (0, 0, Some(100.0)));
        assert_eq!(see(105, 5, 3, 3), (0, 0, Some(105.0)));
        assert_eq!(see(106, 5, 3, 2), (1, 0, Some(106.0)));
        assert_eq!(see(7, 5, 2, 3), (1, 1, Some(106.0)));
    }

    #[test]
    fn without_a_limit_no_answer_is_too_old() {
        let mut audit = AnswerAudit::new(None, 1);
        assert_eq!(audit.floor(0), 0);
        [2, 3, 1].into_iter().for_each(|version| audit.raise(0, version));
        assert_eq!(audit.floor(0), 3);
        audit.see(&ServedAnswer { age: Duration::MAX, took: Duration::ZERO, version: 0, floor: 0 });
        assert_eq!(audit.found().count(Violation::TooOld), Some(0));
    }
}
