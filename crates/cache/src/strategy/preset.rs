//! Named strategies: the registry.

use std::time::Duration;

use stockade_model::{
    named,
    registry::{Registry, UnknownName},
};

use super::{Fetch, HedgeAfter, LoadBounds, StoreMode, Strategy, Writer};
use crate::{breaker::Breaker, freshness::Refresh, limit::Limit};

/// A strategy with a name.
#[derive(Clone, Debug)]
pub struct Preset {
    /// The name on the command line and in experiment files.
    pub name: &'static str,
    /// The number of loads and stores for N requests for one missing key, and what the requests wait for.
    pub summary: &'static str,
    /// The strategy.
    pub strategy: Strategy,
}

named!(Preset, "strategy");

/// How long Kazoo's waiters wait before they receive an error.
const KAZOO_WAIT: Duration = Duration::from_millis(1500);

/// No ttl, no waiting, all work at the caller's cost: the baseline.
pub(crate) const NONE: Strategy = Strategy {
    fetch: Fetch::Independent,
    load: LoadBounds::DEFAULT,
    store: StoreMode::Sync,
    refresh: Refresh::None,
    ttl: None,
    jitter: 0.0,
    swr: Duration::ZERO,
    sie: Duration::ZERO,
    negative_ttl: None,
    throttle: Duration::ZERO,
    breaker: None,
    writer: Writer::Direct,
    limit: None,
};

impl Default for Strategy {
    /// [`Strategy::DEFAULT`].
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Strategy {
    /// For a cache about which nothing else is known: a value is fresh for a minute, 10,000 entries are kept, callers that miss a key share
    /// one load, which may take 30 s, and wait for its end. A load that takes twice as long as nearly all others is
    /// [hedged](HedgeAfter::Learned). Nothing stale is served. It is not a preset: those have the times of the published tests.
    pub const DEFAULT: Self = Self {
        fetch: Fetch::coalesce(Duration::from_secs(60)),
        load: LoadBounds {
            deadline: Duration::from_secs(30),
            hedge_after: Some(HedgeAfter::Learned),
            ..LoadBounds::DEFAULT
        },
        ttl: Some(Duration::from_secs(60)),
        limit: Some(Limit::entries(10_000)),
        ..NONE
    };
}

/// Values expire, and every request that finds one expired loads.
const SIMPLE: Strategy = Strategy { ttl: Some(Duration::from_secs(60)), ..NONE };

/// Values expire, and one request loads for all. The timeout is that of nginx's cache lock.
const COALESCED: Strategy = Strategy { fetch: Fetch::coalesce(Duration::from_secs(5)), ..SIMPLE };

/// Values are served stale for six hours while loads fail, as in Belfrage.
const FALLBACK: Strategy = Strategy {
    load: LoadBounds { soft_timeout: Some(Duration::from_millis(500)), ..LoadBounds::DEFAULT },
    sie: Duration::from_secs(6 * 60 * 60),
    throttle: Duration::from_secs(1),
    ..COALESCED
};

/// Declares each preset once: a constant of [`Strategy`] and a row of [`PRESETS`].
macro_rules! presets {
    ($(#[doc = $help:literal])+ $($constant:ident $name:literal $summary:literal = $strategy:expr;)+) => {
        impl Strategy {
            $(
                #[doc = concat!("The preset `", $name, "`: ", $summary, ".")]
                pub const $constant: Self = $strategy;
            )+
        }

        $(#[doc = $help])+
        pub static PRESETS: Registry<Preset> = {
            const ALL: &[Preset] =
                &[$(Preset { name: $name, summary: $summary, strategy: Strategy::$constant },)+];
            Registry::new(ALL)
        };
    };
}

presets! {
    /// The named strategies. The first four are those of Kazoo's published load test (2600hz/kazoo, `kzs_loadtest`), the
    /// last is that of Belfrage's (bbc/belfrage). The default ttl is one minute.
    NONE "none" "N loads, N stores; each request waits for its own" = NONE;
    ASYNC "async" "N loads, N stores; no request waits for a store" =
        Strategy { store: StoreMode::Async, ..NONE };
    STAMPEDE "stampede" "one load, one store; all requests wait for both" =
        Strategy { fetch: Fetch::coalesce(KAZOO_WAIT), ..NONE };
    STAMPEDE_ASYNC "stampede_async" "N loads, one store; no request waits for the store" =
        Strategy { store: StoreMode::LockedAsync, ..NONE };
    SIMPLE "simple" "fresh for the ttl; after that each request loads" = SIMPLE;
    EARLY "early" "one background refresh, started by the first request after 80 % of the ttl" =
        Strategy { refresh: Refresh::Early { at: 0.8 }, ..COALESCED };
    XFETCH "xfetch" "one background refresh, at random, likelier towards the end of the ttl" =
        Strategy { refresh: Refresh::XFetch { beta: 1.0 }, ..COALESCED };
    SWR "swr" "stale for one minute after the ttl, with one background refresh" =
        Strategy { swr: Duration::from_secs(60), ..COALESCED };
    FALLBACK "fallback" "stale for six hours after the ttl if the load fails or is slow" = FALLBACK;
    BREAKER "breaker" "as fallback, and a breaker stops loads while the source fails" =
        Strategy { breaker: Some(Breaker::DEFAULT), ..FALLBACK };
    FALLBACK_ASK_FIRST "fallback_ask_first" "stale for six hours after the ttl if the load fails; each request loads first" =
        Strategy { sie: Duration::from_secs(6 * 60 * 60), ..SIMPLE };
}

impl Strategy {
    /// The preset with this name.
    pub fn preset(name: &str) -> Result<Self, UnknownName> {
        PRESETS.named(name).map(|preset| preset.strategy.clone())
    }
}
