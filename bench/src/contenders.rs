//! The compared caches, one file each.
//!
//! Every entry has a time to live, and every hit checks it: moka and stockade do so themselves, for the
//! others see [`clock`](crate::clock). Every map hashes with foldhash, as stockade and `quick_cache` do by
//! default; moka and papaya use `SipHash` by default and foyer `XxHash`, so that defaults would compare hash
//! functions.

mod foyer;
mod moka;
mod papaya;
mod quick_cache;
mod stockade;
mod tokio;

use std::{hint::black_box, sync::Arc};

use crate::{
    misses::Misser,
    stampede::{Stampeder, stampede},
    workload::WRITE,
};

pub trait Value: Clone + Send + Sync + 'static {
    /// The loader's value of `key`.
    fn load(key: u64) -> Self;
}

impl Value for u64 {
    fn load(key: u64) -> Self {
        key
    }
}

/// 1 KiB, allocated by each load; a clone is a reference count.
impl Value for Arc<[u8]> {
    fn load(key: u64) -> Self {
        Arc::new([key.to_le_bytes()[0]; 1024])
    }
}

/// 100 bytes, allocated by each load.
impl Value for Arc<[u8; 100]> {
    fn load(key: u64) -> Self {
        Arc::new([key.to_le_bytes()[0]; 100])
    }
}

/// A cache from `u64` to `V` in which entries expire.
pub trait Contender<V: Value>: Send + Sync {
    /// The value of `key`, if it is stored and fresh.
    fn get(&self, key: u64) -> Option<V>;

    /// Stores the value of `key`.
    fn insert(&self, key: u64, value: V);

    /// The number of stored entries.
    fn entries(&self) -> usize;

    /// Gets every key and inserts the missing ones; returns the number of hits.
    ///
    /// It is compiled for each contender, so that a dynamic call is paid once for all of `keys`.
    fn serve(&self, keys: &[u32]) -> u64 {
        let mut hits = 0;
        for key in keys.iter().copied().map(u64::from) {
            match self.get(key) {
                Some(value) => {
                    black_box(value);
                    hits += 1;
                }
                None => self.insert(key, V::load(key)),
            }
        }
        hits
    }

    /// Gets every key that is not marked, and inserts the marked ones; returns the number of hits.
    fn read_or_write(&self, operations: &[u32]) -> u64 {
        let mut hits = 0;
        for &operation in operations {
            let key = u64::from(operation & !WRITE);
            if operation & WRITE != 0 {
                self.insert(key, V::load(key));
            } else if let Some(value) = self.get(key) {
                black_box(value);
                hits += 1;
            }
        }
        hits
    }
}

/// A contender in the comparison of hits.
#[derive(Clone, Copy)]
pub struct Entrant<V> {
    /// Its name in tables.
    pub name: &'static str,
    /// Creates an empty cache with this capacity in entries.
    pub build: fn(usize) -> Box<dyn Contender<V>>,
}

/// All contenders, ours first. papaya is a map without eviction.
#[must_use]
pub fn entrants<V: Value>() -> [Entrant<V>; 5] {
    [
        Entrant { name: "stockade", build: |capacity| Box::new(stockade::Stockade::new(capacity)) },
        Entrant { name: "quick_cache", build: |capacity| Box::new(quick_cache::QuickCache::new(capacity)) },
        Entrant { name: "moka", build: |capacity| Box::new(moka::Moka::new(capacity)) },
        Entrant { name: "foyer", build: |capacity| Box::new(foyer::Foyer::new(capacity)) },
        Entrant { name: "papaya", build: |_| Box::new(papaya::Papaya::new()) },
    ]
}

/// The capacity of the caches in stampedes, which hold one entry.
const STAMPEDE_CAPACITY: usize = 1000;

/// All contenders that load what is missing.
pub const MISSERS: [Misser; 3] = [
    Misser { name: "stockade", miss: stockade::miss },
    Misser { name: "quick_cache", miss: quick_cache::miss },
    Misser { name: "moka", miss: moka::miss },
];

/// All contenders that coalesce, and tokio's `OnceCell`.
pub const STAMPEDERS: [Stampeder; 4] = [
    Stampeder {
        name: "stockade",
        prepare: |size| Box::pin(stampede(stockade::patient(STAMPEDE_CAPACITY), size)),
    },
    Stampeder {
        name: "quick_cache",
        prepare: |size| Box::pin(stampede(::quick_cache::sync::Cache::new(STAMPEDE_CAPACITY), size)),
    },
    Stampeder {
        name: "moka",
        prepare: |size| Box::pin(stampede(::moka::future::Cache::new(STAMPEDE_CAPACITY as u64), size)),
    },
    Stampeder { name: "OnceCell", prepare: |size| Box::pin(stampede(::tokio::sync::OnceCell::new(), size)) },
];
