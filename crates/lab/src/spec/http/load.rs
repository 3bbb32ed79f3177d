//! `[load]` of targets over HTTP.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Deserializer, de::Error as _};
use stockade_cache::spec::{
    Span, TomlError,
    value::{DurationValue, TextValue, bounded_integers},
};
use stockade_load::{
    keys::Keys,
    schedule::Rate,
    settings::RequestSettings,
    targets::log::{HostHeader, ReplayOptions, ReplayedMethods},
};
use toml::Spanned;

#[cfg(feature = "schema")]
use crate::spec::schema::{KeysText, RateText};
use crate::{
    engine::OpenTraffic,
    http::{HttpTraffic, ReplaySettings, RequestFile, RequestPace, RequestPlan, RequestSource},
    spec::{
        engine::OneOrMany,
        load::{self, ArrivalsKey, InFlight, StepTable},
    },
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub(super) struct HttpLoadTable {
    #[cfg_attr(feature = "schema", schemars(with = "Option<RateText>"))]
    rate: Option<Spanned<TextValue<Rate>>>,
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<StepTable>>"))]
    steps: Option<Spanned<Vec<StepTable>>>,
    /// Number of users. Each waits for its answer. A list makes a test of each number. It needs a `duration`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OneOrMany<Connections>>"))]
    connections: Option<Spanned<OneOrMany<Connections>>>,
    /// Requests of an access log. It needs a `duration`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<ReplayTable>"))]
    replay: Option<Spanned<ReplayTable>>,
    #[cfg_attr(feature = "schema", schemars(with = "Option<TextValue<DurationValue>>"))]
    duration: Option<Spanned<TextValue<DurationValue>>>,
    #[cfg_attr(feature = "schema", schemars(with = "Option<ArrivalsKey>"))]
    arrivals: Option<Spanned<ArrivalsKey>>,
    /// Path and query of each request; `{key}` stands for a key.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>", regex(pattern = "^/")))]
    path: Option<Spanned<String>>,
    /// Over HTTP: distribution of the keys in `path`, such as "zipf:200000:0.8", "uniform:1000" or "scan:1000".
    #[cfg_attr(feature = "schema", schemars(with = "Option<KeysText>"))]
    keys: Option<Spanned<TextValue<Keys>>>,
    /// Instead of `path`: the paths of a file of URLs in siege's format.
    #[cfg_attr(feature = "schema", schemars(with = "Option<RequestFileTable>"))]
    urls: Option<Spanned<RequestFileTable>>,
    /// Instead of `path`: the requests of a file of targets in Vegeta's format, with their methods, headers and bodies.
    #[cfg_attr(feature = "schema", schemars(with = "Option<RequestFileTable>"))]
    targets: Option<Spanned<RequestFileTable>>,
    #[cfg_attr(feature = "schema", schemars(with = "Option<InFlight>"))]
    max_in_flight: Option<Spanned<InFlight>>,
    drain: Option<TextValue<DurationValue>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct ReplayTable {
    /// Log in any format that `stockade plan` recognises by its lines, also with gzip.
    log: PathBuf,
    /// Factor of the log's own pace, above 0. Default: 1.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "f64", range(min = 0)))]
    speed: ReplaySpeed,
    /// Share of the log's requests that are sent, above 0 and up to 1. Default: 1.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "f64", range(min = 0, max = 1)))]
    share: ReplayShare,
    /// Methods that are sent: `reads` (GET and HEAD), or `all` without their bodies. Default: `reads`.
    #[serde(default)]
    methods: ReplayMethods,
    /// Send the host of each line as `Host`; connections go to the target all the same. Default: false.
    #[serde(default)]
    hosts: bool,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
enum ReplayMethods {
    #[default]
    Reads,
    All,
}

impl From<ReplayMethods> for ReplayedMethods {
    fn from(methods: ReplayMethods) -> Self {
        match methods {
            ReplayMethods::Reads => Self::Reads,
            ReplayMethods::All => Self::All,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct RequestFileTable {
    /// The file.
    file: PathBuf,
    /// Draw requests at random instead of in order. Default: false.
    #[serde(default)]
    random: bool,
    /// Send the host of each URL as `Host`; connections go to the target all the same. Default: false.
    #[serde(default)]
    hosts: bool,
}

bounded_integers! {
    pub(crate) Connections: 1..=60_000, "1 to 60,000 connections are what one machine can have";
}

/// A factor of the log's own pace.
struct ReplaySpeed(f64);

impl Default for ReplaySpeed {
    fn default() -> Self {
        Self(1.0)
    }
}

impl<'de> Deserialize<'de> for ReplaySpeed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let speed = f64::deserialize(from)?;
        if speed.is_finite() && speed > 0.0 {
            return Ok(Self(speed));
        }
        Err(D::Error::custom("`speed` is how many times as fast it goes: write 2, or 0.5"))
    }
}

/// The share of a log's requests, above 0 and at most 1.
struct ReplayShare(f64);

impl Default for ReplayShare {
    fn default() -> Self {
        Self(1.0)
    }
}

impl<'de> Deserialize<'de> for ReplayShare {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(from)?;
        if share > 0.0 && share <= 1.0 {
            return Ok(Self(share));
        }
        Err(D::Error::custom("`share` is more than 0 and at most 1: write 0.5 for every second request"))
    }
}

impl HttpLoadTable {
    /// The load, or one for each swept number of connections.
    pub(super) fn read(
        &self,
        request: &RequestSettings,
        at: &Span,
    ) -> Result<Vec<(Option<usize>, HttpTraffic)>, TomlError> {
        let has_own = self.replay.is_some() || self.urls.is_some() || self.targets.is_some();
        if has_own && (request.method.is_some() || request.body.is_some()) {
            let message = "`method` and `body` are for a `path`: a log and a file have their own";
            return Err(TomlError::new(message, at.clone()));
        }
        if let Some(message) = request.conflict() {
            return Err(TomlError::new(message, at.clone()));
        }
        let traffic = |requests: RequestPlan| HttpTraffic {
            requests,
            request: request.clone(),
            max_in_flight: self.max_in_flight.as_ref().map(|most| most.get_ref().0),
            drain: self.drain.as_ref().map_or(OpenTraffic::DRAIN, |drain| drain.0.0),
        };
        let mut place = at.clone();
        let read = match (&self.connections, &self.replay) {
            (None, None) => {
                let (schedule, at) = self.pace().schedule(at.clone())?;
                place = at;
                vec![(
                    None,
                    RequestPlan::Generated {
                        source: self.source(place.clone())?,
                        pace: RequestPace::Open(schedule),
                    },
                )]
            }
            (Some(connections), None) => {
                let duration = self.duration("connections", &connections.span())?;
                let source = self.source(at.clone())?;
                let users = connections.get_ref().values(|connections| connections.0);
                let closed = |connections: usize| {
                    let (source, pace) = (source.clone(), RequestPace::Closed { connections, duration });
                    (Some(connections), RequestPlan::Generated { source, pace })
                };
                users.into_iter().map(closed).collect()
            }
            (None, Some(replay)) => {
                let duration = self.duration("replay", &replay.span())?;
                refuse(
                    "a log has requests of its own",
                    [
                        self.path.as_ref().map(Spanned::span),
                        self.keys.as_ref().map(Spanned::span),
                        self.urls.as_ref().or(self.targets.as_ref()).map(Spanned::span),
                    ],
                )?;
                let ReplayTable { log, speed, share, methods, hosts } = replay.get_ref();
                let options =
                    ReplayOptions { hosts: HostHeader::logged_if(*hosts), methods: (*methods).into() };
                let (log, speed, share) = (log.clone(), speed.0, share.0);
                let replay = ReplaySettings { log, speed, share, options, duration };
                vec![(None, RequestPlan::Replayed(replay))]
            }
            (Some(connections), Some(_)) => {
                let message = "a log has a pace of its own: write `connections` or `replay`";
                return Err(TomlError::new(message, Some(connections.span())));
            }
        };
        read.into_iter()
            .map(|(users, requests)| {
                let traffic = traffic(requests);
                let beyond = |beyond: stockade_load::schedule::ScheduleLimitError| {
                    TomlError::new(format!("{beyond}: write a {} time", beyond.remedy()), place.clone())
                };
                traffic.check().map_err(beyond)?;
                Ok((users, traffic))
            })
            .collect()
    }

    fn pace(&self) -> load::PaceKeys<'_> {
        load::PaceKeys {
            rate: self.rate.as_ref(),
            steps: self.steps.as_ref(),
            duration: self.duration.as_ref(),
            arrivals: self.arrivals.as_ref(),
        }
    }

    /// The duration of a closed or replayed load.
    fn duration(&self, what: &str, at: &std::ops::Range<usize>) -> Result<Duration, TomlError> {
        refuse(
            &format!("`{what}` have their own pace"),
            [
                self.rate.as_ref().map(Spanned::span),
                self.steps.as_ref().map(Spanned::span),
                self.arrivals.as_ref().map(Spanned::span),
            ],
        )?;
        let message = "for how long? Write a `duration`, such as \"60s\", next to it";
        let duration = self.duration.as_ref().ok_or_else(|| TomlError::new(message, Some(at.clone())))?;
        Ok(duration.get_ref().0.0)
    }

    fn source(&self, at: Span) -> Result<RequestSource, TomlError> {
        let files = [(RequestFile::Siege, &self.urls), (RequestFile::Vegeta, &self.targets)];
        let files = files.into_iter().filter_map(|(format, table)| Some((format, table.as_ref()?)));
        match (&self.path, files.collect::<Vec<_>>().as_slice()) {
            (Some(path), []) => {
                if !path.get_ref().starts_with('/') {
                    let message = "a path begins with `/`: the proxy's address comes before it";
                    return Err(TomlError::new(message, Some(path.span())));
                }
                let has_place = path.get_ref().contains("{key");
                let keys = self.keys.as_ref().map(|keys| keys.get_ref().0);
                match (&self.keys, has_place) {
                    (Some(keys), false) => {
                        let message = "the path has no place for a key: write `{key}` into it";
                        return Err(TomlError::new(message, Some(keys.span())));
                    }
                    (None, true) => {
                        let message = "the path has a place for a key: write keys = \"zipf:10000\"";
                        return Err(TomlError::new(message, Some(path.span())));
                    }
                    _ => {}
                }
                Ok(RequestSource::Path { path: path.get_ref().clone(), keys })
            }
            (None, [(format, table)]) => {
                if let Some(keys) = &self.keys {
                    return Err(TomlError::new(
                        "a file of requests has no place for keys",
                        Some(keys.span()),
                    ));
                }
                let RequestFileTable { file, random, hosts } = table.get_ref();
                let (file, is_random, hosts) = (file.clone(), *random, HostHeader::logged_if(*hosts));
                Ok(RequestSource::File { format: *format, file, is_random, hosts })
            }
            (_, [(_, table), ..]) => Err(TomlError::new(
                "a load has one of `path`, `urls` and `targets`: leave the others out",
                Some(table.span()),
            )),
            (None, []) => Err(TomlError::new(
                "the load has no requests: write path = \"/news\", or urls or targets",
                at,
            )),
        }
    }
}

/// Refuses the first of these keys that is present.
fn refuse(why: &str, places: [Span; 3]) -> Result<(), TomlError> {
    match places.into_iter().flatten().next() {
        Some(at) => Err(TomlError::new(format!("{why}: leave this out"), Some(at))),
        None => Ok(()),
    }
}
