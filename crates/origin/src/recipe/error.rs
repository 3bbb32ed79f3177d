//! Errors in recipes: the message, the place in the text, and the remedy.

use std::{fmt::Write, ops::Range};

use miette::{Diagnostic, MietteError, MietteSpanContents, SourceCode, SourceSpan, SpanContents};
use stockade_model::message::is_unprintable;

/// An error in a recipe.
///
/// `Display` shows the message alone, for reports that show place and remedy themselves (miette's do).
/// [`RecipeError::in_one_line`] shows everything.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
pub struct RecipeError {
    message: String,
    #[source_code]
    excerpt: Excerpt,
    #[label]
    span: SourceSpan,
    #[help]
    help: String,
}

impl RecipeError {
    pub(super) fn new(problem: RecipeProblem, text: &str, name: &str) -> Self {
        let RecipeProblem { message, help, span } = problem;
        let (excerpt, span) = Excerpt::new(text, name, &span);
        Self { message, excerpt, span, help }
    }

    /// Line of the error, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.excerpt.line
    }

    /// Column of the error in characters, from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        self.excerpt.column
    }

    /// `name:line:column: message: remedy`, without line breaks or other control characters.
    #[must_use]
    pub fn in_one_line(&self) -> String {
        let Self { message, excerpt: Excerpt { name, line, column, .. }, help, .. } = self;
        format!("{name}:{line}:{column}: {message}: {help}").replace(char::is_control, " ")
    }
}

/// A [`RecipeError`] without an excerpt of the text.
#[derive(Debug)]
pub(super) struct RecipeProblem {
    message: String,
    help: String,
    /// The bytes of the text that the message is about.
    span: Range<usize>,
}

impl RecipeProblem {
    pub fn new(message: impl Into<String>, help: impl Into<String>, span: Range<usize>) -> Self {
        Self { message: message.into(), help: help.into(), span }
    }

    pub fn start(&self) -> usize {
        self.span.start
    }
}

/// Characters of a recipe that one message repeats.
const QUOTE_CHARS_MAX: usize = 60;

/// A part of the text for a message: short, and on one line.
pub(super) fn abbreviate(text: &str) -> String {
    let mut quote = String::new();
    for (count, char) in text.chars().enumerate() {
        if count == QUOTE_CHARS_MAX {
            quote.pop();
            quote.push('…');
            break;
        }
        if is_unprintable(char) {
            let _ = write!(quote, "{}", char::REPLACEMENT_CHARACTER);
        } else {
            quote.push(char);
        }
    }
    quote
}

/// Line of a byte, from 1.
pub(super) fn line_number(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// The part of the text that a report shows: the span of the error, and a little around it. Recipes may be a single
/// line of a million characters.
#[derive(Debug)]
struct Excerpt {
    name: String,
    text: String,
    /// Line of the whole text on which the excerpt begins, from 1.
    first_line: usize,
    /// Start of the span in the whole text, from 1.
    line: usize,
    column: usize,
}

const BEFORE_BYTES_MAX: usize = 60;
const SPAN_BYTES_MAX: usize = 100;
const AFTER_BYTES_MAX: usize = 80;

impl Excerpt {
    /// The excerpt, and the span within it.
    fn new(text: &str, name: &str, span: &Range<usize>) -> (Self, SourceSpan) {
        let line_start = text[..span.start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[span.start..].find('\n').map_or(text.len(), |newline| span.start + newline);
        let (line, column) =
            (line_number(text, span.start), text[line_start..span.start].chars().count() + 1);

        let span_end =
            span.end.min(line_end).min(text.floor_char_boundary(span.start + SPAN_BYTES_MAX)).max(span.start);
        let marked = printable(&text[span.start..span_end]);
        let (mut before, mut first_line) = (String::new(), line);
        if span.start - line_start > BEFORE_BYTES_MAX {
            before.push('…');
            before += &printable(&text[text.ceil_char_boundary(span.start - BEFORE_BYTES_MAX)..span.start]);
        } else {
            let above = text[..line_start].strip_suffix('\n').and_then(|text| text.rsplit('\n').next());
            if let Some(above) = above.filter(|above| above.len() <= BEFORE_BYTES_MAX + AFTER_BYTES_MAX) {
                before = printable(above) + "\n";
                first_line -= 1;
            }
            before += &printable(&text[line_start..span.start]);
        }
        let mut after = String::new();
        if line_end - span_end > AFTER_BYTES_MAX {
            after += &printable(&text[span_end..text.floor_char_boundary(span_end + AFTER_BYTES_MAX)]);
            after.push('…');
        } else {
            after += &printable(&text[span_end..line_end]);
            let below = text[line_end..].strip_prefix('\n').and_then(|text| text.split('\n').next());
            if let Some(below) = below.filter(|below| below.len() <= BEFORE_BYTES_MAX + AFTER_BYTES_MAX) {
                after.push('\n');
                after += &printable(below);
            }
        }
        let span = SourceSpan::from((before.len(), marked.len()));
        let text = before + &marked + &after;
        (Self { name: name.to_owned(), text, first_line, line, column }, span)
    }
}

/// Replaces characters that would move a terminal's cursor.
fn printable(text: &str) -> String {
    let text = text.strip_suffix('\r').unwrap_or(text);
    text.replace(|char: char| is_unprintable(char) && char != '\t', "\u{FFFD}")
}

impl SourceCode for Excerpt {
    /// The whole excerpt; or, without context lines, the span alone with its line and column in the whole text.
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        lines_before: usize,
        lines_after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let is_span = lines_before == 0 && lines_after == 0;
        let (span, line, column) = if is_span {
            (*span, self.line, self.column)
        } else {
            ((0, self.text.len()).into(), self.first_line, 1)
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

    fn excerpt(text: &str, span: Range<usize>) -> (Excerpt, String) {
        let (excerpt, span) = Excerpt::new(text, "recipe.json", &span);
        let marked = excerpt.text[span.offset()..span.offset() + span.len()].to_owned();
        (excerpt, marked)
    }

    #[test]
    fn short_line_is_shown_with_its_neighbours() {
        let text = "{\n  \"body\": \"é\", \"rout\": 1\r\n}\n";
        let start = text.find("\"rout\"").unwrap();
        let (excerpt, marked) = excerpt(text, start..start + 6);
        assert_eq!((excerpt.line, excerpt.column, excerpt.first_line), (2, 16, 1));
        assert_eq!(
            (marked.as_str(), excerpt.text.as_str()),
            ("\"rout\"", "{\n  \"body\": \"é\", \"rout\": 1\n}")
        );
    }

    #[test]
    fn long_line_is_shown_around_the_span() {
        let text = format!("{}\n{}HERE{}\n", "a".repeat(1_000), "é".repeat(1_000), "\u{1b}".repeat(1_000));
        let start = text.find("HERE").unwrap();
        let (excerpt, marked) = excerpt(&text, start..start + 4);
        assert_eq!((excerpt.line, excerpt.column, marked.as_str()), (2, 1_001, "HERE"));
        assert_eq!(excerpt.text.chars().count(), 1 + 30 + 4 + 80 + 1);
        assert!(!excerpt.text.contains('\u{1b}'));
    }

    #[test]
    fn abbreviated_text_is_short_and_on_one_line() {
        assert_eq!(abbreviate("a\nb"), "a\u{FFFD}b");
        assert_eq!(abbreviate(&"é".repeat(60)), "é".repeat(60));
        assert_eq!(abbreviate(&"é".repeat(1_000)), "é".repeat(59) + "…");
    }
}
