//! W-TinyLFU: a small window by recency, and a main part that admits what leaves the window only if it is requested more
//! often than the entry it would displace. The main part is segmented: entries on probation, and protected ones.
//!
//! The window has a hundredth of the room and the protected part four fifths of the rest, as in the paper. Caffeine
//! adapts the window, and lets a colliding candidate in at random; neither is done here.

use super::{
    EvictionPolicy, PolicySetup,
    queue::{Links, Queue},
    sketch::FrequencySketch,
};
use crate::trace::{Access, Key};

const WINDOW_SHARE: f64 = 0.01;
const PROTECTED_SHARE: f64 = 0.8;

pub(crate) struct WTinyLfu {
    links: Links,
    window: Queue,
    probation: Queue,
    protected: Queue,
    frequency: FrequencySketch,
    window_max: u64,
    main_max: u64,
    protected_max: u64,
}

impl WTinyLfu {
    /// Moves the oldest entries of a window that is too large to the main part, while that has room.
    fn fill_main(&mut self, incoming: u64) {
        while self.window.weight() + incoming > self.window_max
            && let Some(oldest) = self.window.oldest()
            && self.probation.weight() + self.protected.weight() + u64::from(self.links.weight(oldest))
                <= self.main_max
        {
            self.window.move_to(&mut self.probation, &mut self.links, oldest);
        }
    }
}

impl EvictionPolicy for WTinyLfu {
    fn new(setup: &PolicySetup) -> Self {
        let window_max = super::share(setup.capacity, WINDOW_SHARE);
        let main_max = setup.capacity - window_max.min(setup.capacity);
        let entries = (setup.capacity as f64 / setup.mean_weight.max(1.0)).ceil();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative; a float saturates"
        )]
        let entries = (entries as usize).min(setup.keys);
        Self {
            links: Links::new(setup.keys),
            window: Queue::new(1),
            probation: Queue::new(2),
            protected: Queue::new(3),
            frequency: FrequencySketch::new(entries),
            window_max,
            main_max,
            protected_max: super::share(main_max, PROTECTED_SHARE),
        }
    }

    fn on_hit(&mut self, access: &Access) {
        self.frequency.add(access.key);
        let links = &mut self.links;
        if self.window.has(links, access.key) {
            self.window.touch(links, access.key);
        } else if self.protected.has(links, access.key) {
            self.protected.touch(links, access.key);
        } else {
            self.probation.move_to(&mut self.protected, links, access.key);
            while self.protected.weight() > self.protected_max
                && let Some(oldest) = self.protected.oldest()
            {
                self.protected.move_to(&mut self.probation, links, oldest);
            }
        }
    }

    fn on_miss(&mut self, access: &Access) {
        self.frequency.add(access.key);
        self.fill_main(u64::from(access.weight));
    }

    fn evict(&mut self, access: &Access) -> Option<Key> {
        let victim = self.probation.oldest().or(self.protected.oldest());
        let is_window_full = self.window.weight() + u64::from(access.weight) > self.window_max;
        let candidate = self.window.oldest().filter(|_| is_window_full);
        let evicted = match (candidate, victim) {
            (Some(candidate), Some(victim)) => {
                if self.frequency.count(candidate) > self.frequency.count(victim) {
                    self.window.move_to(&mut self.probation, &mut self.links, candidate);
                    victim
                } else {
                    candidate
                }
            }
            (candidate, victim) => candidate.or(victim).or(self.window.oldest())?,
        };
        self.on_remove(evicted);
        Some(evicted)
    }

    fn on_insert(&mut self, access: &Access) {
        self.window.push(&mut self.links, access.key, access.weight);
        self.fill_main(0);
    }

    fn on_update(&mut self, access: &Access) {
        self.links.reweigh_in(
            [&mut self.window, &mut self.probation, &mut self.protected],
            access.key,
            access.weight,
        );
    }

    fn on_remove(&mut self, key: Key) {
        self.links.remove_from([&mut self.window, &mut self.probation, &mut self.protected], key);
    }
}
