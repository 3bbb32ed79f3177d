//! Texts of others in messages.

use std::borrow::Cow;

/// The most characters of a text that a message repeats.
const SHOWN_CHARS: usize = 120;

/// A text for a message: shortened, and [`printable`].
///
/// ```
/// use stockade_model::message::shown;
///
/// assert_eq!(shown("a\nb"), "a\u{fffd}b");
/// assert_eq!(shown(&"a".repeat(200)).len(), 123);
/// ```
#[must_use]
pub fn shown(text: &str) -> String {
    shown_to(text, SHOWN_CHARS)
}

/// The same with so many characters.
#[must_use]
pub fn shown_to(text: &str, chars_max: usize) -> String {
    let end = text.char_indices().nth(chars_max).map(|(end, _)| end);
    let shown = printable(&text[..end.unwrap_or(text.len())]);
    if end.is_some() { format!("{shown}...") } else { shown.into_owned() }
}

/// True for characters that a terminal obeys instead of showing them: control characters (C0, DEL and C1, so also line ends and
/// tabs), those that change the direction of the text after them (UAX 9), and other line ends.
#[must_use]
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text of one line without characters that a terminal would obey.
///
/// ```
/// use stockade_model::message::printable;
///
/// assert_eq!(printable("\u{1b}[2Ja\u{202e}b"), "\u{fffd}[2Ja\u{fffd}b");
/// ```
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    replaced(text, is_unprintable)
}

/// The same of several lines: line ends and tabs stay.
#[must_use]
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    replaced(text, |c| is_unprintable(c) && c != '\n' && c != '\t')
}

fn replaced(text: &str, is_replaced: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.contains(&is_replaced) { text.replace(&is_replaced, "\u{fffd}").into() } else { text.into() }
}

/// A [`printable`] text in lines of at most `columns` characters, and of one at least. A longer word, such as a URL, is divided.
///
/// ```
/// use stockade_model::message::wrapped;
///
/// assert_eq!(wrapped("one two http://long.example", 8), ["one two", "http://l", "ong.exam", "ple"]);
/// ```
#[must_use]
pub fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = Vec::new();
    // Spaces stay as they are within a line.
    let (mut line, mut width) = (String::new(), 0);
    for word in printable(text).split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > columns {
            lines.push(std::mem::take(&mut line));
            width = 0;
        } else if width > 0 {
            line.push(' ');
            width += 1;
        }
        for c in word.chars() {
            if width == columns {
                lines.push(std::mem::take(&mut line));
                width = 0;
            }
            line.push(c);
            width += 1;
        }
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}
