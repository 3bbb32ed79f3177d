//! Parses the stages of a recipe.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use http::StatusCode;
use jsonc_parser::ast::{Object, Value};
use stockade_model::{latency::LatencyFiles, nearest::remedy};

use super::{
    error::{RecipeProblem, abbreviate, line_number},
    fields::{RecipeFields, duplicate_key, named_properties, wrong_type},
    json::{first_char, span},
    units::{parse_byte_rate, parse_latency, parse_time},
};
use crate::stages::{FAULTS, Fault, Stage, Stages, WeightedChoice};

const KEYS: [&str; 5] = ["at", "status", "latency", "fault", "byte_rate"];
const STAGES_MAX: usize = 10_000;
/// Shares are written with a few decimals, so their sum may miss 1 by a little.
const SUM_ERROR_MAX: f64 = 1e-6;
/// A smaller share without a fault is the error of adding up decimals in binary.
const NO_FAULT_SHARE_MIN: f64 = 1e-9;

/// Parses a list of stages, in any order.
pub(super) fn parse_stages(
    value: &Value<'_>,
    text: &str,
    files: &mut LatencyFiles,
) -> Result<Stages, RecipeProblem> {
    let Value::Array(list) = value else {
        return Err(wrong_type("stages", value, "write a list, such as `[{\"at\": 0, \"status\": 200}]`"));
    };
    if let Some(first) = list.elements.get(STAGES_MAX) {
        return Err(RecipeProblem::new(
            "a recipe has at most 10,000 stages",
            "write fewer stages",
            first_char(first),
        ));
    }
    let mut starts: BTreeMap<Duration, usize> = BTreeMap::new();
    let mut stages = Vec::with_capacity(list.elements.len());
    for value in &list.elements {
        let example = "write an object, such as `{\"at\": \"4s\", \"status\": 503}`";
        let fields = RecipeFields::parse(value, "a stage", &KEYS, example)?;
        let stage = parse_stage(&fields, files)?;
        match starts.entry(stage.at) {
            Entry::Vacant(entry) => entry.insert(fields.span.start),
            Entry::Occupied(entry) => {
                let line = line_number(text, *entry.get());
                let message = format!("the stage on line {line} starts at the same time");
                let span = fields.get("at").map_or(fields.span, span);
                return Err(RecipeProblem::new(message, "change one of the times, or remove a stage", span));
            }
        };
        stages.push(stage);
    }
    Ok(Stages::new(stages))
}

fn parse_stage(fields: &RecipeFields<'_>, files: &mut LatencyFiles) -> Result<Stage, RecipeProblem> {
    let at = fields.get("at").ok_or_else(|| {
        let help = "write `\"at\": 0`, or a time such as `\"at\": \"4s\"`";
        RecipeProblem::new("the stage has no start time", help, fields.span.clone())
    })?;
    let latency = fields.get("latency");
    Ok(Stage {
        at: parse_time(at, "at")?,
        status: fields.get("status").map_or(Ok(StatusCode::OK.into()), parse_status)?,
        latency: latency.map_or(Ok(Duration::ZERO.into()), |value| parse_latency(value, files))?,
        fault: fields.get("fault").map_or(Ok(None.into()), parse_fault)?,
        byte_rate: fields.get("byte_rate").map(parse_byte_rate).transpose()?,
    })
}

const STATUS_HELP: &str = "write a number from 200 to 599, or shares such as `{\"200\": 0.9, \"503\": 0.1}`";

fn parse_status(value: &Value<'_>) -> Result<WeightedChoice<StatusCode>, RecipeProblem> {
    let not_a_status = |text: &str| format!("`{}` is not a status from 200 to 599", abbreviate(text));
    match value {
        Value::NumberLit(number) => parse_status_code(number.value)
            .map(Into::into)
            .ok_or_else(|| RecipeProblem::new(not_a_status(number.value), STATUS_HELP, span(value))),
        Value::Object(object) => {
            let parse = |name: &str| {
                let help = "write statuses from 200 to 599, such as `{\"200\": 0.9, \"503\": 0.1}`";
                parse_status_code(name).ok_or_else(|| (not_a_status(name), help.to_owned()))
            };
            let shares = parse_shares(object, parse)?;
            let sum = rounded_sum(&shares);
            if (sum - 1.0).abs() > SUM_ERROR_MAX {
                let help = "write shares that sum to 1, such as `{\"200\": 0.9, \"503\": 0.1}`";
                let message = format!("the shares sum to {sum}, not to 1");
                return Err(RecipeProblem::new(message, help, first_char(value)));
            }
            Ok(WeightedChoice::new(shares.into_iter().map(|(status, share)| (share, status)).collect()))
        }
        other => Err(wrong_type("status", other, STATUS_HELP)),
    }
}

/// Three digits, as in a status line.
fn parse_status_code(text: &str) -> Option<StatusCode> {
    let code = text.parse().ok().filter(|code| (200..=599).contains(code) && text.len() == 3);
    code.and_then(|code| StatusCode::from_u16(code).ok())
}

fn parse_fault(value: &Value<'_>) -> Result<WeightedChoice<Option<Fault>>, RecipeProblem> {
    let parse = |name: &str| {
        let fault = FAULTS.iter().find(|(known, _)| *known == name).map(|(_, fault)| *fault);
        let name = abbreviate(name);
        let help = || remedy(&name, FAULTS.map(|(name, _)| name));
        fault.ok_or_else(|| (format!("`{name}` is not a fault"), help()))
    };
    match value {
        Value::StringLit(name) => {
            let fault = parse(&name.value);
            let fault = fault.map_err(|(message, help)| RecipeProblem::new(message, help, span(value)))?;
            Ok(Some(fault).into())
        }
        Value::Object(object) => {
            let shares = parse_shares(object, parse)?;
            let sum = rounded_sum(&shares);
            if sum > 1.0 + SUM_ERROR_MAX {
                let message = format!("the shares sum to {sum}, which is more than 1");
                let help = "write smaller shares; the rest, up to 1, has no fault";
                return Err(RecipeProblem::new(message, help, first_char(value)));
            }
            let no_fault = 1.0 - shares.values().sum::<f64>();
            let mut shares: Vec<_> = shares.into_iter().map(|(fault, share)| (share, Some(fault))).collect();
            if no_fault > NO_FAULT_SHARE_MIN {
                shares.push((no_fault, None));
            }
            Ok(WeightedChoice::new(shares))
        }
        other => {
            let help = "write `\"reset\"`, or shares such as `{\"reset\": 0.01, \"silent\": 0.001}`";
            Err(wrong_type("fault", other, help))
        }
    }
}

/// Parses `{"name": share, ...}`. The order of keys has no meaning, so the result is sorted. `parse` turns a name into
/// a value, or returns message and remedy.
fn parse_shares<T: Ord>(
    object: &Object<'_>,
    parse: impl Fn(&str) -> Result<T, (String, String)>,
) -> Result<BTreeMap<T, f64>, RecipeProblem> {
    let mut shares = BTreeMap::new();
    for (name, property) in named_properties(object) {
        let choice =
            parse(name).map_err(|(message, help)| RecipeProblem::new(message, help, span(&property.name)))?;
        let help = "write a share above 0 and up to 1, such as 0.1";
        let Value::NumberLit(number) = &property.value else {
            return Err(wrong_type("a share", &property.value, help));
        };
        let share = number.value.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
        let share: f64 = share.ok_or_else(|| {
            let message = format!("a share cannot be {}", abbreviate(number.value));
            RecipeProblem::new(message, help, span(&property.value))
        })?;
        if shares.insert(choice, share).is_some() {
            return Err(duplicate_key(property));
        }
    }
    Ok(shares)
}

/// The sum to six decimals.
fn rounded_sum<T>(shares: &BTreeMap<T, f64>) -> f64 {
    // The sum of an empty iterator is -0, which would show as such.
    0.0 + (shares.values().sum::<f64>() * 1e6).round() / 1e6
}
