//! `[load]` of a run over HTTP, as it is written.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Deserializer, de::Error as _};
use stockade_cache::spec::{
    Place, Wrong,
    written::{Plain, Text, counted},
};
use stockade_load::{schedule::Rate, traffic::Keys};
use toml::Spanned;

use crate::{
    engine::Traffic as EngineTraffic,
    http::{Of, Pace, Replay, Requests, Traffic},
    spec::{
        load::{self, ArrivalsName, InFlight, StepTable},
        setup::OneOrMany,
    },
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadTable {
    rate: Option<Spanned<Text<Rate>>>,
    steps: Option<Spanned<Vec<StepTable>>>,
    connections: Option<Spanned<OneOrMany<Connections>>>,
    replay: Option<Spanned<ReplayTable>>,
    duration: Option<Spanned<Text<Plain>>>,
    arrivals: Option<Spanned<ArrivalsName>>,
    path: Option<Spanned<String>>,
    keys: Option<Spanned<Text<Keys>>>,
    urls: Option<Spanned<UrlsTable>>,
    cache_bust: Option<bool>,
    timeout: Option<Spanned<Text<Plain>>>,
    max_in_flight: Option<Spanned<InFlight>>,
    drain: Option<Text<Plain>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplayTable {
    log: PathBuf,
    #[serde(default)]
    speed: Speed,
    #[serde(default)]
    share: Share,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UrlsTable {
    file: PathBuf,
    #[serde(default)]
    random: bool,
}

counted! {
    /// How many ask at once.
    Connections: 1..=60_000, "1 to 60,000 connections are what one machine can have";
}

/// So many times as fast.
struct Speed(f64);

impl Default for Speed {
    fn default() -> Self {
        Self(1.0)
    }
}

impl<'de> Deserialize<'de> for Speed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let speed = f64::deserialize(from)?;
        if speed.is_finite() && speed > 0.0 {
            return Ok(Self(speed));
        }
        Err(D::Error::custom("`speed` is how many times as fast it goes: write 2, or 0.5"))
    }
}

/// A part of all requests.
struct Share(f64);

impl Default for Share {
    fn default() -> Self {
        Self(1.0)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(from)?;
        if share > 0.0 && share <= 1.0 {
            return Ok(Self(share));
        }
        Err(D::Error::custom("`share` is more than 0 and at most 1: write 0.5 for every second request"))
    }
}

impl LoadTable {
    /// What it means: a load, or one for each number of connections.
    pub(super) fn read(&self, at: &Place) -> Result<Vec<(Option<usize>, Traffic)>, Wrong> {
        if let Some(timeout) = self.timeout.as_ref().filter(|timeout| timeout.get_ref().0.0.is_zero()) {
            let message = "nobody can be answered in no time: write more, or leave `timeout` out";
            return Err(Wrong::new(message, Some(timeout.span())));
        }
        let timeout = self.timeout.as_ref().map_or(Duration::from_secs(30), |timeout| timeout.get_ref().0.0);
        let traffic = |requests: Requests| Traffic {
            requests,
            cache_bust: self.cache_bust.unwrap_or_default(),
            timeout,
            max_in_flight: self.max_in_flight.as_ref().map(|most| most.get_ref().0),
            drain: self.drain.as_ref().map_or(EngineTraffic::DRAIN, |drain| drain.0.0),
        };
        let mut place = at.clone();
        let read = match (&self.connections, &self.replay) {
            (None, None) => {
                let (schedule, at) = self.pace().schedule(at.clone())?;
                place = at;
                vec![(None, Requests::Made { of: self.of(place.clone())?, pace: Pace::Open(schedule) })]
            }
            (Some(connections), None) => {
                let lasts = self.lasts("connections", &connections.span())?;
                let of = self.of(at.clone())?;
                let users = connections.get_ref().values(|connections| connections.0);
                let closed = |connections: usize| {
                    let (of, pace) = (of.clone(), Pace::Closed { connections, lasts });
                    (Some(connections), Requests::Made { of, pace })
                };
                users.into_iter().map(closed).collect()
            }
            (None, Some(replay)) => {
                let lasts = self.lasts("replay", &replay.span())?;
                refuse(
                    "a log says itself what is asked",
                    [
                        self.path.as_ref().map(Spanned::span),
                        self.keys.as_ref().map(Spanned::span),
                        self.urls.as_ref().map(Spanned::span),
                    ],
                )?;
                let ReplayTable { log, speed, share } = replay.get_ref();
                let replay = Replay { log: log.clone(), speed: speed.0, share: share.0, lasts };
                vec![(None, Requests::Logged(replay))]
            }
            (Some(connections), Some(_)) => {
                let message = "a log has a pace of its own: write `connections` or `replay`";
                return Err(Wrong::new(message, Some(connections.span())));
            }
        };
        read.into_iter()
            .map(|(users, requests)| {
                let traffic = traffic(requests);
                let beyond = |beyond: stockade_load::schedule::Beyond| {
                    Wrong::new(format!("{beyond}: write a {} time", beyond.remedy()), place.clone())
                };
                traffic.check().map_err(beyond)?;
                Ok((users, traffic))
            })
            .collect()
    }

    fn pace(&self) -> load::Pace<'_> {
        load::Pace {
            rate: self.rate.as_ref(),
            steps: self.steps.as_ref(),
            duration: self.duration.as_ref(),
            arrivals: self.arrivals.as_ref(),
        }
    }

    /// How long what is no open load takes.
    fn lasts(&self, what: &str, at: &std::ops::Range<usize>) -> Result<Duration, Wrong> {
        refuse(
            &format!("`{what}` have their own pace"),
            [
                self.rate.as_ref().map(Spanned::span),
                self.steps.as_ref().map(Spanned::span),
                self.arrivals.as_ref().map(Spanned::span),
            ],
        )?;
        let message = "for how long? Write a `duration`, such as \"60s\", beside it";
        let lasts = self.duration.as_ref().ok_or_else(|| Wrong::new(message, Some(at.clone())))?;
        Ok(lasts.get_ref().0.0)
    }

    /// What is asked for.
    fn of(&self, at: Place) -> Result<Of, Wrong> {
        match (&self.path, &self.urls) {
            (Some(path), None) => {
                if !path.get_ref().starts_with('/') {
                    let message = "a path begins with `/`: the proxy's address comes before it";
                    return Err(Wrong::new(message, Some(path.span())));
                }
                let has_place = path.get_ref().contains("{key");
                let keys = self.keys.as_ref().map(|keys| keys.get_ref().0);
                match (&self.keys, has_place) {
                    (Some(keys), false) => {
                        let message = "the path has no place for a key: write `{key}` into it";
                        return Err(Wrong::new(message, Some(keys.span())));
                    }
                    (None, true) => {
                        let message =
                            "the path has a place for a key: say which, as in keys = \"zipf:10000\"";
                        return Err(Wrong::new(message, Some(path.span())));
                    }
                    _ => {}
                }
                Ok(Of::Path { path: path.get_ref().clone(), keys })
            }
            (None, Some(urls)) => {
                if let Some(keys) = &self.keys {
                    return Err(Wrong::new("a file of URLs has no place for keys", Some(keys.span())));
                }
                let UrlsTable { file, random } = urls.get_ref();
                Ok(Of::Urls { file: file.clone(), is_random: *random })
            }
            (Some(path), Some(_)) => {
                Err(Wrong::new("a load has a `path` or `urls`, not both", Some(path.span())))
            }
            (None, None) => Err(Wrong::new("what is asked for? Write path = \"/news\", or urls", at)),
        }
    }
}

/// Refuses what stands in any of these places.
fn refuse(why: &str, places: [Place; 3]) -> Result<(), Wrong> {
    match places.into_iter().flatten().next() {
        Some(at) => Err(Wrong::new(format!("{why}: leave this out"), Some(at))),
        None => Ok(()),
    }
}
