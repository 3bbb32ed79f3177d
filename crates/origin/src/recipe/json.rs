//! Strict JSON, bounded before anything is made of it, with the place of every value.

use std::{borrow::Cow, ops::Range};

use jsonc_parser::{
    CollectOptions, ParseOptions, ParseStringErrorKind,
    ast::{ObjectPropName, StringLit, Value},
    common::Ranged,
    errors::{ParseError, ParseErrorKind},
    parse_to_ast,
};

use super::{
    TEXT_BYTES_MAX,
    error::{Wrong, echo},
};

/// A recipe nests five deep: list, recipe, stages, stage, odds.
const DEPTH_MAX: usize = 32;
/// Commas, colons and opening brackets. A value of one byte takes up to 250 in memory.
const VALUES_MAX: usize = 1_000_000;

/// Everything off that JSON does not have.
const STRICT: ParseOptions = ParseOptions {
    allow_comments: false,
    allow_loose_object_property_names: false,
    allow_trailing_commas: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// What to send where there is nothing, or something else.
pub(super) const EXAMPLE: &str = "write a recipe, such as `{\"body\": \"hello\", \"stages\": [{\"at\": 0}]}`";

/// What ends a line.
const BREAKS: [char; 2] = ['\n', '\r'];

/// Reads the one value of a text. If that is an object, text in quotes may go on on the next line, as if there were
/// no line break: `OriginSimulator` takes all of them out of such a recipe.
pub(super) fn parse(text: &str) -> Result<Value<'_>, Wrong> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(Wrong::new("the text has more than 64 MiB", "send fewer recipes at once", 0..0));
    }
    let ast = |text| parse_to_ast(text, &CollectOptions::default(), &STRICT);
    let mut broken = None;
    let scanned = scan(text, &mut broken);
    // Whoever forgot a quote went on to the next line as well.
    let before = |at: usize| broken.clone().filter(|broken| broken.start < at).map(unclosed);
    if let Err(wrong) = scanned {
        // What is wrong before that is told first. What only lacks its end is not wrong yet.
        let rest = &text[..wrong.start()];
        return Err(match ast(rest) {
            Err(error) if error.range().end < rest.len() => {
                before(error.range().start).unwrap_or_else(|| syntax(&error, text))
            }
            _ => before(wrong.start()).unwrap_or(wrong),
        });
    }
    match ast(text) {
        Ok(parsed) => {
            let mut value =
                parsed.value.ok_or_else(|| Wrong::new("there is no recipe in it", EXAMPLE, 0..0))?;
            if broken.is_some() {
                join(&mut value, text)?;
            }
            Ok(value)
        }
        Err(error) => Err(before(error.range().start).unwrap_or_else(|| syntax(&error, text))),
    }
}

/// Takes the line breaks out of all texts that are written on several lines.
fn join(value: &mut Value<'_>, text: &str) -> Result<(), Wrong> {
    let join_text = |literal: &mut StringLit<'_>| {
        let written = &text[place(literal)];
        if written.contains(BREAKS) {
            let joined = serde_json::from_str(&written.replace(BREAKS, ""));
            literal.value = Cow::Owned(joined.map_err(|_| unclosed(place(literal)))?);
        }
        Ok(())
    };
    match value {
        Value::StringLit(literal) => join_text(literal),
        Value::Array(list) => list.elements.iter_mut().try_for_each(|value| join(value, text)),
        Value::Object(object) => object.properties.iter_mut().try_for_each(|property| {
            if let ObjectPropName::String(literal) = &mut property.name {
                join_text(literal)?;
            }
            join(&mut property.value, text)
        }),
        Value::NumberLit(_) | Value::BooleanLit(_) | Value::NullKeyword(_) => Ok(()),
    }
}

/// Refuses what the parser lets through, and what it should not be burdened with. `broken` is the first text that
/// goes on on the next line, up to there.
fn scan(text: &str, broken: &mut Option<Range<usize>>) -> Result<(), Wrong> {
    let is_object = text.trim_start().starts_with('{');
    let (mut depth, mut values) = (0_usize, 0_usize);
    let mut quote = None;
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        if let Some(start) = quote {
            match byte {
                b'\n' | b'\r' if is_object && !is_escaped => _ = broken.get_or_insert(start..at),
                b'\n' | b'\r' => return Err(unclosed(start..at)),
                0..0x20 => return Err(stray(text, at)),
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = true,
                b'"' => quote = None,
                _ => {}
            }
            continue;
        }
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => {}
            b'"' => quote = Some(at),
            b'{' | b'[' => (depth, values) = (depth + 1, values + 1),
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' | b':' => values += 1,
            0..0x20 | 0x7f.. | b'/' | b'#' | b'\'' => return Err(stray(text, at)),
            _ => {}
        }
        if depth > DEPTH_MAX {
            let message = format!("this is nested more than {DEPTH_MAX} deep");
            return Err(Wrong::new(message, "take brackets away: a recipe nests five deep", at..at + 1));
        }
        if values > VALUES_MAX {
            let message = "there are more than a million values up to here";
            return Err(Wrong::new(message, "send fewer recipes at once", at..at + 1));
        }
    }
    quote.map_or(Ok(()), |start| Err(unclosed(start..text.len())))
}

fn unclosed(at: Range<usize>) -> Wrong {
    let help = "close it with `\"`; a line break in it is written `\\n`";
    Wrong::new("the text that begins here is not closed on its line", help, at)
}

/// A character that may not stand where it does.
fn stray(text: &str, at: usize) -> Wrong {
    let char = text[at..].chars().next().unwrap_or_default();
    let code = u32::from(char);
    let (message, help) = match char {
        '/' | '#' => ("JSON has no comments".to_owned(), "take it out".to_owned()),
        '\'' => ("JSON has no text in single quotes".to_owned(), "write `\"`".to_owned()),
        '\u{FEFF}' => {
            let message = "there is a byte order mark".to_owned();
            (message, "save the text as UTF-8 without one".to_owned())
        }
        _ if code < 0x20 => (
            format!("there is a control character (U+{code:04X})"),
            format!("take it out, or write it in a text as `\\u{code:04x}`"),
        ),
        _ => {
            (format!("U+{code:04X} stands outside of a text"), "put text in `\"`, or take it out".to_owned())
        }
    };
    Wrong::new(message, help, at..at + char.len_utf8())
}

/// Says what was expected.
fn syntax(error: &ParseError, text: &str) -> Wrong {
    use ParseErrorKind as Kind;
    let at = error.range().start..error.range().end.max(error.range().start);
    let found = match &text[at.clone()] {
        "" => "the text ends here".to_owned(),
        // It may be a URL with a password in it.
        found if found.starts_with('"') => "text stands here".to_owned(),
        found => format!("`{}` stands here", echo(found)),
    };
    let brace = at.start..at.start + 1;
    let (message, help, at) = match error.kind() {
        Kind::ExpectedComma if text[at.start..].starts_with(|next: char| next.is_ascii_digit()) => {
            ("a number has a 0 before it".to_owned(), "write it without", at)
        }
        Kind::ExpectedComma => ("a comma is missing here".to_owned(), "write `,` between two values", at),
        Kind::TrailingCommasNotAllowed => {
            ("a comma stands after the last value".to_owned(), "take it out, or write one more value", at)
        }
        Kind::ExpectedColonAfterObjectKey => {
            (format!("{found}, not the colon of a key"), "write `:` between key and value", at)
        }
        Kind::ExpectedObjectValue => (format!("{found}, not the value of a key"), VALUE, at),
        Kind::UnterminatedObject => {
            ("the object that begins here is not closed".to_owned(), "write `}` where it ends", brace)
        }
        Kind::UnterminatedArray => {
            ("the list that begins here is not closed".to_owned(), "write `]` where it ends", brace)
        }
        Kind::MultipleRootJsonValues => (
            "something follows the recipe".to_owned(),
            "write several recipes as a list: `[{...}, {...}]`",
            at,
        ),
        Kind::UnexpectedTokenInObject | Kind::ExpectedStringObjectProperty => {
            (format!("{found}, not a key"), "write a key in `\"`, or close the object with `}`", at)
        }
        Kind::UnexpectedCloseBrace => {
            (format!("{found}, not a value"), "write a value; a list is closed with `]`", at)
        }
        Kind::ExpectedDigit
        | Kind::ExpectedDigitFollowingNegativeSign
        | Kind::ExpectedPlusMinusOrDigitInNumberLiteral => {
            (format!("{found}, not a digit of the number"), NUMBER, at)
        }
        Kind::BareDecimalPointNumbersNotAllowed
        | Kind::HexadecimalNumbersNotAllowed
        | Kind::NonFiniteNumbersNotAllowed
        | Kind::UnaryPlusNumbersNotAllowed => ("JSON has no such number".to_owned(), NUMBER, at),
        Kind::String(kind) => string(kind, at),
        _ => (format!("{found}, not a value"), VALUE, at),
    };
    Wrong::new(message, help, at)
}

const VALUE: &str = "write text in `\"`, a number such as 0.5, true, false, null, `[` or `{`";
const NUMBER: &str = "write a number such as 0.5, 12 or 1e3";

/// A backslash that means nothing. The place is where it stands, and no more than six characters of it.
fn string(kind: &ParseStringErrorKind, at: Range<usize>) -> (String, &'static str, Range<usize>) {
    let (message, help) = match kind {
        ParseStringErrorKind::ExpectedFourHexDigits => (
            "`\\u` stands without four hexadecimal digits",
            "write one such as `\\u00e9`, or a backslash as `\\\\`",
        ),
        ParseStringErrorKind::InvalidUnicodeEscapeSequence(_) => (
            "this is half of a surrogate pair",
            "write both halves, as in `\\ud83d\\ude00`, or the character itself",
        ),
        _ => (
            "a backslash stands before a character that needs none",
            "write a backslash as `\\\\`; JSON has `\\\" \\\\ \\/ \\b \\f \\n \\r \\t` and `\\u00e9`",
        ),
    };
    (message.to_owned(), help, at.start..at.start + 1)
}

/// The bytes of a value.
pub(super) fn place(of: &impl Ranged) -> Range<usize> {
    of.start()..of.end()
}

/// The bytes of a value's first character: of an object, its brace.
pub(super) fn beginning(of: &impl Ranged) -> Range<usize> {
    of.start()..of.start() + 1
}

/// Where a part of what a text says is written, backslashes and all.
pub(super) fn place_in(text: &str, literal: &StringLit<'_>, said: Range<usize>) -> Range<usize> {
    let start = literal.range.start + 1;
    let written = &text[start..literal.range.end - 1];
    let find = |said: usize| {
        let (mut at, mut told) = (0, 0);
        while told < said {
            let rest = &written[at..];
            // The second half of a surrogate pair is one escape with the first.
            let (bytes, chars) = match rest.as_bytes() {
                [b'\\', b'u', hex @ ..] => {
                    let code = hex.get(..4).and_then(|hex| str::from_utf8(hex).ok());
                    let code = code.and_then(|hex| u32::from_str_radix(hex, 16).ok()).unwrap_or_default();
                    char::from_u32(code).map_or((12, 4), |char| (6, char.len_utf8()))
                }
                [b'\\', ..] => (2, 1),
                [b'\n' | b'\r', ..] => (1, 0),
                _ => rest.chars().next().map_or((1, 1), |char| (char.len_utf8(), char.len_utf8())),
            };
            (at, told) = (at + bytes, told + chars);
        }
        start + at.min(written.len())
    };
    let end = find(said.end);
    // What begins behind a line break begins on the next line.
    let from = find(said.start);
    let breaks = text[from..end].len() - text[from..end].trim_start_matches(BREAKS).len();
    from + breaks..end
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An object without the line breaks in its texts, but for those behind a backslash.
    fn joined(text: &str) -> String {
        if !text.trim_start().starts_with('{') {
            return text.to_owned();
        }
        let (mut is_text, mut is_escaped) = (false, false);
        let keep = |char: &char| {
            let is_kept = !is_text || is_escaped || !BREAKS.contains(char);
            is_text ^= *char == '"' && !is_escaped;
            is_escaped = is_text && *char == '\\' && !is_escaped;
            is_kept
        };
        text.chars().filter(keep).collect()
    }

    proptest! {
        /// Against another reader of JSON.
        #[test]
        fn json_is_what_is_read_and_nothing_else(
            text in r#"([\[\]{},:"'\\/#]|\\u(d83d|de00|00e9|[0-9a-f]{0,4})|\\[nbx"]|"a":|"b",|[0-9.eE+-]|true|null|NaN|\s|\x00|\x0b|é){0,16}"#,
        ) {
            let oracle = serde_json::from_str::<serde_json::Value>(&joined(&text));
            // Numbers are looked at when somebody wants one, keys when somebody knows them.
            prop_assume!(!matches!(&oracle, Err(error) if error.to_string().contains("out of range")));
            prop_assert_eq!(parse(&text).is_ok(), oracle.is_ok(), "{:?} {:?}", text, oracle);
        }

        #[test]
        fn numbers_are_those_of_json(text in "-?[0-9]{0,3}[.]?[0-9]{0,2}([eE][+-]?[0-9]{0,2})?") {
            prop_assert_eq!(parse(&text).is_ok(), serde_json::from_str::<serde_json::Value>(&text).is_ok());
        }

        #[test]
        fn a_part_of_a_text_is_found_where_it_is_written(
            parts in prop::collection::vec(prop_oneof![Just("a"), Just("é"), Just("😀"), Just("\n"), Just("\"")], 3..20),
            is_escaped in prop::collection::vec(any::<bool>(), 20),
        ) {
            let written: Vec<_> = parts.iter().zip(is_escaped).map(|(part, is_escaped)| {
                let units = part.encode_utf16().fold(String::new(), |units, unit| format!("{units}\\u{unit:04x}"));
                let plain = serde_json::to_string(part).unwrap();
                if is_escaped { units } else { plain[1..plain.len() - 1].to_owned() }
            }).collect();
            let text = format!("  \"{}\"", written.concat());
            let Ok(Value::StringLit(literal)) = parse(&text) else { panic!("{text}") };
            let said = parts[0].len()..parts.concat().len() - parts[parts.len() - 1].len();
            prop_assert_eq!(&text[place_in(&text, &literal, said)], written[1..written.len() - 1].concat());
        }
    }
}
