//! How recipes write sizes, rates and times: always with a unit.

use std::{ops::Range, time::Duration};

use jsonc_parser::ast::Value;
use stockade_model::{
    latency::{Files, Latency, LatencyError},
    units::{UnitError, format_count, parse_duration},
};

use super::{
    CONTENT_BYTES_MAX,
    error::{Wrong, echo},
    json::place,
    object::cannot_be,
};

/// Of 1024, as `OriginSimulator` has them.
const UNITS: [(&str, u64); 3] = [("b", 1), ("kb", 1 << 10), ("mb", 1 << 20)];

/// Reads the size of a content, such as `428kb`.
pub(super) fn content_size(value: &Value<'_>, key: &str) -> Result<u64, Wrong> {
    let help = "write a size such as `\"428kb\"`";
    let text = match value {
        Value::StringLit(text) => &text.value,
        Value::NumberLit(number) => return Err(no_unit(number.value, ["\"kb\"", "\"mb\""], place(value))),
        other => return Err(cannot_be(key, other, help)),
    };
    let bytes = size(text, place(value))?;
    if bytes > CONTENT_BYTES_MAX {
        return Err(too_large(place(value)));
    }
    Ok(bytes)
}

/// A content is larger than it may be.
pub(super) fn too_large(at: Range<usize>) -> Wrong {
    Wrong::new("a content cannot have more than 256mb", "write a smaller size", at)
}

/// Reads a size such as `428kb`, in bytes.
pub(super) fn size(text: &str, at: Range<usize>) -> Result<u64, Wrong> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let unit = unit.trim_start();
    let scale = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
    let is_number = !number.is_empty();
    if let (true, Some(scale)) = (is_number, scale) {
        let bytes = number.parse().ok().and_then(|number: u64| number.checked_mul(scale));
        return bytes.ok_or_else(|| {
            let message = format!("`{}` is more than can be counted", echo(text));
            Wrong::new(message, "write a smaller size", at)
        });
    }
    Err(if is_number && unit.is_empty() {
        no_unit(text, ["kb", "mb"], at)
    } else if is_number && scale.is_none() && unit.chars().all(char::is_alphabetic) {
        let message = format!("`{}` is no unit of size", echo(unit));
        Wrong::new(message, "use b, kb (1024 b) or mb (1024 kb)", at)
    } else {
        let message = format!("`{}` is no size", echo(text));
        Wrong::new(message, "write a whole number and a unit, such as `428kb`", at)
    })
}

/// Reads a rate such as `64kb/s`, in bytes a second.
pub(super) fn byte_rate(value: &Value<'_>) -> Result<u64, Wrong> {
    let help = "write a rate such as `\"64kb/s\"`";
    let text = match value {
        Value::StringLit(text) => &text.value,
        Value::NumberLit(number) => {
            return Err(no_unit(number.value, ["\"b/s\"", "\"kb/s\""], place(value)));
        }
        other => return Err(cannot_be("byte_rate", other, help)),
    };
    let Some((text, "s")) = text.trim().rsplit_once('/') else {
        let message = format!("`{}` is no rate", echo(text));
        return Err(Wrong::new(message, "write a size a second, such as `64kb/s`", place(value)));
    };
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(no_unit(text, ["b/s", "kb/s"], place(value)));
    }
    match size(text, place(value))? {
        0 => Err(Wrong::new(
            "a body never leaves at no byte a second",
            "write `1b/s` or more, or the fault `silent`",
            place(value),
        )),
        rate => Ok(rate),
    }
}

/// A number without a unit. Units in quotes: the number has to be put in quotes with them.
fn no_unit(number: &str, units: [&str; 2], at: Range<usize>) -> Wrong {
    let number = echo(number);
    let with = |unit: &str| match unit.strip_prefix('"') {
        Some(unit) => format!("`\"{number}{unit}`"),
        None => format!("`{number}{unit}`"),
    };
    let help = format!("write {} or {}", with(units[0]), with(units[1]));
    Wrong::new(format!("`{number}` has no unit"), help, at)
}

/// Reads a time such as `4s` or 0.
pub(super) fn time(value: &Value<'_>, key: &str) -> Result<Duration, Wrong> {
    let text = timely(value, key, "write a time such as `\"4s\"` or 0")?;
    parse_duration(text).map_err(|error| untimely(error.into(), value))
}

/// Reads a latency such as `100ms`, `100ms..2s` or 0.
pub(super) fn latency(value: &Value<'_>, files: &mut Files) -> Result<Latency, Wrong> {
    let text = timely(value, "latency", "write a latency such as `\"100ms\"`, `\"100ms..2s\"` or 0")?;
    Latency::read_with(text, files).map_err(|error| untimely(error, value))
}

/// Text, or a number, which is read to be told what it lacks.
fn timely<'v>(value: &'v Value<'_>, key: &str, help: &str) -> Result<&'v str, Wrong> {
    match value {
        Value::StringLit(text) => Ok(&text.value),
        Value::NumberLit(number) => Ok(number.value),
        other => Err(cannot_be(key, other, help)),
    }
}

/// Takes a message apart, `what is wrong: what to do`, in which what was written is kept short.
fn untimely(mut error: LatencyError, value: &Value<'_>) -> Wrong {
    let at = place(value);
    if let LatencyError::File { path, reason } = error {
        // The end of a path says most.
        let from = path.char_indices().rev().nth(59).map_or(0, |(at, _)| at);
        let path = echo(&path[from..]);
        let help = "name a file with a duration a line, from the folder of the recipe on";
        return Wrong::new(format!("{path}: {reason}"), help, at);
    }
    if let (Value::NumberLit(number), LatencyError::Unit(UnitError::NoUnit { .. })) = (value, &error) {
        return no_unit(number.value, ["\"ms\"", "\"s\""], at);
    }
    let written = match &mut error {
        LatencyError::Unit(
            UnitError::NoUnit { text, .. }
            | UnitError::UnknownUnit { unit: text, .. }
            | UnitError::Malformed { text, .. }
            | UnitError::TooMuch { text, .. },
        )
        | LatencyError::Backwards(text)
        | LatencyError::UnknownLaw { name: text }
        | LatencyError::Form { text, .. }
        | LatencyError::TailBelowMedian(text)
        | LatencyError::File { path: text, .. } => text,
    };
    *written = echo(written);
    let echoed = written.len() + "`".len();
    let message = error.to_string();
    match message[echoed..].split_once(": ") {
        Some((_, help)) => {
            let told = message.len() - help.len() - ": ".len();
            Wrong::new(&message[..told], help, at)
        }
        None => Wrong::new(message, "write a smaller number", at),
    }
}

/// Reads a whole number.
pub(super) fn count(value: &Value<'_>, key: &str, range: Range<usize>) -> Result<usize, Wrong> {
    let last = range.end - 1;
    let help = format!("write a whole number from {} to {}", range.start, format_count(last as u64));
    let Value::NumberLit(number) = value else { return Err(cannot_be(key, value, help)) };
    let found = number.value.parse().ok().filter(|count| range.contains(count));
    found.ok_or_else(|| Wrong::new(format!("`{key}` cannot be {}", echo(number.value)), help, place(value)))
}
