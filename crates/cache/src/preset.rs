//! Named strategies: the registry.

use std::time::Duration;

use stockade_model::nearest::remedy;

use crate::strategy::{Fetch, Load, Store, Strategy, Writer};

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
const NONE: Strategy = Strategy {
    fetch: Fetch::Independent,
    load: Load::DEFAULT,
    store: Store::Sync,
    ttl: None,
    writer: Writer::Direct,
    limit: None,
};

/// Every named strategy. The first four are those of Kazoo's published load test
/// (2600hz/kazoo, `kzs_loadtest`).
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
