//! Sizes, rates and durations in recipes. All but 0 s need a unit.

use std::{ops::Range, time::Duration};

use jsonc_parser::ast::Value;
use stockade_model::{
    latency::{Latency, LatencyError, LatencyFiles},
    units::{UnitError, format_count, parse_duration},
};

use super::{
    CONTENT_BYTES_MAX,
    error::{RecipeProblem, abbreviate},
    fields::wrong_type,
    json::span,
};

/// Powers of 1024, as in `OriginSimulator`.
const SIZE_UNITS: [(&str, u64); 3] = [("b", 1), ("kb", 1 << 10), ("mb", 1 << 20)];

/// Parses the size of a content, such as `428kb`, in bytes.
pub(super) fn parse_content_size(value: &Value<'_>, key: &str) -> Result<u64, RecipeProblem> {
    let help = "write a size such as `\"428kb\"`";
    let text = match value {
        Value::StringLit(text) => &text.value,
        Value::NumberLit(number) => {
            return Err(missing_unit(number.value, ["\"kb\"", "\"mb\""], span(value)));
        }
        other => return Err(wrong_type(key, other, help)),
    };
    let bytes = parse_size(text, span(value))?;
    if bytes > CONTENT_BYTES_MAX {
        return Err(content_too_large(span(value)));
    }
    Ok(bytes)
}

pub(super) fn content_too_large(span: Range<usize>) -> RecipeProblem {
    RecipeProblem::new("the content is larger than 256mb", "write a smaller size", span)
}

/// Parses a size such as `428kb`, in bytes.
pub(super) fn parse_size(text: &str, span: Range<usize>) -> Result<u64, RecipeProblem> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let unit = unit.trim_start();
    let scale = SIZE_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
    let is_number = !number.is_empty();
    if let (true, Some(scale)) = (is_number, scale) {
        let bytes = number.parse().ok().and_then(|number: u64| number.checked_mul(scale));
        return bytes.ok_or_else(|| {
            let message = format!("`{}` is more than 64 bits can count", abbreviate(text));
            RecipeProblem::new(message, "write a smaller size", span)
        });
    }
    Err(if is_number && unit.is_empty() {
        missing_unit(text, ["kb", "mb"], span)
    } else if is_number && scale.is_none() && unit.chars().all(char::is_alphabetic) {
        let message = format!("`{}` is not a unit of size", abbreviate(unit));
        RecipeProblem::new(message, "use b, kb (1024 b) or mb (1024 kb)", span)
    } else {
        let message = format!("`{}` is not a size", abbreviate(text));
        RecipeProblem::new(message, "write a whole number and a unit, such as `428kb`", span)
    })
}

/// Parses a rate such as `64kb/s`, in bytes per second.
pub(super) fn parse_byte_rate(value: &Value<'_>) -> Result<u64, RecipeProblem> {
    let help = "write a rate such as `\"64kb/s\"`";
    let text = match value {
        Value::StringLit(text) => &text.value,
        Value::NumberLit(number) => {
            return Err(missing_unit(number.value, ["\"b/s\"", "\"kb/s\""], span(value)));
        }
        other => return Err(wrong_type("byte_rate", other, help)),
    };
    let Some((text, "s")) = text.trim().rsplit_once('/') else {
        let message = format!("`{}` is not a rate", abbreviate(text));
        return Err(RecipeProblem::new(message, "write a size per second, such as `64kb/s`", span(value)));
    };
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(missing_unit(text, ["b/s", "kb/s"], span(value)));
    }
    match parse_size(text, span(value))? {
        0 => Err(RecipeProblem::new(
            "a body never ends at 0 bytes per second",
            "write `1b/s` or more, or the fault `silent`",
            span(value),
        )),
        rate => Ok(rate),
    }
}

/// A number without a unit. If the units begin with `"`, the remedy puts the number in quotes, too.
fn missing_unit(number: &str, units: [&str; 2], span: Range<usize>) -> RecipeProblem {
    let number = abbreviate(number);
    let with = |unit: &str| match unit.strip_prefix('"') {
        Some(unit) => format!("`\"{number}{unit}`"),
        None => format!("`{number}{unit}`"),
    };
    let help = format!("write {} or {}", with(units[0]), with(units[1]));
    RecipeProblem::new(format!("`{number}` has no unit"), help, span)
}

/// Parses a time such as `4s` or 0.
pub(super) fn parse_time(value: &Value<'_>, key: &str) -> Result<Duration, RecipeProblem> {
    let text = duration_text(value, key, "write a time such as `\"4s\"` or 0")?;
    parse_duration(text).map_err(|error| duration_problem(error.into(), value))
}

/// Parses a latency such as `100ms`, `100ms..2s` or 0.
pub(super) fn parse_latency(value: &Value<'_>, files: &mut LatencyFiles) -> Result<Latency, RecipeProblem> {
    let text = duration_text(value, "latency", "write a latency such as `\"100ms\"`, `\"100ms..2s\"` or 0")?;
    Latency::parse_with(text, files).map_err(|error| duration_problem(error, value))
}

/// The text of a duration. A number counts as text, so that the message can say that its unit is missing.
fn duration_text<'v>(value: &'v Value<'_>, key: &str, help: &str) -> Result<&'v str, RecipeProblem> {
    match value {
        Value::StringLit(text) => Ok(&text.value),
        Value::NumberLit(number) => Ok(number.value),
        other => Err(wrong_type(key, other, help)),
    }
}

/// Splits the error's text, `problem: remedy`, and abbreviates the part of the recipe that it quotes.
fn duration_problem(mut error: LatencyError, value: &Value<'_>) -> RecipeProblem {
    let span = span(value);
    if let LatencyError::File { path, reason } = error {
        // The end of a path identifies the file better than its beginning.
        let start = path.char_indices().rev().nth(59).map_or(0, |(index, _)| index);
        let path = abbreviate(&path[start..]);
        let help = "name a file with one duration per line, relative to the recipe's folder";
        return RecipeProblem::new(format!("{path}: {reason}"), help, span);
    }
    if let (Value::NumberLit(number), LatencyError::Unit(UnitError::NoUnit { .. })) = (value, &error) {
        return missing_unit(number.value, ["\"ms\"", "\"s\""], span);
    }
    let quoted = match &mut error {
        LatencyError::Unit(
            UnitError::NoUnit { text, .. }
            | UnitError::UnknownUnit { unit: text, .. }
            | UnitError::Malformed { text, .. }
            | UnitError::TooMuch { text, .. },
        )
        | LatencyError::Backwards(text)
        | LatencyError::UnknownDistribution { name: text }
        | LatencyError::Form { text, .. }
        | LatencyError::TailBelowMedian(text)
        | LatencyError::File { path: text, .. } => text,
    };
    *quoted = abbreviate(quoted);
    // The quoted text may itself contain ": ", so the search starts behind it.
    let quote_end = quoted.len() + "`".len();
    let message = error.to_string();
    match message[quote_end..].split_once(": ") {
        Some((_, help)) => {
            let problem_end = message.len() - help.len() - ": ".len();
            RecipeProblem::new(&message[..problem_end], help, span)
        }
        None => RecipeProblem::new(message, "write a smaller number", span),
    }
}

/// Parses a whole number within `range`.
pub(super) fn parse_count(value: &Value<'_>, key: &str, range: Range<usize>) -> Result<usize, RecipeProblem> {
    let max = range.end - 1;
    let help = format!("write a whole number from {} to {}", range.start, format_count(max as u64));
    let Value::NumberLit(number) = value else { return Err(wrong_type(key, value, help)) };
    let count = number.value.parse().ok().filter(|count| range.contains(count));
    count.ok_or_else(|| {
        RecipeProblem::new(format!("`{key}` cannot be {}", abbreviate(number.value)), help, span(value))
    })
}
