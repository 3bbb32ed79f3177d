//! The base of an experiment, with a test and an arm laid over it.

use std::marker::PhantomData;

use serde::{
    Deserialize, Deserializer,
    de::{
        self, IntoDeserializer, SeqAccess,
        value::{SeqAccessDeserializer, StrDeserializer},
    },
};
use stockade_cache::{
    Strategy,
    spec::{Place, Wrong, written::counted},
};
use stockade_model::record::Clock;
use toml::Spanned;

use super::{
    Cell, Subject,
    cache::{self, Cache},
    load::{LoadSpec, LoadTable},
    node_test::Taken,
    origin::Origin,
};
use crate::engine::{self, Burst, Docs, Open, SharedTier};

/// The tables of the base.
pub(super) const SECTIONS: [&str; 6] = ["target", "origin", "cache", "proxy", "load", "preflight"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Setup {
    target: Target,
    #[serde(default)]
    origin: Origin,
    cache: Option<Spanned<Cache>>,
    load: Spanned<LoadTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    #[expect(dead_code, reason = "there is one kind so far, and a file has to say that it means it")]
    kind: Kind,
    clock: Option<Spanned<ClockName>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ClockName {
    Live,
    Virtual,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Engine,
}

impl Setup {
    /// Every combination that the test sweeps over, with its path: what has one value is not in it.
    /// `node_test` stands in place of a cache.
    pub(super) fn cells(&self, test: &str, arm: &str, node_test: Option<&Taken>) -> Result<Vec<Cell>, Wrong> {
        let conduct = self.origin.conduct()?;
        let clock = self.clock()?;
        let strategy = match &self.cache {
            Some(cache) => cache::strategy(cache.get_ref(), Some(cache.span()))?,
            None => Strategy::preset("none").expect("it is a preset"),
        };
        let shared = match (node_test, &self.cache) {
            (Some(taken), _) => taken.shared.clone(),
            (None, Some(cache)) => cache::shared(cache.get_ref())?,
            (None, None) => None,
        };
        let cell = |path: String, load: engine::Load| Cell {
            test: path,
            arm: arm.to_owned(),
            clock,
            subject: Subject::Engine { source: self.origin.source.0.clone(), load },
            places: self.load.get_ref().places(),
        };
        let (docs, bursts, barrier) = match self.load.get_ref().load(Some(self.load.span()))? {
            LoadSpec::Burst { docs, bursts, barrier } => (docs, bursts, barrier),
            LoadSpec::Open(traffic) => {
                self.origin.check_within(traffic.schedule.lasts())?;
                let cache = || engine::Target::Cache(Box::new(strategy));
                let target = node_test.map_or_else(cache, |taken| engine::Target::NodeTest(taken.test));
                let shared = shared.map(|(tier, at)| live_only(clock, tier, at)).transpose()?;
                let open = Open { name: arm.to_owned(), target, shared, conduct, traffic };
                return Ok(vec![cell(test.to_owned(), engine::Load::Open(open))]);
            }
        };
        if let Some(Taken { at, .. }) = node_test {
            let message = "this strategy is for open loads: write a `rate` and a `duration` into [load]";
            return Err(Wrong::new(message, at.clone()));
        }
        if let Some((_, at)) = shared {
            let message = "a shared tier is for open loads: write a `rate` and a `duration` into [load]";
            return Err(Wrong::new(message, at));
        }
        let path = |rule: Docs, workers: usize| {
            let mut parts = vec![test.to_owned()];
            parts.extend((docs.len() > 1).then(|| rule.to_string()));
            parts.extend((bursts.len() > 1).then(|| workers.to_string()));
            parts.retain(|part| !part.is_empty());
            parts.join("/")
        };
        let burst = |docs: Docs, workers: usize| Burst {
            name: arm.to_owned(),
            strategy: strategy.clone(),
            workers,
            barrier,
            docs,
            conduct: conduct.clone(),
        };
        let combine = |rule: &Docs| {
            let rule = *rule;
            let cell =
                |workers: &usize| cell(path(rule, *workers), engine::Load::Burst(burst(rule, *workers)));
            bursts.iter().map(cell).collect::<Vec<_>>()
        };
        Ok(docs.iter().flat_map(combine).collect())
    }

    /// As it is written, or as the source has it.
    fn clock(&self) -> Result<Clock, Wrong> {
        let is_simulated = self.origin.source.0.kind().is_simulated;
        match &self.target.clock {
            None if is_simulated => Ok(Clock::Virtual),
            None => Ok(Clock::Live),
            Some(clock) => match clock.get_ref() {
                ClockName::Live => Ok(Clock::Live),
                ClockName::Virtual if is_simulated => Ok(Clock::Virtual),
                ClockName::Virtual => Err(Wrong {
                    message: "a real source answers in real time".to_owned(),
                    at: Some(clock.span()),
                    help: Some("write clock = \"live\", or [origin] source = \"simulated:\"".to_owned()),
                }),
            },
        }
    }
}

/// A shared tier, where time is real.
fn live_only(clock: Clock, tier: SharedTier, at: Place) -> Result<SharedTier, Wrong> {
    match clock {
        Clock::Live => Ok(tier),
        Clock::Virtual => Err(Wrong {
            message: "a shared tier answers in real time".to_owned(),
            at,
            help: Some("write clock = \"live\" into [target], or name a real source in [origin]".to_owned()),
        }),
    }
}

counted! {
    /// How many workers a burst has.
    Workers: 1.., "a burst has one worker at least";
}

/// One value, or a list of them to sweep over.
pub(super) struct OneOrMany<T>(Vec<T>);

impl<T> OneOrMany<T> {
    /// Every value, as what it stands for.
    pub(super) fn values<U>(&self, of: impl Fn(&T) -> U) -> Vec<U> {
        self.0.iter().map(of).collect()
    }
}

impl<'de, T: Deserialize<'de> + PartialEq> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de> + PartialEq> de::Visitor<'de> for Visitor<T> {
            type Value = Vec<T>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a value or a list of values")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
                Ok(vec![T::deserialize(StrDeserializer::new(text))?])
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Vec<T>, E> {
                Ok(vec![T::deserialize(number.into_deserializer())?])
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Vec<T>, A::Error> {
                let values: Vec<T> = Vec::deserialize(SeqAccessDeserializer::new(list))?;
                if values.is_empty() {
                    return Err(de::Error::custom("the list is empty"));
                }
                if (1..values.len()).any(|i| values[..i].contains(&values[i])) {
                    return Err(de::Error::custom("the list has a value twice"));
                }
                Ok(values)
            }
        }
        from.deserialize_any(Visitor(PhantomData)).map(Self)
    }
}
