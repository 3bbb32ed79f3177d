//! Whether anything is served that should not be: too old, or invalidated before it was asked for.

use std::time::Duration;

use stockade_model::{record, units::milliseconds};

/// Looks at every answer of an open load.
pub(super) struct Audit {
    limit: Option<Duration>,
    /// The version of each key that whoever asks from now on has to be served at least.
    floors: Vec<u64>,
    found: record::Audit,
}

/// One answer.
pub(super) struct Served {
    /// From when the source answered until the client had it.
    pub(super) age: Duration,
    /// How long the attempt took that brought it: what it was looked up at, it may have aged since.
    pub(super) took: Duration,
    /// Its version.
    pub(super) version: u64,
    /// The key's floor when the request began.
    pub(super) floor: u64,
}

impl Audit {
    pub(super) fn new(limit: Option<Duration>, keys: usize) -> Self {
        Self { limit, floors: vec![0; keys], found: record::Audit::default() }
    }

    /// The version that a request which begins now has to be served at least.
    pub(super) fn floor(&self, key: usize) -> u64 {
        self.floors[key]
    }

    /// The key was invalidated after it had been written in this version.
    pub(super) fn raise(&mut self, key: usize, version: u64) {
        self.floors[key] = self.floors[key].max(version);
    }

    pub(super) fn see(&mut self, served: &Served) {
        let Served { age, took, version, floor } = *served;
        if self.limit.is_some_and(|limit| age > limit.saturating_add(took)) {
            self.found.too_old += 1;
        }
        if version < floor {
            self.found.after_invalidation += 1;
        }
        let age_ms = milliseconds(age);
        self.found.age_max_ms = Some(self.found.age_max_ms.map_or(age_ms, |most| most.max(age_ms)));
    }

    pub(super) fn found(&self) -> record::Audit {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_may_age_while_it_is_under_way_and_no_more() {
        let millis = Duration::from_millis;
        let mut audit = Audit::new(Some(millis(100)), 1);
        let mut see = |age, took, version, floor| {
            audit.see(&Served { age: millis(age), took: millis(took), version, floor });
            let found = audit.found();
            (found.too_old, found.after_invalidation, found.age_max_ms)
        };
        assert_eq!(see(100, 0, 0, 0), (0, 0, Some(100.0)));
        assert_eq!(see(105, 5, 3, 3), (0, 0, Some(105.0)));
        assert_eq!(see(106, 5, 3, 2), (1, 0, Some(106.0)));
        assert_eq!(see(7, 5, 2, 3), (1, 1, Some(106.0)));
    }

    #[test]
    fn what_never_expires_is_never_too_old() {
        let mut audit = Audit::new(None, 1);
        assert_eq!(audit.floor(0), 0);
        [2, 3, 1].into_iter().for_each(|version| audit.raise(0, version));
        assert_eq!(audit.floor(0), 3);
        audit.see(&Served { age: Duration::MAX, took: Duration::ZERO, version: 0, floor: 0 });
        assert_eq!(audit.found().too_old, 0);
    }
}
