//! Bodies with holes in them.

use std::ops::Range;

use super::{
    CONTENT_BYTES_MAX, Part,
    error::{Wrong, echo},
    units::{size, too_large},
};

/// A body has no more.
const TAGS_MAX: usize = 100_000;

/// Takes a body apart. What is between `<<` and the next `>>` of the same line is a tag; `place` tells
/// where some bytes of the body are written.
pub(super) fn template(body: &str, place: impl Fn(Range<usize>) -> Range<usize>) -> Result<Vec<Part>, Wrong> {
    let (mut parts, mut text) = (Vec::new(), 0);
    let (mut tags, mut bytes) = (0, 0_u64);
    let mut line_start = 0;
    for line in body.split_inclusive('\n') {
        let mut from = 0;
        while let Some((start, end)) = tag(line, from) {
            let at = line_start + start..line_start + end;
            tags += 1;
            if tags > TAGS_MAX {
                return Err(Wrong::new("a body has at most 100,000 tags", "write fewer", place(at)));
            }
            bytes += (at.start - text) as u64;
            let part = part(&body[at.start + 2..at.end - 2], || place(at.clone()))?;
            if let Part::Random(size) = part {
                bytes = bytes.saturating_add(size);
            }
            if bytes > CONTENT_BYTES_MAX {
                return Err(too_large(place(at)));
            }
            if text < at.start {
                parts.push(Part::Text(body[text..at.start].to_owned()));
            }
            parts.push(part);
            (text, from) = (at.end, end);
        }
        line_start += line.len();
    }
    if bytes + (body.len() - text) as u64 > CONTENT_BYTES_MAX {
        return Err(too_large(place(0..body.len())));
    }
    if text < body.len() {
        parts.push(Part::Text(body[text..].to_owned()));
    }
    Ok(parts)
}

/// Where the next tag of a line begins and ends; there is at least one character in it.
fn tag(line: &str, from: usize) -> Option<(usize, usize)> {
    let start = from + line[from..].find("<<")?;
    let inside = &line[start + 2..];
    let first = inside.chars().next()?.len_utf8();
    let end = inside[first..].find(">>")?;
    Some((start, start + 2 + first + end + 2))
}

fn part(tag: &str, place: impl Fn() -> Range<usize>) -> Result<Part, Wrong> {
    match tag.trim() {
        "version" => Ok(Part::Version),
        text => size(text, 0..0).map(Part::Random).map_err(|_| {
            let message = format!("`<<{}>>` is no tag", echo(tag));
            Wrong::new(message, "write a size in b, kb or mb, such as `<<256kb>>`, or `<<version>>`", place())
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(body: &str) -> Option<Vec<Part>> {
        template(body, |at| at).ok()
    }

    #[test]
    fn tags_are_found_as_origin_simulator_finds_them() {
        let text = |text: &str| Part::Text(text.to_owned());
        for (body, expected) in [
            ("", Some(vec![])),
            ("a", Some(vec![text("a")])),
            ("<<1kb>>", Some(vec![Part::Random(1_024)])),
            ("a<<16b>>b<<version>>", Some(vec![text("a"), Part::Random(16), text("b"), Part::Version])),
            ("<<1b>><<2b>>>", Some(vec![Part::Random(1), Part::Random(2), text(">")])),
            ("<<0b>>", Some(vec![Part::Random(0)])),
            // No tag: nothing in it, no end, or no end on its line.
            ("<<>>", Some(vec![text("<<>>")])),
            ("1 << 2", Some(vec![text("1 << 2")])),
            ("1 << 2\n4 >> 1\n<<1b>>", Some(vec![text("1 << 2\n4 >> 1\n"), Part::Random(1)])),
            ("<<\n1b>>", Some(vec![text("<<\n1b>>")])),
            // A tag that is none of those that there are.
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
    fn a_body_is_bounded_as_a_whole() {
        assert!(parts("<<256mb>>").is_some());
        assert!(parts("<<256mb>>a").is_none());
        assert!(parts("a<<256mb>>").is_none());
        assert!(parts("<<128mb>><<128mb>><<1b>>").is_none());
        assert!(parts(&"<<1b>>".repeat(TAGS_MAX)).is_some());
        assert!(parts(&"<<1b>>".repeat(TAGS_MAX + 1)).is_none());
    }
}
