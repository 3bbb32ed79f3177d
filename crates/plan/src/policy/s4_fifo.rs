//! S4-FIFO: S3-FIFO with its constants as parameters (Xia et al., "Learning-Augmented Heuristics: Simple yet Smart, Robust
//! and Interpretable Cache Eviction", OSDI 2026), for the measurements of decision 028. With `10, 0, 2, 0, 90` it is S3-FIFO.
//!
//! The paper chooses the parameters once, with a model that was trained on 4,140 traces. Here each choice is a policy.

use super::{
    EvictionPolicy, PolicySetup,
    queue::{Links, Queue},
};
use crate::trace::{Access, Key};

/// The counter's maximum.
const HITS_MAX: u8 = 3;

/// - `SMALL`: percent of the room for the small queue.
/// - `SKIP`: percent of the small queue, its newest part, in which hits do not count.
/// - `TO_MAIN`: hits in the small queue after which an entry moves to the main queue.
/// - `GHOST_TO_MAIN`: an entry that was a ghost more often than this goes to the main queue at once.
/// - `GHOSTS`: percent of the room that the ghosts would fill.
/// - `FILLS_MAIN`: until the first eviction the main queue takes what the small one has no room for, as in the authors'
///   simulator. Otherwise all new entries start in the small queue, as in the cache, which learns its room by evicting.
pub(crate) struct S4Fifo<
    const SMALL: u32,
    const SKIP: u32,
    const TO_MAIN: u8,
    const GHOST_TO_MAIN: u8,
    const GHOSTS: u32,
    const FILLS_MAIN: bool,
> {
    links: Links,
    small: Queue,
    main: Queue,
    ghosts: Queue,
    /// The weight inserted into the small queue, in all and up to each key.
    inserted: u64,
    inserted_to: Vec<u64>,
    ghost_hits: Vec<u8>,
    small_max: u64,
    skipped: u64,
    ghosts_max: u64,
    has_evicted: bool,
    is_ghost: bool,
}

impl<
    const SMALL: u32,
    const SKIP: u32,
    const TO_MAIN: u8,
    const GHOST_TO_MAIN: u8,
    const GHOSTS: u32,
    const FILLS_MAIN: bool,
> S4Fifo<SMALL, SKIP, TO_MAIN, GHOST_TO_MAIN, GHOSTS, FILLS_MAIN>
{
    fn evict_small(&mut self) -> Option<Key> {
        while let Some(oldest) = self.small.oldest() {
            if *self.links.mark(oldest) < TO_MAIN {
                self.small.move_to(&mut self.ghosts, &mut self.links, oldest);
                self.ghosts.trim(&mut self.links, self.ghosts_max);
                return Some(oldest);
            }
            self.small.move_to(&mut self.main, &mut self.links, oldest);
        }
        None
    }

    fn evict_main(&mut self) -> Option<Key> {
        while let Some(oldest) = self.main.oldest() {
            let hits = *self.links.mark(oldest);
            if hits == 0 {
                return self.main.pop(&mut self.links);
            }
            self.main.touch(&mut self.links, oldest);
            *self.links.mark(oldest) = hits - 1;
        }
        None
    }
}

impl<
    const SMALL: u32,
    const SKIP: u32,
    const TO_MAIN: u8,
    const GHOST_TO_MAIN: u8,
    const GHOSTS: u32,
    const FILLS_MAIN: bool,
> EvictionPolicy for S4Fifo<SMALL, SKIP, TO_MAIN, GHOST_TO_MAIN, GHOSTS, FILLS_MAIN>
{
    fn new(setup: &PolicySetup) -> Self {
        let small_max = super::share(setup.capacity, f64::from(SMALL) / 100.0);
        let of = |whole: u64, percent: u32| whole * u64::from(percent) / 100;
        Self {
            links: Links::new(setup.keys),
            small: Queue::new(1),
            main: Queue::new(2),
            ghosts: Queue::new(3),
            inserted: 0,
            inserted_to: vec![0; setup.keys],
            ghost_hits: vec![0; setup.keys],
            small_max,
            skipped: of(small_max, SKIP),
            ghosts_max: of(setup.capacity, GHOSTS),
            has_evicted: false,
            is_ghost: false,
        }
    }

    fn on_hit(&mut self, access: &Access) {
        let is_skipped = SKIP > 0
            && self.small.has(&self.links, access.key)
            && self.inserted - self.inserted_to[access.key as usize] < self.skipped;
        let hits = self.links.mark(access.key);
        if !is_skipped && *hits < HITS_MAX {
            *hits += 1;
        }
    }

    fn on_miss(&mut self, access: &Access) {
        self.is_ghost = self.ghosts.has(&self.links, access.key);
        if self.is_ghost {
            self.ghosts.remove(&mut self.links, access.key);
        }
        let hits = &mut self.ghost_hits[access.key as usize];
        *hits = if self.is_ghost { hits.saturating_add(1) } else { 0 };
    }

    fn evict(&mut self, _access: &Access) -> Option<Key> {
        self.has_evicted = true;
        if (self.small.weight() >= self.small_max || self.main.is_empty())
            && let Some(key) = self.evict_small()
        {
            return Some(key);
        }
        self.evict_main().or_else(|| self.evict_small())
    }

    fn on_insert(&mut self, access: &Access) {
        let is_promoted = self.is_ghost && self.ghost_hits[access.key as usize] > GHOST_TO_MAIN;
        let is_early = FILLS_MAIN && !self.has_evicted && self.small.weight() >= self.small_max;
        if is_promoted || is_early {
            self.main.push(&mut self.links, access.key, access.weight);
        } else {
            self.inserted += u64::from(access.weight);
            self.inserted_to[access.key as usize] = self.inserted;
            self.small.push(&mut self.links, access.key, access.weight);
        }
    }

    fn on_update(&mut self, access: &Access) {
        self.links.reweigh_in([&mut self.small, &mut self.main], access.key, access.weight);
    }

    fn on_remove(&mut self, key: Key) {
        self.links.remove_from([&mut self.small, &mut self.main], key);
    }
}
