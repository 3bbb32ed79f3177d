//! Texts of others in messages.

/// The most characters of a text that a message repeats.
const SHOWN_CHARS: usize = 120;

/// A text for a message: shortened, and without control characters.
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
    let mut shown: String =
        text.chars().take(chars_max).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(chars_max).is_some() {
        shown.push_str("...");
    }
    shown
}
