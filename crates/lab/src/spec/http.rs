//! The base of an experiment whose parts are processes, with a test and an arm laid over it.

use std::{ops::Range, time::Duration};

use serde::Deserialize;
use serde_json::{Map, Value};
use stockade_cache::spec::{
    Wrong,
    written::{Plain, Text},
};
use stockade_load::schedule::Rate;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    cache::{self, Cache},
    load::{ArrivalsName, InFlight, Pace, StepTable},
    tables::{self, Table},
};
use crate::{
    engine::Traffic,
    http::{Http, Recipe, Written},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Setup {
    #[expect(dead_code, reason = "looked at before")]
    target: Target,
    cache: Option<Spanned<Cache>>,
    load: Spanned<LoadTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    #[expect(dead_code, reason = "looked at before")]
    kind: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadTable {
    rate: Option<Spanned<Text<Rate>>>,
    steps: Option<Spanned<Vec<StepTable>>>,
    duration: Option<Spanned<Text<Plain>>>,
    arrivals: Option<Spanned<ArrivalsName>>,
    path: Spanned<String>,
    cache_bust: Option<bool>,
    timeout: Option<Spanned<Text<Plain>>>,
    max_in_flight: Option<Spanned<InFlight>>,
    drain: Option<Text<Plain>>,
}

/// Whether the target is a proxy, in a process of its own.
pub(super) fn is_meant(table: &Table<'_>) -> bool {
    let Some(DeValue::Table(target)) = value(table, "target") else { return false };
    value(target, "kind").is_some_and(|kind| kind.as_str() == Some("proxy"))
}

fn value<'t, 'i>(table: &'t DeTable<'i>, name: &str) -> Option<&'t DeValue<'i>> {
    table.iter().find(|(key, _)| key.get_ref() == name).map(|(_, value)| value.get_ref())
}

/// What the tables mean.
pub(super) fn read(mut table: Table<'_>, arm: &str, span: Range<usize>) -> Result<Http, Wrong> {
    let proxy = proxy_settings(&mut table)?;
    let written = recipe(&mut table)?;
    let setup: Setup = tables::read(table, span)?;
    let Some(cache) = &setup.cache else {
        return Err(missing("cache", "write [cache] strategy = \"stampede\""));
    };
    cache::strategy(cache.get_ref(), Some(cache.span()))?;
    let load = setup.load.get_ref();
    if !load.path.get_ref().starts_with('/') {
        let at = Some(load.path.span());
        return Err(Wrong::new("a path begins with `/`: the proxy's address comes before it", at));
    }
    if let Some(timeout) = load.timeout.as_ref().filter(|timeout| timeout.get_ref().0.0.is_zero()) {
        let message = "nobody can be answered in no time: write more, or leave `timeout` out";
        return Err(Wrong::new(message, Some(timeout.span())));
    }
    let pace = Pace {
        rate: load.rate.as_ref(),
        steps: load.steps.as_ref(),
        duration: load.duration.as_ref(),
        arrivals: load.arrivals.as_ref(),
    };
    let (schedule, at) = pace.schedule(Some(setup.load.span()))?;
    schedule
        .check()
        .map_err(|beyond| Wrong::new(format!("{beyond}: write a {} time", beyond.remedy()), at))?;
    Ok(Http {
        name: arm.to_owned(),
        recipe: Recipe { written, factor: 1.0 },
        proxy,
        schedule,
        path: load.path.get_ref().clone(),
        cache_bust: load.cache_bust.unwrap_or_default(),
        timeout: load.timeout.as_ref().map_or(Duration::from_secs(30), |timeout| timeout.get_ref().0.0),
        max_in_flight: load.max_in_flight.as_ref().map_or(Traffic::MAX_IN_FLIGHT, |most| most.get_ref().0),
        drain: load.drain.as_ref().map_or(Traffic::DRAIN, |drain| drain.0.0),
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

/// The origin's recipe, as it was typed.
fn recipe(table: &mut Table<'_>) -> Result<Written, Wrong> {
    let mut recipe = None;
    for (key, value) in tables::take(table, "origin")?.unwrap_or_default() {
        if key.get_ref() != "recipe" {
            let message =
                format!("[origin] has no `{}` where a proxy is the target: it has a `recipe`", key.get_ref());
            return Err(Wrong::new(message, Some(key.span())));
        }
        recipe = Some(match value.get_ref() {
            DeValue::String(path) => Written::File(path.as_ref().into()),
            written => Written::Here(json(written)),
        });
    }
    recipe.ok_or_else(|| {
        missing("origin's recipe", "write [origin] recipe = \"recipe.json\", or the recipe itself")
    })
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
