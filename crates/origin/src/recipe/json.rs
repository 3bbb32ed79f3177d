//! Strict JSON that keeps the place of every value. Depth and number of values are checked before parsing.

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
    error::{RecipeProblem, abbreviate},
};

/// A recipe nests five levels: list, recipe, stages, stage, shares.
const DEPTH_MAX: usize = 32;
/// Bound of commas, colons and opening brackets. A value of one byte takes up to 250 bytes in memory.
const VALUES_MAX: usize = 1_000_000;

/// No extension of JSON.
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

/// Remedy for a text that is not a recipe.
pub(super) const RECIPE_HELP: &str =
    "write a recipe, such as `{\"body\": \"hello\", \"stages\": [{\"at\": 0}]}`";

const LINE_BREAKS: [char; 2] = ['\n', '\r'];

/// Parses a text that consists of one value. If it is an object, its strings may contain line breaks, which are removed:
/// `OriginSimulator` removes all line breaks of a recipe.
pub(super) fn parse_json(text: &str) -> Result<Value<'_>, RecipeProblem> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(RecipeProblem::new("the text has more than 64 MiB", "send fewer recipes at once", 0..0));
    }
    let parse = |text| parse_to_ast(text, &CollectOptions::default(), &STRICT);
    let mut multiline = None;
    let scanned = scan(text, &mut multiline);
    // A string on several lines before the error is most likely one whose closing quote is missing.
    let unclosed_before =
        |offset: usize| multiline.clone().filter(|span| span.start < offset).map(unclosed_string);
    if let Err(problem) = scanned {
        // A syntax error in front of the problem comes first, unless the syntax is merely incomplete.
        let prefix = &text[..problem.start()];
        return Err(match parse(prefix) {
            Err(error) if error.range().end < prefix.len() => {
                unclosed_before(error.range().start).unwrap_or_else(|| syntax_problem(&error, text))
            }
            _ => unclosed_before(problem.start()).unwrap_or(problem),
        });
    }
    match parse(text) {
        Ok(parsed) => {
            let no_value = || RecipeProblem::new("the text contains no recipe", RECIPE_HELP, 0..0);
            let mut value = parsed.value.ok_or_else(no_value)?;
            if multiline.is_some() {
                remove_line_breaks(&mut value, text)?;
            }
            Ok(value)
        }
        Err(error) => {
            Err(unclosed_before(error.range().start).unwrap_or_else(|| syntax_problem(&error, text)))
        }
    }
}

/// Removes the line breaks from all strings of a value; `text` is the whole text.
fn remove_line_breaks(value: &mut Value<'_>, text: &str) -> Result<(), RecipeProblem> {
    let remove_from_string = |literal: &mut StringLit<'_>| {
        let written = &text[span(literal)];
        if written.contains(LINE_BREAKS) {
            let in_one_line = serde_json::from_str(&written.replace(LINE_BREAKS, ""));
            literal.value = Cow::Owned(in_one_line.map_err(|_| unclosed_string(span(literal)))?);
        }
        Ok(())
    };
    match value {
        Value::StringLit(literal) => remove_from_string(literal),
        Value::Array(list) => list.elements.iter_mut().try_for_each(|value| remove_line_breaks(value, text)),
        Value::Object(object) => object.properties.iter_mut().try_for_each(|property| {
            if let ObjectPropName::String(literal) = &mut property.name {
                remove_from_string(literal)?;
            }
            remove_line_breaks(&mut property.value, text)
        }),
        Value::NumberLit(_) | Value::BooleanLit(_) | Value::NullKeyword(_) => Ok(()),
    }
}

/// Checks the bounds, and rejects characters that the parser accepts although JSON does not. Sets `multiline` to the
/// first string with a line break, from its quote up to the break.
fn scan(text: &str, multiline: &mut Option<Range<usize>>) -> Result<(), RecipeProblem> {
    let is_object = text.trim_start().starts_with('{');
    let (mut depth, mut values) = (0_usize, 0_usize);
    let mut quote = None;
    let mut is_escaped = false;
    for (offset, byte) in text.bytes().enumerate() {
        if let Some(start) = quote {
            match byte {
                b'\n' | b'\r' if is_object && !is_escaped => _ = multiline.get_or_insert(start..offset),
                b'\n' | b'\r' => return Err(unclosed_string(start..offset)),
                0..0x20 => return Err(stray_character(text, offset)),
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = true,
                b'"' => quote = None,
                _ => {}
            }
            continue;
        }
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => {}
            b'"' => quote = Some(offset),
            b'{' | b'[' => (depth, values) = (depth + 1, values + 1),
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' | b':' => values += 1,
            0..0x20 | 0x7f.. | b'/' | b'#' | b'\'' => return Err(stray_character(text, offset)),
            _ => {}
        }
        if depth > DEPTH_MAX {
            let message = format!("brackets nest more than {DEPTH_MAX} levels");
            return Err(RecipeProblem::new(
                message,
                "remove brackets; a recipe nests five levels",
                offset..offset + 1,
            ));
        }
        if values > VALUES_MAX {
            let message = "the text has more than a million values up to here";
            return Err(RecipeProblem::new(message, "send fewer recipes at once", offset..offset + 1));
        }
    }
    quote.map_or(Ok(()), |start| Err(unclosed_string(start..text.len())))
}

fn unclosed_string(span: Range<usize>) -> RecipeProblem {
    let help = "close it with `\"`; write a line break in it as `\\n`";
    RecipeProblem::new("the string that begins here does not end on its line", help, span)
}

/// A character that JSON does not allow at this place.
fn stray_character(text: &str, offset: usize) -> RecipeProblem {
    let char = text[offset..].chars().next().unwrap_or_default();
    let code = u32::from(char);
    let (message, help) = match char {
        '/' | '#' => ("JSON has no comments".to_owned(), "remove it".to_owned()),
        '\'' => ("JSON has no single quotes".to_owned(), "write `\"`".to_owned()),
        '\u{FEFF}' => {
            let message = "the text contains a byte order mark".to_owned();
            (message, "save it as UTF-8 without a byte order mark".to_owned())
        }
        _ if code < 0x20 => (
            format!("JSON does not allow the control character U+{code:04X} here"),
            format!("remove it, or write it in a string as `\\u{code:04x}`"),
        ),
        _ => (
            format!("U+{code:04X} is outside of a string"),
            "put the text in `\"`, or remove the character".to_owned(),
        ),
    };
    RecipeProblem::new(message, help, offset..offset + char.len_utf8())
}

/// Describes a syntax error as `expected X, found Y`.
fn syntax_problem(error: &ParseError, text: &str) -> RecipeProblem {
    use ParseErrorKind as Kind;
    let span = error.range().start..error.range().end.max(error.range().start);
    let found = match &text[span.clone()] {
        "" => "found the end of the text".to_owned(),
        // A string may be a URL with a password, so the message does not repeat it.
        found if found.starts_with('"') => "found a string".to_owned(),
        found => format!("found `{}`", abbreviate(found)),
    };
    let opening = span.start..span.start + 1;
    let (message, help, span) = match error.kind() {
        Kind::ExpectedComma if text[span.start..].starts_with(|next: char| next.is_ascii_digit()) => {
            ("a number begins with 0".to_owned(), "remove the leading 0", span)
        }
        Kind::ExpectedComma => ("a comma is missing here".to_owned(), "write `,` between two values", span),
        Kind::TrailingCommasNotAllowed => {
            ("a comma follows the last value".to_owned(), "remove it, or add a value", span)
        }
        Kind::ExpectedColonAfterObjectKey => {
            (format!("expected the colon after a key, {found}"), "write `:` between key and value", span)
        }
        Kind::ExpectedObjectValue => (format!("expected the value of a key, {found}"), VALUE_HELP, span),
        Kind::UnterminatedObject => {
            ("the object that begins here is not closed".to_owned(), "write `}` at its end", opening)
        }
        Kind::UnterminatedArray => {
            ("the list that begins here is not closed".to_owned(), "write `]` at its end", opening)
        }
        Kind::MultipleRootJsonValues => (
            "more text follows the recipe".to_owned(),
            "write several recipes as a list: `[{...}, {...}]`",
            span,
        ),
        Kind::UnexpectedTokenInObject | Kind::ExpectedStringObjectProperty => {
            (format!("expected a key, {found}"), "write a key in `\"`, or close the object with `}`", span)
        }
        Kind::UnexpectedCloseBrace => {
            (format!("expected a value, {found}"), "write a value, or close the list with `]`", span)
        }
        Kind::ExpectedDigit
        | Kind::ExpectedDigitFollowingNegativeSign
        | Kind::ExpectedPlusMinusOrDigitInNumberLiteral => {
            (format!("expected a digit, {found}"), NUMBER_HELP, span)
        }
        Kind::BareDecimalPointNumbersNotAllowed
        | Kind::HexadecimalNumbersNotAllowed
        | Kind::NonFiniteNumbersNotAllowed
        | Kind::UnaryPlusNumbersNotAllowed => {
            ("JSON does not allow this form of a number".to_owned(), NUMBER_HELP, span)
        }
        Kind::String(kind) => escape_problem(kind, span),
        _ => (format!("expected a value, {found}"), VALUE_HELP, span),
    };
    RecipeProblem::new(message, help, span)
}

const VALUE_HELP: &str = "write text in `\"`, a number such as 0.5, true, false, null, `[` or `{`";
const NUMBER_HELP: &str = "write a number such as 0.5, 12 or 1e3";

/// An invalid escape sequence. The span covers its backslash alone.
fn escape_problem(kind: &ParseStringErrorKind, span: Range<usize>) -> (String, &'static str, Range<usize>) {
    let (message, help) = match kind {
        ParseStringErrorKind::ExpectedFourHexDigits => (
            "four hexadecimal digits have to follow `\\u`",
            "write an escape such as `\\u00e9`, or a backslash as `\\\\`",
        ),
        ParseStringErrorKind::InvalidUnicodeEscapeSequence(_) => (
            "half of a surrogate pair is missing",
            "write both halves, as in `\\ud83d\\ude00`, or the character itself",
        ),
        _ => (
            "the character after this backslash cannot be escaped",
            "write a backslash as `\\\\`; JSON has `\\\" \\\\ \\/ \\b \\f \\n \\r \\t` and `\\u00e9`",
        ),
    };
    (message.to_owned(), help, span.start..span.start + 1)
}

pub(super) fn span(node: &impl Ranged) -> Range<usize> {
    node.start()..node.end()
}

/// The span of a value's first character: of an object, its brace.
pub(super) fn first_char(node: &impl Ranged) -> Range<usize> {
    node.start()..node.start() + 1
}

/// Maps a span of a string's value to the span of its source, which may contain escapes and line breaks.
pub(super) fn source_span(text: &str, literal: &StringLit<'_>, span: Range<usize>) -> Range<usize> {
    let start = literal.range.start + 1;
    let source = &text[start..literal.range.end - 1];
    let find = |value_offset: usize| {
        let (mut offset, mut decoded) = (0, 0);
        while decoded < value_offset {
            let rest = &source[offset..];
            // Both halves of a surrogate pair count as one escape.
            let (bytes, value_bytes) = match rest.as_bytes() {
                [b'\\', b'u', hex @ ..] => {
                    let code = hex.get(..4).and_then(|hex| str::from_utf8(hex).ok());
                    let code = code.and_then(|hex| u32::from_str_radix(hex, 16).ok()).unwrap_or_default();
                    char::from_u32(code).map_or((12, 4), |char| (6, char.len_utf8()))
                }
                [b'\\', ..] => (2, 1),
                [b'\n' | b'\r', ..] => (1, 0),
                _ => rest.chars().next().map_or((1, 1), |char| (char.len_utf8(), char.len_utf8())),
            };
            (offset, decoded) = (offset + bytes, decoded + value_bytes);
        }
        start + offset.min(source.len())
    };
    let end = find(span.end);
    // A span that begins behind a line break begins on the next line.
    let begin = find(span.start);
    let breaks = text[begin..end].len() - text[begin..end].trim_start_matches(LINE_BREAKS).len();
    begin + breaks..end
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Removes the line breaks in an object's strings, except those behind a backslash.
    fn joined(text: &str) -> String {
        if !text.trim_start().starts_with('{') {
            return text.to_owned();
        }
        let (mut is_string, mut is_escaped) = (false, false);
        let keep = |char: &char| {
            let is_kept = !is_string || is_escaped || !LINE_BREAKS.contains(char);
            is_string ^= *char == '"' && !is_escaped;
            is_escaped = is_string && *char == '\\' && !is_escaped;
            is_kept
        };
        text.chars().filter(keep).collect()
    }

    proptest! {
        /// The oracle is `serde_json`.
        #[test]
        fn parser_accepts_json_and_nothing_else(
            text in r#"([\[\]{},:"'\\/#]|\\u(d83d|de00|00e9|[0-9a-f]{0,4})|\\[nbx"]|"a":|"b",|[0-9.eE+-]|true|null|NaN|\s|\x00|\x0b|é){0,16}"#,
        ) {
            let oracle = serde_json::from_str::<serde_json::Value>(&joined(&text));
            // This parser leaves the range of numbers to its callers.
            prop_assume!(!matches!(&oracle, Err(error) if error.to_string().contains("out of range")));
            prop_assert_eq!(parse_json(&text).is_ok(), oracle.is_ok(), "{:?} {:?}", text, oracle);
        }

        #[test]
        fn parser_accepts_the_numbers_of_json(text in "-?[0-9]{0,3}[.]?[0-9]{0,2}([eE][+-]?[0-9]{0,2})?") {
            prop_assert_eq!(parse_json(&text).is_ok(), serde_json::from_str::<serde_json::Value>(&text).is_ok());
        }

        #[test]
        fn span_of_a_value_maps_to_its_source(
            parts in prop::collection::vec(prop_oneof![Just("a"), Just("é"), Just("😀"), Just("\n"), Just("\"")], 3..20),
            is_escaped in prop::collection::vec(any::<bool>(), 20),
        ) {
            let sources: Vec<_> = parts.iter().zip(is_escaped).map(|(part, is_escaped)| {
                let units = part.encode_utf16().fold(String::new(), |units, unit| format!("{units}\\u{unit:04x}"));
                let plain = serde_json::to_string(part).unwrap();
                if is_escaped { units } else { plain[1..plain.len() - 1].to_owned() }
            }).collect();
            let text = format!("  \"{}\"", sources.concat());
            let Ok(Value::StringLit(literal)) = parse_json(&text) else { panic!("{text}") };
            let inner = parts[0].len()..parts.concat().len() - parts[parts.len() - 1].len();
            prop_assert_eq!(&text[source_span(&text, &literal, inner)], sources[1..sources.len() - 1].concat());
        }
    }
}
