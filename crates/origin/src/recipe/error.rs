//! What is wrong with a recipe: where, and what to write instead.

use std::{fmt::Write, ops::Range};

use miette::{Diagnostic, MietteError, MietteSpanContents, SourceCode, SourceSpan, SpanContents};

/// A recipe cannot be used. It shows the place and the remedy.
///
/// As text it is the message alone, for reports that show place and remedy themselves;
/// [`RecipeError::in_one_line`] has everything.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
pub struct RecipeError {
    message: String,
    #[source_code]
    excerpt: Excerpt,
    #[label]
    at: SourceSpan,
    #[help]
    help: String,
}

impl RecipeError {
    pub(super) fn new(wrong: Wrong, text: &str, name: &str) -> Self {
        let (excerpt, at) = Excerpt::new(text, name, &wrong.at);
        Self { message: wrong.message, excerpt, at, help: wrong.help }
    }

    /// The line that it is about, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.excerpt.line
    }

    /// The character of that line, from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        self.excerpt.column
    }

    /// Name, line, column, message and remedy, without a line break: for logs, and for whoever sent it.
    #[must_use]
    pub fn in_one_line(&self) -> String {
        let Self { message, excerpt: Excerpt { name, line, column, .. }, help, .. } = self;
        format!("{name}:{line}:{column}: {message}: {help}").replace(char::is_control, " ")
    }
}

/// Something is wrong with the text.
#[derive(Debug)]
pub(super) struct Wrong {
    message: String,
    help: String,
    at: Range<usize>,
}

impl Wrong {
    /// What is wrong, what to do about it, and the bytes that it is about.
    pub fn new(message: impl Into<String>, help: impl Into<String>, at: Range<usize>) -> Self {
        Self { message: message.into(), help: help.into(), at }
    }

    /// The byte that it begins at.
    pub fn start(&self) -> usize {
        self.at.start
    }
}

/// So many characters of a recipe are repeated in a message.
const ECHO_CHARS: usize = 60;

/// What was written, as far as a message repeats it: short, and on one line.
pub(super) fn echo(written: &str) -> String {
    let mut echo = String::new();
    for (count, char) in written.chars().enumerate() {
        if count == ECHO_CHARS {
            echo.pop();
            echo.push('…');
            break;
        }
        if char.is_control() {
            let _ = write!(echo, "{}", char::REPLACEMENT_CHARACTER);
        } else {
            echo.push(char);
        }
    }
    echo
}

/// The line of a byte, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// As much of the text as a report shows: the place and a little around it.
#[derive(Debug)]
struct Excerpt {
    name: String,
    text: String,
    /// The line that the excerpt begins on, from 1.
    from_line: usize,
    /// Where the place begins in the whole text, from 1.
    line: usize,
    column: usize,
}

/// A recipe may be one line of a million characters; a screen is not.
const BEFORE_BYTES: usize = 60;
const PLACE_BYTES: usize = 100;
const AFTER_BYTES: usize = 80;

impl Excerpt {
    /// The excerpt, and where the place is in it.
    fn new(text: &str, name: &str, at: &Range<usize>) -> (Self, SourceSpan) {
        let line_start = text[..at.start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[at.start..].find('\n').map_or(text.len(), |newline| at.start + newline);
        let (line, column) = (line_of(text, at.start), text[line_start..at.start].chars().count() + 1);

        let place_end =
            at.end.min(line_end).min(text.floor_char_boundary(at.start + PLACE_BYTES)).max(at.start);
        let place = shown(&text[at.start..place_end]);
        let (mut before, mut from_line) = (String::new(), line);
        if at.start - line_start > BEFORE_BYTES {
            before.push('…');
            before += &shown(&text[text.ceil_char_boundary(at.start - BEFORE_BYTES)..at.start]);
        } else {
            let above = text[..line_start].strip_suffix('\n').and_then(|text| text.rsplit('\n').next());
            if let Some(above) = above.filter(|above| above.len() <= BEFORE_BYTES + AFTER_BYTES) {
                before = shown(above) + "\n";
                from_line -= 1;
            }
            before += &shown(&text[line_start..at.start]);
        }
        let mut after = String::new();
        if line_end - place_end > AFTER_BYTES {
            after += &shown(&text[place_end..text.floor_char_boundary(place_end + AFTER_BYTES)]);
            after.push('…');
        } else {
            after += &shown(&text[place_end..line_end]);
            let below = text[line_end..].strip_prefix('\n').and_then(|text| text.split('\n').next());
            if let Some(below) = below.filter(|below| below.len() <= BEFORE_BYTES + AFTER_BYTES) {
                after.push('\n');
                after += &shown(below);
            }
        }
        let span = SourceSpan::from((before.len(), place.len()));
        let text = before + &place + &after;
        (Self { name: name.to_owned(), text, from_line, line, column }, span)
    }
}

/// Without what would move a terminal's cursor.
fn shown(text: &str) -> String {
    let text = text.strip_suffix('\r').unwrap_or(text);
    text.replace(|char: char| char.is_control() && char != '\t', "\u{FFFD}")
}

impl SourceCode for Excerpt {
    /// All that there is; or the place alone, whose line and column are those in the whole text.
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        lines_before: usize,
        lines_after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let is_place = lines_before == 0 && lines_after == 0;
        let (span, line, column) = if is_place {
            (*span, self.line, self.column)
        } else {
            ((0, self.text.len()).into(), self.from_line, 1)
        };
        let text = self.text.get(span.offset()..span.offset() + span.len());
        let text = text.ok_or(MietteError::OutOfBounds)?;
        let (name, lines) = (self.name.clone(), text.matches('\n').count() + 1);
        let contents =
            MietteSpanContents::new_named(name, text.as_bytes(), span, line - 1, column - 1, lines);
        Ok(Box::new(contents))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excerpt(text: &str, at: Range<usize>) -> (Excerpt, String) {
        let (excerpt, span) = Excerpt::new(text, "recipe.json", &at);
        let place = excerpt.text[span.offset()..span.offset() + span.len()].to_owned();
        (excerpt, place)
    }

    #[test]
    fn short_lines_are_shown_with_the_lines_around_them() {
        let text = "{\n  \"body\": \"é\", \"rout\": 1\r\n}\n";
        let at = text.find("\"rout\"").unwrap();
        let (excerpt, place) = excerpt(text, at..at + 6);
        assert_eq!((excerpt.line, excerpt.column, excerpt.from_line), (2, 16, 1));
        assert_eq!(
            (place.as_str(), excerpt.text.as_str()),
            ("\"rout\"", "{\n  \"body\": \"é\", \"rout\": 1\n}")
        );
    }

    #[test]
    fn of_a_long_line_the_place_is_shown() {
        let text = format!("{}\n{}HERE{}\n", "a".repeat(1_000), "é".repeat(1_000), "\u{1b}".repeat(1_000));
        let at = text.find("HERE").unwrap();
        let (excerpt, place) = excerpt(&text, at..at + 4);
        assert_eq!((excerpt.line, excerpt.column, place.as_str()), (2, 1_001, "HERE"));
        assert_eq!(excerpt.text.chars().count(), 1 + 30 + 4 + 80 + 1);
        assert!(!excerpt.text.contains('\u{1b}'));
    }

    #[test]
    fn what_is_echoed_is_short_and_on_one_line() {
        assert_eq!(echo("a\nb"), "a\u{FFFD}b");
        assert_eq!(echo(&"é".repeat(60)), "é".repeat(60));
        assert_eq!(echo(&"é".repeat(1_000)), "é".repeat(59) + "…");
    }
}
