//! `[load]`, as it is written: a burst, or an open load.

use std::time::Duration;

use serde::{
    Deserialize, Deserializer,
    de::{self, Error as _, MapAccess, value::MapAccessDeserializer},
};
use stockade_cache::{
    Invalidation,
    spec::{
        Place, Wrong,
        written::{Plain, Text, counted},
    },
};
use stockade_load::schedule::{self, Arrivals, REQUESTS_MAX, Rate, Schedule, Step};
use toml::Spanned;

use super::{
    Places,
    setup::{OneOrMany, Workers},
};
use crate::engine::{Docs, Popularity, Retries, Traffic, Writes};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadTable {
    burst: Option<Spanned<OneOrMany<Workers>>>,
    docs: Option<Spanned<OneOrMany<Text<Docs>>>>,
    barrier: Option<Spanned<bool>>,
    rate: Option<Spanned<Text<Rate>>>,
    steps: Option<Spanned<Vec<StepTable>>>,
    duration: Option<Spanned<Text<Plain>>>,
    arrivals: Option<Spanned<ArrivalsName>>,
    keys: Option<Spanned<KeyCount>>,
    popularity: Option<Spanned<PopularityTable>>,
    warm: Option<Spanned<bool>>,
    timeout: Option<Spanned<Text<Plain>>>,
    retries: Option<Spanned<RetriesTable>>,
    max_in_flight: Option<Spanned<InFlight>>,
    drain: Option<Spanned<Text<Plain>>>,
    writes: Option<Spanned<WritesTable>>,
}

/// When requests are due, as it is written.
#[derive(Clone, Copy)]
pub(super) struct Pace<'a> {
    pub(super) rate: Option<&'a Spanned<Text<Rate>>>,
    pub(super) steps: Option<&'a Spanned<Vec<StepTable>>>,
    pub(super) duration: Option<&'a Spanned<Text<Plain>>>,
    pub(super) arrivals: Option<&'a Spanned<ArrivalsName>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepTable {
    rate: Text<Rate>,
    #[serde(rename = "for")]
    lasts: Spanned<Text<Plain>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ArrivalsName {
    Constant,
    Poisson,
}

#[derive(Clone, Copy)]
struct PopularityTable(Popularity);

impl<'de> Deserialize<'de> for PopularityTable {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Law {
            zipf: Exponent,
        }
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Popularity;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("\"uniform\" or { zipf = 0.99 }")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Popularity, E> {
                match text {
                    "uniform" => Ok(Popularity::Uniform),
                    "zipf" => Err(E::custom("Zipf's law has an exponent: write { zipf = 0.99 }")),
                    _ => Err(E::unknown_variant(text, &["uniform", "{ zipf = 0.99 }"])),
                }
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Popularity, A::Error> {
                let Law { zipf: Exponent(exponent) } = Law::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Popularity::Zipf { exponent })
            }
        }
        from.deserialize_any(Visitor).map(Self)
    }
}

#[derive(Clone, Copy)]
struct Exponent(f64);

impl<'de> Deserialize<'de> for Exponent {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let exponent = f64::deserialize(from)?;
        if !(0.0..=10.0).contains(&exponent) {
            return Err(D::Error::custom("Zipf's exponent is from 0 (all alike) to 10; about 1 is usual"));
        }
        Ok(Self(exponent))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RetriesTable {
    most: Attempts,
    #[serde(default)]
    backoff: Text<Plain>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WritesTable {
    every: Text<Plain>,
    invalidate: InvalidateName,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum InvalidateName {
    Hard,
    Soft,
}

/// What the table means; whom an open load asks is for the arm to say.
pub(super) enum LoadSpec {
    Burst { docs: Vec<Docs>, bursts: Vec<usize>, barrier: bool },
    Open(Traffic),
}

counted! {
    /// How many keys a load is for.
    KeyCount: 1.., "a load is for one key at least";
    /// How many requests may be under way.
    InFlight: 1.., "one request at least may be under way";
    /// How many more attempts a client makes.
    Attempts: 1..=100, "a client makes 1 to 100 more attempts; without `retries` none";
}

/// A key that is there, and where.
type Written = (&'static str, Place);

fn place<T>(name: &'static str, value: Option<&Spanned<T>>) -> Option<Written> {
    value.map(|value| (name, Some(value.span())))
}

fn plain(text: &Spanned<Text<Plain>>) -> Duration {
    text.get_ref().0.0
}

impl LoadTable {
    pub(super) fn load(&self, at: Place) -> Result<LoadSpec, Wrong> {
        match (&self.burst, self.of_an_open_load()) {
            (None, None) => Err(Wrong {
                message: "the load is neither a burst nor a rate".to_owned(),
                at: at.or(self.of_a_burst().and_then(|(_, at)| at)),
                help: Some("write burst = 1000, or rate = \"425/s\" and duration = \"60s\"".to_owned()),
            }),
            (Some(burst), None) => Ok(LoadSpec::Burst {
                docs: self
                    .docs
                    .as_ref()
                    .map_or(vec![Docs::Scaled], |docs| docs.get_ref().values(|text| text.0)),
                bursts: burst.get_ref().values(|workers| workers.0),
                barrier: self.barrier.as_ref().is_none_or(|barrier| *barrier.get_ref()),
            }),
            (Some(_), Some((key, at))) => Err(other(key, at, "an open load", "a burst")),
            (None, Some(_)) => {
                if let Some((key, at)) = self.of_a_burst() {
                    return Err(other(key, at, "a burst", "an open load"));
                }
                Ok(LoadSpec::Open(self.open(at)?))
            }
        }
    }

    fn of_a_burst(&self) -> Option<Written> {
        place("docs", self.docs.as_ref()).or(place("barrier", self.barrier.as_ref()))
    }

    fn of_an_open_load(&self) -> Option<Written> {
        place("rate", self.rate.as_ref())
            .or(place("steps", self.steps.as_ref()))
            .or(place("duration", self.duration.as_ref()))
            .or(place("arrivals", self.arrivals.as_ref()))
            .or(place("keys", self.keys.as_ref()))
            .or(place("popularity", self.popularity.as_ref()))
            .or(place("warm", self.warm.as_ref()))
            .or(place("timeout", self.timeout.as_ref()))
            .or(place("retries", self.retries.as_ref()))
            .or(place("max_in_flight", self.max_in_flight.as_ref()))
            .or(place("drain", self.drain.as_ref()))
            .or(place("writes", self.writes.as_ref()))
    }

    fn open(&self, at: Place) -> Result<Traffic, Wrong> {
        let popularity = self.popularity.as_ref();
        let retries = self.retries.as_ref().map(Spanned::get_ref);
        if let Some(timeout) = self.timeout.as_ref().filter(|timeout| plain(timeout).is_zero()) {
            let message = "nobody can be answered in no time: write more, or leave `timeout` out";
            return Err(Wrong::new(message, Some(timeout.span())));
        }
        let pace = Pace {
            rate: self.rate.as_ref(),
            steps: self.steps.as_ref(),
            duration: self.duration.as_ref(),
            arrivals: self.arrivals.as_ref(),
        };
        let (schedule, at) = pace.schedule(at)?;
        let traffic = Traffic {
            schedule,
            keys: self.keys.as_ref().map(|keys| keys.get_ref().0),
            popularity: popularity.map_or(Popularity::Uniform, |popularity| popularity.get_ref().0),
            warm: self.warm.as_ref().is_some_and(|warm| *warm.get_ref()),
            timeout: self.timeout.as_ref().map(plain),
            retries: retries.map_or(Retries::default(), |table| Retries {
                most: u32::try_from(table.most.0).unwrap_or(u32::MAX),
                backoff: table.backoff.0.0,
            }),
            max_in_flight: self
                .max_in_flight
                .as_ref()
                .map_or(Traffic::MAX_IN_FLIGHT, |most| most.get_ref().0),
            drain: self.drain.as_ref().map_or(Traffic::DRAIN, plain),
            writes: self.writes.as_ref().map(writes).transpose()?,
        };
        check(&traffic).map_err(|beyond| match beyond {
            Beyond::Writes => Wrong::new(beyond.to_string(), self.writes.as_ref().map(Spanned::span)),
            Beyond::Load(load) => Wrong::new(format!("{load}: write a {} time", load.remedy()), at),
        })?;
        Ok(traffic)
    }

    /// Where the number is written that a source or a machine may find too large.
    pub(super) fn places(&self) -> Places {
        Places {
            keys: self.keys.as_ref().map(Spanned::span),
            max_in_flight: self.max_in_flight.as_ref().map(Spanned::span),
        }
    }
}

impl Pace<'_> {
    /// The schedule, and where the time is written that it takes.
    pub(super) fn schedule(self, at: Place) -> Result<(Schedule, Place), Wrong> {
        let arrivals = match self.arrivals.map(|arrivals| *arrivals.get_ref()) {
            None | Some(ArrivalsName::Constant) => Arrivals::Constant,
            Some(ArrivalsName::Poisson) => Arrivals::Poisson,
        };
        let (steps, at) = match (self.rate, self.steps, self.duration) {
            (Some(rate), None, Some(duration)) => {
                (vec![Step::steady(rate.get_ref().0, plain(duration))], Some(duration.span()))
            }
            (None, Some(steps), None) => {
                if let Some(step) = steps.get_ref().iter().find(|step| plain(&step.lasts).is_zero()) {
                    let message = "nobody comes in no time: write a longer time, or leave the step out";
                    return Err(Wrong::new(message, Some(step.lasts.span())));
                }
                let step = |step: &StepTable| Step::steady(step.rate.0, plain(&step.lasts));
                (steps.get_ref().iter().map(step).collect(), Some(steps.span()))
            }
            (Some(_), Some(steps), _) => {
                return Err(Wrong::new("a load has a `rate` or `steps`, not both", Some(steps.span())));
            }
            (None, Some(_), Some(duration)) => {
                let message = "steps say themselves how long they take: leave `duration` out";
                return Err(Wrong::new(message, Some(duration.span())));
            }
            (Some(rate), None, None) => {
                let message = "for how long? Write a `duration`, such as \"60s\", beside the rate";
                return Err(Wrong::new(message, Some(rate.span())));
            }
            (None, None, _) => {
                let message = "at what rate? Write rate = \"425/s\" and duration = \"60s\", or steps";
                return Err(Wrong::new(message, at));
            }
        };
        let steps = steps.into_iter().map(|step| step.arriving(arrivals)).collect();
        Ok((Schedule::new(steps), at))
    }
}

/// More than anybody waits for, or nothing at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Beyond {
    #[error(transparent)]
    Load(#[from] schedule::Beyond),
    #[error("more than 1,000,000,000 requests and writes: write a longer time between writes")]
    Writes,
}

impl Beyond {
    /// What a load is that was scaled too far.
    pub(super) fn scaled(self) -> String {
        match self {
            Self::Load(nobody @ schedule::Beyond::Nobody) => format!("so short that {nobody}"),
            Self::Load(beyond) => beyond.to_string(),
            Self::Writes => "more than 1,000,000,000 requests and writes".to_owned(),
        }
    }
}

/// Whether there can be so much of it.
pub(super) fn check(traffic: &Traffic) -> Result<(), Beyond> {
    traffic.schedule.check()?;
    if traffic.schedule.requests().saturating_add(traffic.writes_due()) > REQUESTS_MAX {
        return Err(Beyond::Writes);
    }
    Ok(())
}

fn writes(table: &Spanned<WritesTable>) -> Result<Writes, Wrong> {
    let WritesTable { every, invalidate } = table.get_ref();
    let every = every.0.0;
    if every < Duration::from_micros(1) {
        return Err(Wrong::new("writes come one after the other: 1us apart or more", Some(table.span())));
    }
    let invalidation = match invalidate {
        InvalidateName::Hard => Invalidation::Hard,
        InvalidateName::Soft => Invalidation::Soft,
    };
    Ok(Writes { every, invalidation })
}

fn other(key: &str, at: Place, of: &str, this: &str) -> Wrong {
    Wrong {
        message: format!("`{key}` is for {of}, and this load is {this}"),
        at,
        help: Some(
            "a load has a `burst`, or a `rate` or `steps`: leave out what belongs to the other".to_owned(),
        ),
    }
}
