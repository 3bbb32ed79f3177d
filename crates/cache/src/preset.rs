//! Named strategies: the registry.

use std::time::Duration;

use stockade_model::nearest::remedy;

use crate::{
    breaker::Breaker,
    strategy::{Fetch, Load, Refresh, Store, Strategy, Writer},
};

/// A strategy with a name.
#[derive(Clone, Debug)]
pub struct Preset {
    /// As the command line and experiment files call it.
    pub name: &'static str,
    /// What becomes of N requests for one missing key.
    pub summary: &'static str,
    /// The composition behind the name.
    pub strategy: Strategy,
}

/// How long Kazoo's waiters wait for a stampeded key before they are given an error.
const KAZOO_WAIT: Duration = Duration::from_millis(1500);

/// No ttl, no wait, everything at the caller's cost: what the others improve on.
pub(crate) const NONE: Strategy = Strategy {
    fetch: Fetch::Independent,
    load: Load::DEFAULT,
    store: Store::Sync,
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

/// Answers expire, and everybody who finds them so loads.
const SIMPLE: Strategy = Strategy { ttl: Some(Duration::from_mins(1)), ..NONE };

/// Answers expire, and one loads for all. nginx waits as long for its cache lock.
const COALESCED: Strategy =
    Strategy { fetch: Fetch::Coalesce { wait_timeout: Duration::from_secs(5) }, ..SIMPLE };

/// Stale for six hours while loads fail, as Belfrage has it.
const FALLBACK: Strategy = Strategy {
    load: Load { soft_timeout: Some(Duration::from_millis(500)), ..Load::DEFAULT },
    sie: Duration::from_hours(6),
    throttle: Duration::from_secs(1),
    ..COALESCED
};

/// Every named strategy. The first four are those of Kazoo's published load test (2600hz/kazoo,
/// `kzs_loadtest`), the last is that of Belfrage's (bbc/belfrage). Those with a ttl have one minute unless
/// told otherwise.
pub const PRESETS: &[Preset] = &[
    Preset { name: "none", summary: "N loads, N stores, and everyone waits for their own", strategy: NONE },
    Preset {
        name: "async",
        summary: "N loads, N stores, and nobody waits for a store",
        strategy: Strategy { store: Store::Async, ..NONE },
    },
    Preset {
        name: "stampede",
        summary: "one load, one store, and everyone waits for those",
        strategy: Strategy { fetch: Fetch::Coalesce { wait_timeout: KAZOO_WAIT }, ..NONE },
    },
    Preset {
        name: "stampede_async",
        summary: "N loads, one store, and nobody waits for it",
        strategy: Strategy { store: Store::LockedAsync, ..NONE },
    },
    Preset { name: "simple", summary: "until it expires; then everybody loads", strategy: SIMPLE },
    Preset {
        name: "early",
        summary: "one refresh in the background, on the first request after 80 % of the ttl",
        strategy: Strategy { refresh: Refresh::Early { at: 0.8 }, ..COALESCED },
    },
    Preset {
        name: "xfetch",
        summary: "one refresh in the background, by chance, the likelier the nearer expiry is",
        strategy: Strategy { refresh: Refresh::XFetch { beta: 1.0 }, ..COALESCED },
    },
    Preset {
        name: "swr",
        summary: "stale for another minute, and one refresh in the background",
        strategy: Strategy { swr: Duration::from_mins(1), ..COALESCED },
    },
    Preset {
        name: "fallback",
        summary: "stale for six hours if the load fails or is slow",
        strategy: FALLBACK,
    },
    Preset {
        name: "breaker",
        summary: "as fallback, and a source that fails is left alone",
        strategy: Strategy { breaker: Some(Breaker::DEFAULT), ..FALLBACK },
    },
    Preset {
        name: "fallback_ask_first",
        summary: "stale for six hours if the load fails, and everybody asks the source first",
        strategy: Strategy { sie: Duration::from_hours(6), ..SIMPLE },
    },
];

/// A name that no preset has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown strategy `{name}`: {remedy}")]
pub struct UnknownPreset {
    /// The name asked for.
    pub name: String,
    remedy: String,
}

impl Strategy {
    /// The preset with this name.
    pub fn preset(name: &str) -> Result<Self, UnknownPreset> {
        PRESETS.iter().find(|preset| preset.name == name).map(|preset| preset.strategy.clone()).ok_or_else(
            || UnknownPreset {
                name: name.to_owned(),
                remedy: remedy(name, PRESETS.iter().map(|preset| preset.name)),
            },
        )
    }
}
