//! Templates: bodies with placeholders such as `<<256kb>>` and `<<version>>`.

use std::ops::Range;

use super::{
    CONTENT_BYTES_MAX, TemplatePart,
    error::{RecipeProblem, abbreviate},
    units::{content_too_large, parse_size},
};

const TAGS_MAX: usize = 100_000;

/// Splits a body into parts. A tag is what stands between `<<` and the next `>>` of the same line. `locate` maps bytes
/// of the body to bytes of the recipe.
pub(super) fn parse_template(
    body: &str,
    locate: impl Fn(Range<usize>) -> Range<usize>,
) -> Result<Vec<TemplatePart>, RecipeProblem> {
    let (mut parts, mut text_start) = (Vec::new(), 0);
    let (mut tags, mut bytes) = (0, 0_u64);
    let mut line_start = 0;
    for line in body.split_inclusive('\n') {
        let mut from = 0;
        while let Some((start, end)) = find_tag(line, from) {
            let span = line_start + start..line_start + end;
            tags += 1;
            if tags > TAGS_MAX {
                return Err(RecipeProblem::new(
                    "a body has at most 100,000 tags",
                    "write fewer tags",
                    locate(span),
                ));
            }
            bytes += (span.start - text_start) as u64;
            let part = parse_tag(&body[span.start + 2..span.end - 2], || locate(span.clone()))?;
            if let TemplatePart::Random(size) = part {
                bytes = bytes.saturating_add(size);
            }
            if bytes > CONTENT_BYTES_MAX {
                return Err(content_too_large(locate(span)));
            }
            if text_start < span.start {
                parts.push(TemplatePart::Text(body[text_start..span.start].to_owned()));
            }
            parts.push(part);
            (text_start, from) = (span.end, end);
        }
        line_start += line.len();
    }
    if bytes + (body.len() - text_start) as u64 > CONTENT_BYTES_MAX {
        return Err(content_too_large(locate(0..body.len())));
    }
    if text_start < body.len() {
        parts.push(TemplatePart::Text(body[text_start..].to_owned()));
    }
    Ok(parts)
}

/// Start and end of the next tag in a line. A tag has at least one character between its brackets.
fn find_tag(line: &str, from: usize) -> Option<(usize, usize)> {
    let start = from + line[from..].find("<<")?;
    let inside = &line[start + 2..];
    let first = inside.chars().next()?.len_utf8();
    let end = inside[first..].find(">>")?;
    Some((start, start + 2 + first + end + 2))
}

fn parse_tag(tag: &str, locate: impl Fn() -> Range<usize>) -> Result<TemplatePart, RecipeProblem> {
    match tag.trim() {
        "version" => Ok(TemplatePart::Version),
        text => parse_size(text, 0..0).map(TemplatePart::Random).map_err(|_| {
            let message = format!("`<<{}>>` is not a tag", abbreviate(tag));
            let help = "write a size in b, kb or mb, such as `<<256kb>>`, or `<<version>>`";
            RecipeProblem::new(message, help, locate())
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(body: &str) -> Option<Vec<TemplatePart>> {
        parse_template(body, |span| span).ok()
    }

    #[test]
    fn tags_are_those_of_origin_simulator() {
        let text = |text: &str| TemplatePart::Text(text.to_owned());
        for (body, expected) in [
            ("", Some(vec![])),
            ("a", Some(vec![text("a")])),
            ("<<1kb>>", Some(vec![TemplatePart::Random(1_024)])),
            (
                "a<<16b>>b<<version>>",
                Some(vec![text("a"), TemplatePart::Random(16), text("b"), TemplatePart::Version]),
            ),
            ("<<1b>><<2b>>>", Some(vec![TemplatePart::Random(1), TemplatePart::Random(2), text(">")])),
            ("<<0b>>", Some(vec![TemplatePart::Random(0)])),
            // Literal text: an empty tag, a tag without an end, or one that ends on another line.
            ("<<>>", Some(vec![text("<<>>")])),
            ("1 << 2", Some(vec![text("1 << 2")])),
            ("1 << 2\n4 >> 1\n<<1b>>", Some(vec![text("1 << 2\n4 >> 1\n"), TemplatePart::Random(1)])),
            ("<<\n1b>>", Some(vec![text("<<\n1b>>")])),
            // Unknown tags.
            ("<<é>>", None),
            ("<<<1b>>", None),
            ("<<>>>", None),
            ("1 << 2 and 4 >> 1", None),
            ("<<1>>", None),
            ("<<-1b>>", None),
        ] {
            assert_eq!(parts(body), expected, "{body}");
        }
    }

    #[test]
    fn size_bound_holds_for_the_whole_body() {
        assert!(parts("<<256mb>>").is_some());
        assert!(parts("<<256mb>>a").is_none());
        assert!(parts("a<<256mb>>").is_none());
        assert!(parts("<<128mb>><<128mb>><<1b>>").is_none());
        assert!(parts(&"<<1b>>".repeat(TAGS_MAX)).is_some());
        assert!(parts(&"<<1b>>".repeat(TAGS_MAX + 1)).is_none());
    }
}
