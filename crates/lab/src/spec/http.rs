//! The base of an experiment whose parts are processes, with a test and an arm laid over it.

mod load;

use std::{net::SocketAddr, ops::Range, time::Duration};

use serde::Deserialize;
use serde_json::{Map, Value};
use stockade_cache::spec::{
    Wrong,
    written::{Plain, Text},
};
use stockade_load::target::{Base, UrlError};
use stockade_model::units::format_duration;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use self::load::LoadTable;
use super::{
    app,
    cache::{self, Cache},
    tables::{self, Table},
};
use crate::{
    http::{Http, Probe, Recipe, Served, Written},
    services::Service,
};

/// What is asked over HTTP.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Proxy,
    App,
    There,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Setup {
    target: Target,
    cache: Option<Spanned<Cache>>,
    load: Spanned<LoadTable>,
    #[serde(default)]
    preflight: Preflight,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    #[expect(dead_code, reason = "it was looked at before")]
    kind: Option<String>,
    url: Option<Spanned<String>>,
    pid: Option<Spanned<u32>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Preflight {
    probes: Vec<Spanned<ProbeTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProbeTable {
    at: Option<Text<Plain>>,
    path: String,
    #[serde(default)]
    cache_bust: bool,
    status: u16,
}

/// What is meant to be asked over HTTP, if it is.
pub(super) fn meant(table: &Table<'_>) -> Option<Kind> {
    let DeValue::Table(target) = value(table, "target")? else { return None };
    match value(target, "kind") {
        Some(kind) => match kind.as_str()? {
            "proxy" => Some(Kind::Proxy),
            "app" => Some(Kind::App),
            "url" => Some(Kind::There),
            _ => None,
        },
        None => value(target, "url").map(|_| Kind::There),
    }
}

fn value<'t, 'i>(table: &'t DeTable<'i>, name: &str) -> Option<&'t DeValue<'i>> {
    table.iter().find(|(key, _)| key.get_ref() == name).map(|(_, value)| value.get_ref())
}

/// What the tables mean: every load that the test sweeps over, with its path.
pub(super) fn read(
    mut table: Table<'_>,
    kind: Kind,
    test: &str,
    arm: &str,
    span: Range<usize>,
) -> Result<Vec<(String, Http)>, Wrong> {
    let (proxy, app, origin) = match kind {
        Kind::Proxy => (proxy_settings(&mut table)?, Map::new(), recipe(&mut table)?),
        Kind::App => (Map::new(), app_settings(&mut table, span.clone())?, None),
        Kind::There => (Map::new(), Map::new(), recipe(&mut table)?),
    };
    let Setup { target, cache, load, preflight } = tables::read(table, span)?;
    let served = match (kind, &cache) {
        (Kind::Proxy, None) => return Err(missing("cache", "write [cache] strategy = \"stampede\"")),
        (Kind::Proxy, Some(cache)) => {
            cache::strategy(cache.get_ref(), Some(cache.span()))?;
            if origin.is_none() {
                let remedy = "write [origin] recipe = \"recipe.json\", or the recipe itself";
                return Err(missing("origin's recipe", remedy));
            }
            Served::Proxy(proxy)
        }
        (Kind::App, _) => Served::App(app),
        (Kind::There, Some(cache)) => {
            let message = "what is at a URL has a cache of its own: leave [cache] out";
            return Err(Wrong::new(message, Some(cache.span())));
        }
        (Kind::There, None) => there(&target)?,
    };
    if let (Kind::Proxy | Kind::App, Some(at)) = (kind, target.place()) {
        return Err(Wrong::new(
            "what is started for the run has no URL and no process yet: leave it out",
            Some(at),
        ));
    }
    let lasts = load.get_ref().read(&Some(load.span()))?;
    let ends = lasts.iter().map(|(_, traffic)| traffic.lasts()).min().unwrap_or_default();
    let probes = preflight.probes.iter().map(|probe| read_probe(probe, ends));
    let probes = probes.collect::<Result<Vec<_>, _>>()?;
    if let (Served::There { url, .. }, Some(probe)) = (&served, preflight.probes.first())
        && url.starts_with("https:")
    {
        let message = "probes are asked without encryption, and the target is not: leave them out";
        return Err(Wrong::new(message, Some(probe.span())));
    }
    let sweeps = lasts.len() > 1;
    let http = |(users, traffic): (Option<usize>, _)| {
        let swept = users.filter(|_| sweeps).map(|users| users.to_string());
        let parts = [Some(test.to_owned()).filter(|test| !test.is_empty()), swept];
        let path = parts.into_iter().flatten().collect::<Vec<_>>().join("/");
        let (served, origin, probes) = (served.clone(), origin.clone(), probes.clone());
        (path, Http { name: arm.to_owned(), served, origin, traffic, probes })
    };
    Ok(lasts.into_iter().map(http).collect())
}

impl Target {
    /// Where it says who is asked.
    fn place(&self) -> Option<Range<usize>> {
        self.url.as_ref().map(Spanned::span).or(self.pid.as_ref().map(Spanned::span))
    }
}

fn there(target: &Target) -> Result<Served, Wrong> {
    let Some(url) = &target.url else {
        return Err(missing("url in [target]", "write url = \"http://127.0.0.1:8080\""));
    };
    let base: Result<Base, UrlError> = url.get_ref().parse();
    let base = base.map_err(|error| Wrong::new(error.to_string(), Some(url.span())))?;
    Ok(Served::There { url: base.to_string(), pid: target.pid.as_ref().map(|pid| *pid.get_ref()) })
}

fn read_probe(probe: &Spanned<ProbeTable>, ends: Duration) -> Result<Probe, Wrong> {
    let ProbeTable { at, path, cache_bust, status } = probe.get_ref();
    if !path.starts_with('/') {
        let message = "a probe's path begins with `/`: whom it asks is known";
        return Err(Wrong::new(message, Some(probe.span())));
    }
    if at.as_ref().is_some_and(|at| at.0.0 >= ends) {
        let message = format!("the load is over after {}: write an earlier `at`", format_duration(ends));
        return Err(Wrong::new(message, Some(probe.span())));
    }
    Ok(Probe {
        at: at.as_ref().map(|at| at.0.0),
        path: path.clone(),
        cache_bust: *cache_bust,
        status: *status,
    })
}

fn missing(what: &str, remedy: &str) -> Wrong {
    Wrong { message: format!("there is no {what}"), at: None, help: Some(remedy.to_owned()) }
}

/// What the proxy is told, as it was typed: `[proxy]`, and `[cache]`, which stays where it is, to be checked here too.
fn proxy_settings(table: &mut Table<'_>) -> Result<Map<String, Value>, Wrong> {
    let mut settings = tables::take(table, "proxy")?.as_ref().map(object).unwrap_or_default();
    if let Some(cache) = value(table, "cache") {
        settings.insert("cache".to_owned(), json(cache));
    }
    Ok(settings)
}

/// What the app is told, as it was typed, and after a look at it: `[origin]` and `[cache]`.
fn app_settings(table: &mut Table<'_>, span: Range<usize>) -> Result<Map<String, Value>, Wrong> {
    let mut told = Table::new();
    for name in ["origin", "cache"] {
        if let Some(key) = table.keys().find(|key| key.get_ref() == name).cloned()
            && let Some(value) = table.remove(&key)
        {
            told.insert(key, value);
        }
    }
    let settings = object(&told);
    // A database that is started for the run has no address yet.
    let origin = told.iter_mut().find(|(key, _)| key.get_ref() == "origin");
    if let Some((_, origin)) = origin
        && let DeValue::Table(origin) = origin.get_mut()
        && let Some((_, source)) = origin.iter_mut().find(|(key, _)| key.get_ref() == "source")
        && let Some((service, rest)) = source.get_ref().as_str().and_then(Service::meant_by)
    {
        let there = format!("{}://localhost/it{rest}", service.name());
        *source.get_mut() = DeValue::String(there.into());
    }
    app::read(told, span)?;
    Ok(settings)
}

/// The origin's recipe, as it was typed, and where it is served.
fn recipe(table: &mut Table<'_>) -> Result<Option<Recipe>, Wrong> {
    let (mut written, mut listen, mut first) = (None, None, None);
    for (key, value) in tables::take(table, "origin")?.unwrap_or_default() {
        first.get_or_insert(key.span());
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("recipe", DeValue::String(path)) => written = Some(Written::File(path.as_ref().into())),
            ("recipe", recipe) => written = Some(Written::Here(json(recipe))),
            ("listen", address) => {
                let address: Option<SocketAddr> = address.as_str().and_then(|address| address.parse().ok());
                let message = "an origin listens at an address and a port: write \"127.0.0.1:9000\"";
                listen = Some(address.ok_or_else(|| Wrong::new(message, Some(value.span())))?);
            }
            (other, _) => {
                let message =
                    format!("[origin] has no `{other}` where a proxy is the target: it has a `recipe`");
                return Err(Wrong::new(message, Some(key.span())));
            }
        }
    }
    match (written, first) {
        (Some(written), _) => Ok(Some(Recipe { written, listen, factor: 1.0 })),
        (None, None) => Ok(None),
        (None, at) => Err(Wrong::new("an origin serves a `recipe`: write one", at)),
    }
}

/// A value as JSON has it.
fn json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or(Value::Null, Value::from)
        }
        DeValue::Float(number) => number.as_str().parse::<f64>().map_or(Value::Null, Value::from),
        DeValue::Boolean(is_so) => Value::from(*is_so),
        DeValue::Datetime(time) => Value::from(time.to_string()),
        DeValue::Array(array) => array.iter().map(|value| json(value.get_ref())).collect(),
        DeValue::Table(table) => Value::Object(object(table)),
    }
}

fn object(table: &DeTable<'_>) -> Map<String, Value> {
    table.iter().map(|(key, value)| (key.get_ref().to_string(), json(value.get_ref()))).collect()
}

#[cfg(test)]
mod tests;
