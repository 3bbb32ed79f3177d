//! The cache key: scheme, authority, path and query of a URL, normalised (RFC 9111, 2; RFC 3986, 6.2.2).
//!
//! Normalisation decodes percent-encoded unreserved characters, writes hexadecimal digits in upper case, and removes dot
//! segments. Some origins distinguish such spellings, so the origin is always sent the key's path
//! ([`CacheKey::path_and_query`]) and never the client's: otherwise the response to one spelling could be stored for another.

use std::{borrow::Borrow, fmt, sync::Arc};

use memchr::{memchr, memchr2, memchr2_iter, memrchr};
use smallvec::SmallVec;
use stockade_http::location::{self, AbsoluteUrl};

/// A normalised URL without a fragment. Created with one allocation; a clone is a reference count.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CacheKey(Arc<str>);

type Buffer = SmallVec<[u8; 512]>;

impl CacheKey {
    /// `authority` passes [`is_host`](stockade_http::host::is_host), or the check of a purge. An empty path becomes `/`, and the query
    /// stays as it is, even if empty.
    #[must_use]
    pub fn new(scheme: &str, authority: &str, path_and_query: &str) -> Self {
        let mut text = Buffer::new();
        text.extend_from_slice(scheme.as_bytes());
        text.make_ascii_lowercase();
        text.extend_from_slice(b"://");
        let default_port = match &text[..] {
            b"http://" => "80",
            b"https://" => "443",
            _ => "",
        };
        push_authority(&mut text, authority, default_port);
        let path_end = memchr(b'?', path_and_query.as_bytes()).unwrap_or(path_and_query.len());
        let (path, query) = path_and_query.split_at(path_end);
        push_path(&mut text, path.as_bytes());
        text.extend_from_slice(query.as_bytes());
        Self(match std::str::from_utf8(&text) {
            Ok(text) => text.into(),
            Err(_) => String::from_utf8_lossy(&text).into(),
        })
    }

    /// The text of an existing key.
    #[must_use]
    pub fn from_normalised(text: &str) -> Self {
        Self(text.into())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `http` or `https`.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.0[..self.scheme_end()]
    }

    /// Host without the root domain's dot, and port unless it is the scheme's default.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.0[self.scheme_end() + 3..self.authority_end()]
    }

    /// The request target for the origin.
    #[must_use]
    pub fn path_and_query(&self) -> &str {
        &self.0[self.authority_end()..]
    }

    #[must_use]
    pub fn path(&self) -> &str {
        let whole = self.path_and_query();
        &whole[..memchr(b'?', whole.as_bytes()).unwrap_or(whole.len())]
    }

    /// True if an origin may read a dot segment where this key has none: `/static/..%2Faccount` may be the page of an account.
    ///
    /// Origins decode codes once or repeatedly, some also `%u002F`, overlong UTF-8 and compatibility forms, take `\` for `/`,
    /// and drop parameters, control characters, trailing spaces, and whatever follows a NUL. Only letters, digits, `-`, `_` and `~`
    /// are text for all of them. So any other character but a dot may separate two segments, end one, or vanish, and what is not
    /// ASCII may be dots, too. A path is ambiguous if dots, one or two, or a code that may be dots, are alone between
    /// two of these characters, or between one of them and a slash.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        self.path().as_bytes().split(|byte| *byte == b'/').any(is_ambiguous_segment)
    }

    /// Same scheme and authority (RFC 9110, 4.3.1).
    #[must_use]
    pub fn has_same_origin(&self, other: &Self) -> bool {
        self.0[..self.authority_end()] == other.0[..other.authority_end()]
    }

    /// Resolves a reference in a response (RFC 3986, 5.2); `None` if it is not HTTP.
    #[must_use]
    pub fn resolve(&self, reference: &str) -> Option<Self> {
        let path_and_query = self.path_and_query();
        let base = AbsoluteUrl {
            scheme: self.scheme(),
            authority: self.authority(),
            path_and_query: path_and_query.into(),
        };
        let to = location::resolve(&base, reference).filter(|to| !to.authority.contains(['@', '*']))?;
        Some(Self::new(to.scheme, to.authority, &to.path_and_query))
    }

    fn scheme_end(&self) -> usize {
        // The scheme has no colon.
        memchr(b':', self.0.as_bytes()).unwrap_or(0)
    }

    fn authority_end(&self) -> usize {
        let start = self.scheme_end() + 3;
        let rest = self.0.as_bytes().get(start..).unwrap_or_default();
        match memchr2(b'/', b'?', rest) {
            Some(at) if rest[at] == b'/' => start + at,
            // `OPTIONS *`: the only path without a slash.
            end => {
                let end = end.unwrap_or(rest.len());
                start + if rest[..end].ends_with(b"*") { end - 1 } else { end }
            }
        }
    }
}

impl fmt::Display for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for CacheKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Appends the host in lower case, and the port unless it is the default (RFC 9110, 4.2.3). One host has one key, also with
/// the dot of the root domain, which routes ignore too, and with leading zeros of the port.
fn push_authority(text: &mut Buffer, authority: &str, default_port: &str) {
    let host_end = match memrchr(b']', authority.as_bytes()) {
        Some(bracket) => bracket + 1,
        None => memchr(b':', authority.as_bytes()).unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(host_end);
    // A host of dots alone stays: a URL needs one.
    let name = Some(host.trim_end_matches('.')).filter(|name| !name.is_empty()).unwrap_or(host);
    let start = text.len();
    text.extend_from_slice(name.as_bytes());
    text[start..].make_ascii_lowercase();
    let digits = port.strip_prefix(':').unwrap_or(port);
    let number = digits.trim_start_matches('0');
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    match number {
        "" if digits.is_empty() => {}
        _ if is_number && number == default_port => {}
        "" => text.extend_from_slice(b":0"),
        _ if is_number => {
            text.push(b':');
            text.extend_from_slice(number.as_bytes());
        }
        _ => text.extend_from_slice(port.as_bytes()),
    }
}

/// Appends the normalised path.
fn push_path(text: &mut Buffer, path: &[u8]) {
    if path == b"*" {
        // `OPTIONS *`.
        text.push(b'*');
        return;
    }
    let relative = path.strip_prefix(b"/").unwrap_or(path);
    let is_after_slash = |at: usize| at == 0 || relative[at - 1] == b'/';
    if memchr2_iter(b'.', b'%', relative).all(|at| relative[at] == b'.' && !is_after_slash(at)) {
        text.push(b'/');
        text.extend_from_slice(relative);
        return;
    }
    let root = text.len();
    let mut segments = relative.split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let start = text.len();
        text.push(b'/');
        push_segment(text, segment);
        let is_last = segments.peek().is_none();
        match &text[start + 1..] {
            b"." => text.truncate(start),
            b".." => {
                let parent = text[root..start].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                text.truncate(root + parent);
            }
            _ => continue,
        }
        if is_last {
            text.push(b'/');
        }
    }
}

/// Decodes unreserved characters, and writes other codes in upper case (RFC 3986, 6.2.2.1 and 6.2.2.2).
///
/// A segment with an invalid `%` stays as it is: decoding what follows could complete it to a code.
fn push_segment(text: &mut Buffer, segment: &[u8]) {
    let starts_code = |(at, _): (usize, &u8)| {
        segment.get(at + 1..at + 3).is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit))
    };
    if !segment.iter().enumerate().filter(|(_, byte)| **byte == b'%').all(starts_code) {
        return text.extend_from_slice(segment);
    }
    let mut rest = segment;
    while let Some((byte, after)) = rest.split_first() {
        match code(rest) {
            Some(decoded) => {
                if decoded.is_ascii_alphanumeric() || matches!(decoded, b'-' | b'.' | b'_' | b'~') {
                    text.push(decoded);
                } else {
                    text.push(b'%');
                    text.extend(after[..2].iter().map(u8::to_ascii_uppercase));
                }
                rest = &after[2..];
            }
            None => {
                text.push(*byte);
                rest = after;
            }
        }
    }
}

/// The readings of a character of a segment by origins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Itself.
    Text,
    Dot,
    /// Itself, a slash, the end of the segment, or nothing.
    Separator,
    /// As a separator, or dots.
    Anything,
}

/// The text between two characters that may separate segments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Between {
    Nothing,
    Dots(usize),
    Text,
}

/// [`CacheKey::is_ambiguous`] of one segment. A reading of it with a dot segment has, between two separators, dots and characters
/// that are read as dots or nothing. If there are dots, they are alone between two characters that are not text; if not, one
/// of those that are read as dots is.
fn is_ambiguous_segment(segment: &[u8]) -> bool {
    let (mut between, mut is_split, mut is_anything_alone) = (Between::Nothing, false, false);
    let mut rest = segment;
    while let Some((reading, after)) = next_reading(rest) {
        rest = after;
        between = match (reading, between) {
            (Reading::Text, _) | (Reading::Dot, Between::Text) => Between::Text,
            (Reading::Dot, Between::Nothing) => Between::Dots(1),
            (Reading::Dot, Between::Dots(count)) => Between::Dots(count + 1),
            (_, Between::Dots(1..=2)) => return true,
            (_, Between::Nothing) if is_anything_alone => return true,
            (reading, between) => {
                is_split = true;
                is_anything_alone = reading == Reading::Anything && between == Between::Nothing;
                Between::Nothing
            }
        };
    }
    match between {
        Between::Nothing => is_anything_alone,
        Between::Dots(count) => is_split && count <= 2,
        Between::Text => false,
    }
}

/// The next character or code of a segment, and the rest.
fn next_reading(segment: &[u8]) -> Option<(Reading, &[u8])> {
    let (byte, after) = segment.split_first()?;
    Some(match byte {
        b'.' => (Reading::Dot, after),
        b'-' | b'_' | b'~' => (Reading::Text, after),
        byte if byte.is_ascii_alphanumeric() => (Reading::Text, after),
        b'%' => match code(segment) {
            // Decoded again, it may complete a code with what follows.
            Some(b'%') => (Reading::Anything, without_code_rest(&segment[3..])),
            None => (Reading::Anything, without_code_rest(after)),
            Some(b'-' | b'.' | b'_' | b'~' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z') => {
                (Reading::Anything, &segment[3..])
            }
            Some(0..0x80) => (Reading::Separator, &segment[3..]),
            Some(_) => match encoded_character(segment) {
                Some(character) => {
                    let reading = if character.is_alphanumeric() { Reading::Text } else { Reading::Anything };
                    (reading, &segment[3 * character.len_utf8()..])
                }
                None => (Reading::Anything, &segment[3..]),
            },
        },
        0..0x80 => (Reading::Separator, after),
        _ => (Reading::Anything, after),
    })
}

/// Without the characters at the start that may be digits of a code, and without the `u` of `%u002E`.
fn without_code_rest(segment: &[u8]) -> &[u8] {
    let mut rest = segment.strip_prefix(b"u").or_else(|| segment.strip_prefix(b"U")).unwrap_or(segment);
    loop {
        rest = match rest.split_first() {
            Some((byte, after)) if byte.is_ascii_hexdigit() => after,
            // Compatibility forms of digits.
            _ => match encoded_character(rest) {
                Some(character) if character.is_alphanumeric() => &rest[3 * character.len_utf8()..],
                _ => return rest,
            },
        };
    }
}

/// The byte of a percent code at the start.
fn code(text: &[u8]) -> Option<u8> {
    match text {
        [b'%', high, low, ..] => Some(hex(*high)? * 16 + hex(*low)?),
        _ => None,
    }
}

/// The character at the start whose bytes in UTF-8 are percent codes. `None`: it is ASCII, or the codes are not UTF-8.
fn encoded_character(text: &[u8]) -> Option<char> {
    let bytes: SmallVec<[u8; 4]> = text.chunks(3).take(4).map_while(code).collect();
    let length = match bytes.first()? {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => return None,
    };
    std::str::from_utf8(bytes.get(..length)?).ok()?.chars().next()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::fuzzing::key::{has_dot_segment, naive_path};

    fn key(path_and_query: &str) -> CacheKey {
        CacheKey::new("http", "example.com", path_and_query)
    }

    #[test]
    fn paths_are_normalised() {
        for (raw, expected) in [
            ("", "/"),
            ("/", "/"),
            ("?", "/?"),
            ("?a=%7e", "/?a=%7e"),
            ("/a?", "/a?"),
            ("/a", "/a"),
            ("/%7euser", "/~user"),
            ("/%41%2d%2E%5f", "/A-._"),
            ("/a%2fb%c3%a9", "/a%2Fb%C3%A9"),
            ("/a%zz%4", "/a%zz%4"),
            ("/%A%61/%61", "/%A%61/a"),
            ("/%", "/%"),
            ("/%25%37%65", "/%257e"),
            ("/a/./b/../c", "/a/c"),
            ("/a/%2e%2E/b", "/b"),
            ("/..", "/"),
            ("/../../a", "/a"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a/b/.", "/a/b/"),
            ("/a//../b", "/a/b"),
            ("//a", "//a"),
            ("/.a/..b/c.", "/.a/..b/c."),
            ("/a?x=/../y", "/a?x=/../y"),
            ("/a;b=1/(c)!'*", "/a;b=1/(c)!'*"),
            ("*", "*"),
            ("a", "/a"),
            ("./a", "/a"),
            ("**", "/**"),
        ] {
            assert_eq!(key(raw).path_and_query(), expected, "{raw}");
        }
        assert_ne!(key("/a"), key("/a?"));
        assert_ne!(key("/a%2fb"), key("/a/b"));
    }

    #[test]
    fn ambiguous_paths_have_a_dot_segment_for_some_origins() {
        for path in [
            "/static/..%2faccount",
            "/static/%2e%2e%5Caccount",
            "/static/..\\account",
            "/static/..;/account",
            "/static/..;a=b%2faccount",
            "/static/.%2faccount",
            "/static/..%252faccount",
            "/static%2f..",
            "/static/..%00/account",
            "/static/.%0a./account",
            "/static/..%c0%af",
            "/static/%c0%ae%c0%ae/account",
            "/static/%ef%bc%8e%ef%bc%8e/account",
            "/static/x%ef%bc%8f..%ef%bc%8faccount",
            "/static/..%2525252faccount",
            "/static/%25252e%25252e/account",
            "/static/%25u002e%25u002e/account",
            "/static/..%23/account",
            "/static/..%3f/account",
            "/static/..%20/account",
            "/static/..+/account",
            "/static/..::$DATA/account",
            "/static/%e2%80%a5/account",
            "/static/.%e2%80%8d./account",
            "/static/%zz%2e%2e/account",
            "/static/%25%2532e%25%2532e/account",
            "/static/x%2f%25%ef%bc%92e%2faccount",
        ] {
            assert!(key(path).is_ambiguous(), "{path}");
        }
        for path in [
            "/static/../account",
            "/",
            "/a%2fb",
            "/a%2f%2fb",
            "/a;b=..c/d",
            "/...",
            "/..a%2f",
            "/a?b=..%2f",
            "/a%255cb",
            "/100%25",
            "/caf%C3%A9",
            "/caf%E9.html",
            "/a%20b",
            "/My%20Report%20(v1.2).pdf",
            "/%D0%90._%D0%A1._%D0%9F%D1%83%D1%88%D0%BA%D0%B8%D0%BD.",
            "/%E6%97%A5%E6%9C%AC/%E3%80%8C%E5%8F%A4%E3%80%8D",
            "/@scope/name@1.0.0/index.min.js;v=1",
            "/group%2Fproject.git/-/raw/main/.env",
            "/.well-known/%7Eacme",
            // A separator alone is not dots, and neither is a percent sign before text.
            "/a/;/b",
            "/@/(/",
            "/sale/%25off",
        ] {
            assert!(!key(path).is_ambiguous(), "{path}");
        }
    }

    #[test]
    fn scheme_and_authority_are_normalised() {
        for (scheme, authority, expected) in [
            ("HTTP", "Example.COM:80", "http://example.com/p?q"),
            ("http", "example.com:", "http://example.com/p?q"),
            ("http", "example.com:443", "http://example.com:443/p?q"),
            ("https", "example.com:443", "https://example.com/p?q"),
            ("https", "[::1]:443", "https://[::1]/p?q"),
            ("http", "[::80]", "http://[::80]/p?q"),
            ("http", "[::1]:080", "http://[::1]/p?q"),
            ("http", "example.com:080", "http://example.com/p?q"),
            ("http", "example.com:08080", "http://example.com:8080/p?q"),
            ("http", "example.com:0", "http://example.com:0/p?q"),
            ("https", "example.com:80", "https://example.com:80/p?q"),
            ("http", "Example.Com.", "http://example.com/p?q"),
            ("https", "example.com.:443", "https://example.com/p?q"),
            ("http", ".", "http://./p?q"),
            ("http", "a*b", "http://a*b/p?q"),
            // A port that is not a number stays as it is: it is not another one.
            ("http", "example.com:08x", "http://example.com:08x/p?q"),
            ("http", "example.com:0x50", "http://example.com:0x50/p?q"),
        ] {
            let key = CacheKey::new(scheme, authority, "/p?q");
            assert_eq!(key.as_str(), expected);
            assert_eq!(key.path_and_query(), "/p?q");
            assert_eq!(key.path(), "/p");
            assert_eq!(format!("{}://{}/p?q", key.scheme(), key.authority()), expected);
        }
    }

    /// The examples of RFC 3986, 5.4 that are HTTP, and http-tests: `invalidation`.
    #[test]
    fn references_are_resolved() {
        let base = CacheKey::new("http", "a", "/b/c/d;p?q");
        for (reference, expected) in [
            ("g", Some("http://a/b/c/g")),
            ("./g", Some("http://a/b/c/g")),
            ("g/", Some("http://a/b/c/g/")),
            ("/g", Some("http://a/g")),
            ("//g", Some("http://g/")),
            ("?y", Some("http://a/b/c/d;p?y")),
            ("g?y", Some("http://a/b/c/g?y")),
            ("#s", Some("http://a/b/c/d;p?q")),
            ("g?y#s", Some("http://a/b/c/g?y")),
            (";x", Some("http://a/b/c/;x")),
            ("", Some("http://a/b/c/d;p?q")),
            (".", Some("http://a/b/c/")),
            ("..", Some("http://a/b/")),
            ("../g", Some("http://a/b/g")),
            ("../../../g", Some("http://a/g")),
            ("/./g", Some("http://a/g")),
            ("g;x=1/../y", Some("http://a/b/c/y")),
            ("g?y/./x", Some("http://a/b/c/g?y/./x")),
            (" HTTPS://G:443?y ", Some("https://g/?y")),
            ("http:g", None),
            ("ftp://g/", None),
            ("mailto:a@b", None),
            ("http://user@a/b", None),
            ("http:///b", None),
            ("//*", None),
            ("a b", None),
        ] {
            assert_eq!(base.resolve(reference).as_ref().map(CacheKey::as_str), expected, "{reference}");
        }
        assert!(base.has_same_origin(&CacheKey::new("HTTP", "A:80", "/")));
        assert!(!base.has_same_origin(&CacheKey::new("https", "a", "/")));
        assert!(!base.has_same_origin(&CacheKey::new("http", "a:81", "/")));
        assert!(!CacheKey::new("http", "a", "/").has_same_origin(&CacheKey::new("http", "ab", "/")));
    }

    proptest! {
        #[test]
        fn normalisation_equals_an_independent_one(path in "(/|\\.|%2e|%2E|%2f|%41|%c3|%|a|~){0,12}") {
            let path = format!("/{path}");
            let key = key(&path);
            prop_assert_eq!(key.path_and_query(), naive_path(&path));
        }

        #[test]
        fn normalisation_is_idempotent(path in "[ -~]{0,40}", authority in "[a-zA-Z.:0-9]{1,12}") {
            let once = CacheKey::new("http", &authority, &path);
            let again = CacheKey::new(once.scheme(), once.authority(), once.path_and_query());
            prop_assert_eq!(&once, &again);
        }

        /// Two characters of a path with a route of its own, in any spelling, compared with decoders of origins.
        #[test]
        fn path_with_a_dot_segment_for_an_origin_is_ambiguous(
            path in "(/|\\.|\\.|%2[5fF]|%5c|25|2e|2f|u00|%0[0a]|%c0%a[ef]|%e0%80%ae|%ef%bc%(8e|8f|92|85|bc|bf)|%e2%80%(a4|a5|8d)|%23|%20|\\+|;|\\\\|:|%c3%a9|%ff|%d0|a){0,12}",
            readings in proptest::collection::vec(0..crate::policy::fuzzing::key::READINGS, 1..6),
        ) {
            let key = key(&format!("/{path}"));
            prop_assert!(key.is_ambiguous() || !has_dot_segment(key.path(), &readings), "{} {:?}", key, readings);
        }

        #[test]
        fn arbitrary_references_do_not_panic(base in "/[ -~]{0,20}", reference in ".{0,30}") {
            if let Some(key) = key(&base).resolve(&reference) {
                prop_assert!(key.path_and_query().starts_with(['/']));
                prop_assert!(!key.as_str().contains('#') || base.contains('#'));
            }
        }
    }
}
