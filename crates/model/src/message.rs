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
    let mut shown: String =
        text.chars().take(SHOWN_CHARS).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        shown.push_str("...");
    }
    shown
}
