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

/// The same with at most `most` characters.
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

/// The columns of a terminal that a [`printable`] text takes: two for a wide character (UAX 11), none for a mark on the one before it.
///
/// ```
/// use stockade_model::message::columns;
///
/// assert_eq!(columns("cafe\u{301} \u{6771}\u{4eac}"), 9);
/// ```
#[cfg(feature = "columns")]
#[must_use]
pub fn columns(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

#[cfg(feature = "columns")]
fn columns_of(c: char) -> usize {
    // Replaced where it is shown.
    unicode_width::UnicodeWidthChar::width(c).unwrap_or(1)
}

/// The start of a text, up to a number of [`columns`].
#[cfg(feature = "columns")]
#[must_use]
pub fn cut(text: &str, columns_max: usize) -> &str {
    let mut width = 0;
    let mut end = text.char_indices().skip_while(|(_, c)| {
        width += columns_of(*c);
        width <= columns_max
    });
    end.next().map_or(text, |(end, _)| &text[..end])
}

/// A [`printable`] text in lines, each up to a number of [`columns`], two at least. A longer word, such as a URL, is divided.
///
/// ```
/// use stockade_model::message::wrapped;
///
/// assert_eq!(wrapped("one two http://long.example", 8), ["one two", "http://l", "ong.exam", "ple"]);
/// ```
#[cfg(feature = "columns")]
#[must_use]
pub fn wrapped(text: &str, columns_max: usize) -> Vec<String> {
    let columns_max = columns_max.max(2);
    let mut lines = Vec::new();
    // Spaces stay as they are within a line.
    let (mut line, mut width) = (String::new(), 0);
    for word in printable(text).split(' ') {
        if width > 0 && width + 1 + columns(word) > columns_max {
            lines.push(std::mem::take(&mut line));
            width = 0;
        } else if width > 0 {
            line.push(' ');
            width += 1;
        }
        for c in word.chars() {
            if width + columns_of(c) > columns_max {
                lines.push(std::mem::take(&mut line));
                width = 0;
            }
            line.push(c);
            width += columns_of(c);
        }
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}
