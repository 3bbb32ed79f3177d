//! Reads what a route does when.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use http::StatusCode;
use jsonc_parser::ast::{Object as Parsed, Value};
use stockade_model::{latency::Files, nearest::remedy};

use super::{
    error::{Wrong, echo, line_of},
    json::{beginning, place},
    object::{Object, cannot_be, named, twice},
    units::{byte_rate, latency, time},
};
use crate::stages::{FAULTS, Fault, Odds, Stage, Stages};

const KEYS: [&str; 5] = ["at", "status", "latency", "fault", "byte_rate"];
/// A recipe has no more.
const STAGES_MAX: usize = 10_000;
/// Shares are written with a few decimals, and added up with a little less than all of them.
const SUM_OFF_MAX: f64 = 1e-6;

/// Reads a list of stages, in any order.
pub(super) fn stages(value: &Value<'_>, text: &str, files: &mut Files) -> Result<Stages, Wrong> {
    let Value::Array(list) = value else {
        return Err(cannot_be("stages", value, "write a list, such as `[{\"at\": 0, \"status\": 200}]`"));
    };
    if let Some(first) = list.elements.get(STAGES_MAX) {
        return Err(Wrong::new("a recipe has at most 10,000 stages", "write fewer", beginning(first)));
    }
    let mut begins: BTreeMap<Duration, usize> = BTreeMap::new();
    let mut stages = Vec::with_capacity(list.elements.len());
    for value in &list.elements {
        let example = "write an object, such as `{\"at\": \"4s\", \"status\": 503}`";
        let object = Object::read(value, "a stage", &KEYS, example)?;
        let stage = stage(&object, files)?;
        match begins.entry(stage.at) {
            Entry::Vacant(entry) => entry.insert(object.at.start),
            Entry::Occupied(entry) => {
                let line = line_of(text, *entry.get());
                let help = "give one of them another time, or take it out";
                let at = object.get("at").map_or(object.at, place);
                return Err(Wrong::new(
                    format!("the stage of line {line} begins at this time, too"),
                    help,
                    at,
                ));
            }
        };
        stages.push(stage);
    }
    Ok(Stages::new(stages))
}

fn stage(object: &Object<'_>, files: &mut Files) -> Result<Stage, Wrong> {
    let at = object.get("at").ok_or_else(|| {
        let help = "write `\"at\": 0`, or a time such as `\"at\": \"4s\"`";
        Wrong::new("the stage does not say when it begins", help, object.at.clone())
    })?;
    Ok(Stage {
        at: time(at, "at")?,
        status: object.get("status").map_or(Ok(StatusCode::OK.into()), status)?,
        latency: object.get("latency").map_or(Ok(Duration::ZERO.into()), |value| latency(value, files))?,
        fault: object.get("fault").map_or(Ok(None.into()), fault)?,
        byte_rate: object.get("byte_rate").map(byte_rate).transpose()?,
    })
}

const STATUS: &str = "write a number from 200 to 599, or odds such as `{\"200\": 0.9, \"503\": 0.1}`";

fn status(value: &Value<'_>) -> Result<Odds<StatusCode>, Wrong> {
    match value {
        Value::NumberLit(number) => code(number.value).map(Into::into).ok_or_else(|| {
            Wrong::new(format!("`{}` is no status", echo(number.value)), STATUS, place(value))
        }),
        Value::Object(object) => {
            let of = |name: &str| {
                let help = "write statuses from 200 to 599, such as `{\"200\": 0.9, \"503\": 0.1}`";
                code(name).ok_or_else(|| (format!("`{}` is no status", echo(name)), help.to_owned()))
            };
            let shares = shares(object, of)?;
            let sum = sum(&shares);
            if (sum - 1.0).abs() > SUM_OFF_MAX {
                let help = "write shares of 1 in all, such as `{\"200\": 0.9, \"503\": 0.1}`";
                return Err(Wrong::new(format!("the shares add up to {sum}, not 1"), help, beginning(value)));
            }
            Ok(odds(shares))
        }
        other => Err(cannot_be("status", other, STATUS)),
    }
}

/// Three digits, as they are sent.
fn code(text: &str) -> Option<StatusCode> {
    let code = text.parse().ok().filter(|code| (200..=599).contains(code) && text.len() == 3);
    code.and_then(|code| StatusCode::from_u16(code).ok())
}

fn fault(value: &Value<'_>) -> Result<Odds<Option<Fault>>, Wrong> {
    let known = || FAULTS.iter().map(|(name, _)| *name);
    let of = |name: &str| {
        let fault = FAULTS.iter().find(|(known, _)| *known == name).map(|(_, fault)| *fault);
        let name = echo(name);
        fault.ok_or_else(|| (format!("`{name}` is no fault"), remedy(&name, known().collect::<Vec<_>>())))
    };
    match value {
        Value::StringLit(name) => {
            let fault = of(&name.value).map_err(|(message, help)| Wrong::new(message, help, place(value)))?;
            Ok(Some(fault).into())
        }
        Value::Object(object) => {
            let shares = shares(object, of)?;
            let sum = sum(&shares);
            if sum > 1.0 + SUM_OFF_MAX {
                let help = "write smaller shares: the rest of 1 is no fault";
                return Err(Wrong::new(
                    format!("the shares add up to {sum}, not 1 or less"),
                    help,
                    beginning(value),
                ));
            }
            let rest = 1.0 - shares.values().sum::<f64>();
            let mut shares: Vec<_> = shares.into_iter().map(|(of, share)| (share, Some(of))).collect();
            // What is left of 1 by adding up decimals is nothing.
            if rest > 1e-9 {
                shares.push((rest, None));
            }
            Ok(Odds::new(shares))
        }
        other => {
            let help = "write `\"reset\"`, or odds such as `{\"reset\": 0.01, \"silent\": 0.001}`";
            Err(cannot_be("fault", other, help))
        }
    }
}

/// Each with its share, in an order of their own: that of the keys means nothing.
fn shares<T: Ord>(
    object: &Parsed<'_>,
    of: impl Fn(&str) -> Result<T, (String, String)>,
) -> Result<BTreeMap<T, f64>, Wrong> {
    let mut shares = BTreeMap::new();
    for (name, property) in named(object) {
        let of = of(name).map_err(|(message, help)| Wrong::new(message, help, place(&property.name)))?;
        let help = "write a share above 0, of 1 in all, such as 0.1";
        let Value::NumberLit(number) = &property.value else {
            return Err(cannot_be("a share", &property.value, help));
        };
        let share = number.value.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
        let share: f64 = share.ok_or_else(|| {
            Wrong::new(format!("a share cannot be {}", echo(number.value)), help, place(&property.value))
        })?;
        if shares.insert(of, share).is_some() {
            return Err(twice(property));
        }
    }
    Ok(shares)
}

/// To the sixth decimal.
fn sum<T>(shares: &BTreeMap<T, f64>) -> f64 {
    // The sum of nothing is -0.
    0.0 + (shares.values().sum::<f64>() * 1e6).round() / 1e6
}

fn odds<T>(shares: BTreeMap<T, f64>) -> Odds<T> {
    Odds::new(shares.into_iter().map(|(of, share)| (share, of)).collect())
}
