//! `[load]`: a burst or an open load.

use std::time::Duration;

use serde::{
    Deserialize, Deserializer,
    de::{self, Error as _, MapAccess, value::MapAccessDeserializer},
};
use stockade_cache::{
    Invalidation,
    spec::{
        Span, TomlError,
        value::{DurationValue, TextValue, bounded_integers},
    },
};
use stockade_load::schedule::{ArrivalProcess, Rate, Schedule, Step};
use toml::Spanned;

#[cfg(feature = "schema")]
use super::schema::{PopularityForms, RateText};
use super::{
    KeySpans,
    engine::{OneOrMany, Workers},
};
use crate::engine::{ClientRetries, DocumentCount, OpenTraffic, Popularity, TrafficLimitError, Writes};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub(super) struct EngineLoadTable {
    /// Number of workers that each request one document, all at once. A list makes a test of each number.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OneOrMany<Workers>>"))]
    burst: Option<Spanned<OneOrMany<Workers>>>,
    /// Documents that a burst chooses from: "fixed:K", or "scaled" with the number of workers. Default: "scaled".
    #[cfg_attr(feature = "schema", schemars(with = "Option<OneOrMany<TextValue<DocumentCount>>>"))]
    docs: Option<Spanned<OneOrMany<TextValue<DocumentCount>>>>,
    /// True: the workers of a burst send their requests at the same moment. Default: true.
    #[cfg_attr(feature = "schema", schemars(with = "Option<bool>"))]
    barrier: Option<Spanned<bool>>,
    /// Requests per period, such as "425/s", "1000/m" or "5/100ms". It needs a `duration`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<RateText>"))]
    rate: Option<Spanned<TextValue<Rate>>>,
    /// Instead of `rate` and `duration`: rates one after the other.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<StepTable>>"))]
    steps: Option<Spanned<Vec<StepTable>>>,
    /// Length of the load.
    #[cfg_attr(feature = "schema", schemars(with = "Option<TextValue<DurationValue>>"))]
    duration: Option<Spanned<TextValue<DurationValue>>>,
    /// `constant`: evenly spaced. `poisson`: at random. Default: "constant".
    #[cfg_attr(feature = "schema", schemars(with = "Option<ArrivalsKey>"))]
    arrivals: Option<Spanned<ArrivalsKey>>,
    /// Engine: number of documents that are requested. Default: all.
    #[cfg_attr(feature = "schema", schemars(with = "Option<KeyCount>"))]
    keys: Option<Spanned<KeyCount>>,
    /// "uniform", or { zipf = 0.99 }: the weight of the k-th key is 1 / k^0.99. Default: "uniform".
    #[cfg_attr(feature = "schema", schemars(with = "Option<PopularityForms>"))]
    popularity: Option<Spanned<PopularityTable>>,
    /// Load every key once before the start, uncounted. Default: false.
    #[cfg_attr(feature = "schema", schemars(with = "Option<bool>"))]
    warm: Option<Spanned<bool>>,
    /// How long a client waits for an attempt, above 0. Default: no limit; over HTTP "30s".
    #[cfg_attr(feature = "schema", schemars(with = "Option<TextValue<DurationValue>>"))]
    timeout: Option<Spanned<TextValue<DurationValue>>>,
    /// More attempts of a client. Default: none.
    #[cfg_attr(feature = "schema", schemars(with = "Option<RetriesTable>"))]
    retries: Option<Spanned<RetriesTable>>,
    /// Requests in flight. Beyond it, the engine drops a request, and over HTTP it waits, and the run is invalid. Default: 100000; over HTTP
    /// rate times timeout, 10000 at least.
    #[cfg_attr(feature = "schema", schemars(with = "Option<InFlight>"))]
    max_in_flight: Option<Spanned<InFlight>>,
    /// How long answers count after the end. Default: "30s".
    #[cfg_attr(feature = "schema", schemars(with = "Option<TextValue<DurationValue>>"))]
    drain: Option<Spanned<TextValue<DurationValue>>>,
    /// Documents that change during the load. Default: none.
    #[cfg_attr(feature = "schema", schemars(with = "Option<WritesTable>"))]
    writes: Option<Spanned<WritesTable>>,
}

#[derive(Clone, Copy)]
pub(super) struct PaceKeys<'a> {
    pub(super) rate: Option<&'a Spanned<TextValue<Rate>>>,
    pub(super) steps: Option<&'a Spanned<Vec<StepTable>>>,
    pub(super) duration: Option<&'a Spanned<TextValue<DurationValue>>>,
    pub(super) arrivals: Option<&'a Spanned<ArrivalsKey>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub(super) struct StepTable {
    /// Requests per period.
    #[cfg_attr(feature = "schema", schemars(with = "RateText"))]
    rate: TextValue<Rate>,
    /// Length of the step, above 0.
    #[serde(rename = "for")]
    #[cfg_attr(feature = "schema", schemars(with = "TextValue<DurationValue>"))]
    lasts: Spanned<TextValue<DurationValue>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub(super) enum ArrivalsKey {
    Constant,
    Poisson,
}

#[derive(Clone, Copy)]
pub(super) struct PopularityTable(Popularity);

impl PopularityTable {
    pub(super) fn read(&self) -> Popularity {
        self.0
    }
}

impl<'de> Deserialize<'de> for PopularityTable {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct ZipfTable {
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
                let ZipfTable { zipf: Exponent(exponent) } =
                    ZipfTable::deserialize(MapAccessDeserializer::new(map))?;
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct RetriesTable {
    /// Attempts after the first, 1 to 100.
    most: Attempts,
    /// Wait before each of them. Default: "0".
    #[serde(default)]
    backoff: TextValue<DurationValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct WritesTable {
    /// Time between two writes, at least "1us".
    every: TextValue<DurationValue>,
    /// `hard`: the old value is removed. `soft`: it becomes stale.
    invalidate: InvalidateName,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub(super) enum InvalidateName {
    Hard,
    Soft,
}

impl InvalidateName {
    pub(super) fn read(self) -> Invalidation {
        match self {
            Self::Hard => Invalidation::Hard,
            Self::Soft => Invalidation::Soft,
        }
    }
}

/// The parsed table. The arm supplies the target of an open load.
pub(super) enum LoadSpec {
    Burst { docs: Vec<DocumentCount>, bursts: Vec<usize>, barrier: bool },
    Open(OpenTraffic),
}

bounded_integers! {
    pub(crate) KeyCount: 1.., "a load is for one key at least";
    pub(crate) InFlight: 1.., "one request at least may be under way";
    pub(crate) Attempts: 1..=100, "a client makes 1 to 100 more attempts; without `retries` none";
}

/// A key and its place.
type KeySpan = (&'static str, Span);

fn place<T>(name: &'static str, value: Option<&Spanned<T>>) -> Option<KeySpan> {
    value.map(|value| (name, Some(value.span())))
}

fn plain(text: &Spanned<TextValue<DurationValue>>) -> Duration {
    text.get_ref().0.0
}

impl EngineLoadTable {
    pub(super) fn load(&self, at: Span) -> Result<LoadSpec, TomlError> {
        match (&self.burst, self.of_an_open_load()) {
            (None, None) => Err(TomlError {
                message: "the load is neither a burst nor a rate".to_owned(),
                span: at.or(self.of_a_burst().and_then(|(_, at)| at)),
                help: Some("write burst = 1000, or rate = \"425/s\" and duration = \"60s\"".to_owned()),
            }),
            (Some(burst), None) => Ok(LoadSpec::Burst {
                docs: self
                    .docs
                    .as_ref()
                    .map_or(vec![DocumentCount::Scaled], |docs| docs.get_ref().values(|text| text.0)),
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

    fn of_a_burst(&self) -> Option<KeySpan> {
        place("docs", self.docs.as_ref()).or(place("barrier", self.barrier.as_ref()))
    }

    fn of_an_open_load(&self) -> Option<KeySpan> {
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

    fn open(&self, at: Span) -> Result<OpenTraffic, TomlError> {
        let popularity = self.popularity.as_ref();
        let retries = self.retries.as_ref().map(Spanned::get_ref);
        if let Some(timeout) = self.timeout.as_ref().filter(|timeout| plain(timeout).is_zero()) {
            let message = "a timeout of zero fails every request: write more, or leave `timeout` out";
            return Err(TomlError::new(message, Some(timeout.span())));
        }
        let pace = PaceKeys {
            rate: self.rate.as_ref(),
            steps: self.steps.as_ref(),
            duration: self.duration.as_ref(),
            arrivals: self.arrivals.as_ref(),
        };
        let (schedule, at) = pace.schedule(at)?;
        let traffic = OpenTraffic {
            schedule,
            keys: self.keys.as_ref().map(|keys| keys.get_ref().0),
            popularity: popularity.map_or(Popularity::Uniform, |popularity| popularity.get_ref().read()),
            warm: self.warm.as_ref().is_some_and(|warm| *warm.get_ref()),
            timeout: self.timeout.as_ref().map(plain),
            retries: retries.map_or(ClientRetries::default(), |table| ClientRetries {
                most: u32::try_from(table.most.0).unwrap_or(u32::MAX),
                backoff: table.backoff.0.0,
            }),
            max_in_flight: self
                .max_in_flight
                .as_ref()
                .map_or(OpenTraffic::MAX_IN_FLIGHT, |most| most.get_ref().0),
            drain: self.drain.as_ref().map_or(OpenTraffic::DRAIN, plain),
            writes: self.writes.as_ref().map(writes).transpose()?,
        };
        traffic.check().map_err(|error| match error {
            TrafficLimitError::Schedule(limit) => {
                TomlError::new(format!("{limit}: write a {} time", limit.remedy()), at)
            }
            other => TomlError::new(other.to_string(), self.writes.as_ref().map(Spanned::span)),
        })?;
        Ok(traffic)
    }

    /// The places of numbers that may be too large for a source or a machine.
    pub(super) fn spans(&self) -> KeySpans {
        KeySpans {
            keys: self.keys.as_ref().map(Spanned::span),
            max_in_flight: self.max_in_flight.as_ref().map(Spanned::span),
        }
    }
}

impl PaceKeys<'_> {
    /// The schedule and the place of its duration.
    pub(super) fn schedule(self, at: Span) -> Result<(Schedule, Span), TomlError> {
        let arrivals = match self.arrivals.map(|arrivals| *arrivals.get_ref()) {
            None | Some(ArrivalsKey::Constant) => ArrivalProcess::Constant,
            Some(ArrivalsKey::Poisson) => ArrivalProcess::Poisson,
        };
        let (steps, at) = match (self.rate, self.steps, self.duration) {
            (Some(rate), None, Some(duration)) => {
                (vec![Step::steady(rate.get_ref().0, plain(duration))], Some(duration.span()))
            }
            (None, Some(steps), None) => {
                if let Some(step) = steps.get_ref().iter().find(|step| plain(&step.lasts).is_zero()) {
                    let message =
                        "a step of zero length has no requests: write a longer time, or leave the step out";
                    return Err(TomlError::new(message, Some(step.lasts.span())));
                }
                let step = |step: &StepTable| Step::steady(step.rate.0, plain(&step.lasts));
                (steps.get_ref().iter().map(step).collect(), Some(steps.span()))
            }
            (Some(_), Some(steps), _) => {
                return Err(TomlError::new("a load has a `rate` or `steps`, not both", Some(steps.span())));
            }
            (None, Some(_), Some(duration)) => {
                let message = "steps have durations of their own: leave `duration` out";
                return Err(TomlError::new(message, Some(duration.span())));
            }
            (Some(rate), None, None) => {
                let message = "for how long? Write a `duration`, such as \"60s\", next to the rate";
                return Err(TomlError::new(message, Some(rate.span())));
            }
            (None, None, _) => {
                let message = "the load has no rate: write rate = \"425/s\" and duration = \"60s\", or steps";
                return Err(TomlError::new(message, at));
            }
        };
        let steps = steps.into_iter().map(|step| step.with_arrivals(arrivals)).collect();
        Ok((Schedule::new(steps), at))
    }
}

fn writes(table: &Spanned<WritesTable>) -> Result<Writes, TomlError> {
    let WritesTable { every, invalidate } = table.get_ref();
    let every = every.0.0;
    if every < Duration::from_micros(1) {
        return Err(TomlError::new("writes come one after the other: 1us apart or more", Some(table.span())));
    }
    Ok(Writes { every, invalidation: invalidate.read() })
}

fn other(key: &str, span: Span, of: &str, this: &str) -> TomlError {
    TomlError {
        message: format!("`{key}` is for {of}, and this load is {this}"),
        span,
        help: Some(
            "a load has a `burst`, or a `rate` or `steps`: leave out what belongs to the other".to_owned(),
        ),
    }
}
