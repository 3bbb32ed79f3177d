//! The result of one request in a cache.

use std::ops::AddAssign;

use crate::telemetry::{Declaration, MetricKind, MetricUnit};

macro_rules! outcomes {
    ($($(#[doc = $help:literal])+ $variant:ident $count:ident,)*) => {
        /// The result of one request in a cache.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
        pub enum Outcome {
            $($(#[doc = $help])+ $variant,)*
        }

        impl Outcome {
            /// Every outcome.
            pub const ALL: [Self; [$(stringify!($variant)),*].len()] = [$(Self::$variant),*];

            /// In one word, as reports and `Cache-Status` write it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($count),)*
                }
            }
        }

        /// The number of requests by outcome.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
        pub struct Outcomes {
            $($(#[doc = $help])+ pub $count: u64,)*
            /// Requests that the cache answered without telling an outcome. Not a hit, a miss or a bypass: it is not known.
            #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_zero"))]
            pub unreported: u64,
        }

        impl Outcomes {
            /// The metric of each outcome.
            pub const METRICS: &'static [Declaration<Self>] = &[$(Declaration {
                field: stringify!($count),
                family: "stockade_requests_total",
                label: Some(("outcome", stringify!($count))),
                kind: MetricKind::Counter,
                unit: MetricUnit::Count,
                help: concat!($($help),+),
                read: |outcomes| Some(outcomes.$count as f64),
            }),*];

            /// The number of requests with this outcome.
            #[must_use]
            pub const fn of(&self, outcome: Outcome) -> u64 {
                match outcome {
                    $(Outcome::$variant => self.$count,)*
                }
            }

            /// The number of requests with this outcome, mutable.
            pub fn of_mut(&mut self, outcome: Outcome) -> &mut u64 {
                match outcome {
                    $(Outcome::$variant => &mut self.$count,)*
                }
            }

            /// Counts one request.
            pub fn record(&mut self, outcome: Outcome) {
                *self.of_mut(outcome) += 1;
            }
        }

        impl AddAssign for Outcomes {
            fn add_assign(&mut self, other: Self) {
                $(self.$count += other.$count;)*
                self.unreported += other.unreported;
            }
        }
    };
}

outcomes! {
    /// Fresh, no wait.
    Hit hit,
    /// Past its ttl; no load was awaited.
    Stale stale,
    /// The caller's own load answered.
    Miss miss,
    /// Another caller's load answered.
    Coalesced coalesced,
    /// Stale, because the load failed, took too long or was not allowed to begin.
    Fallback fallback,
    /// A stored not-found.
    Negative negative,
    /// Nothing could be served.
    Error error,
    /// No lookup was made.
    Bypass bypass,
}

#[cfg(feature = "serde")]
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Outcomes {
    /// All requests, those without a known outcome included.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.reported() + self.unreported
    }

    /// Requests with a known outcome.
    #[must_use]
    pub fn reported(&self) -> u64 {
        Outcome::ALL.into_iter().map(|outcome| self.of(outcome)).sum()
    }

    /// False if the cache told no outcome, so that errors are all that is known.
    #[must_use]
    pub fn are_known(&self) -> bool {
        self.unreported == 0 || self.reported() > self.error
    }

    /// Hits / lookups of the requests with a known outcome; `None`: there was no lookup.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        let lookups = self.reported() - self.bypass;
        (lookups > 0).then(|| self.hit as f64 / lookups as f64)
    }
}
