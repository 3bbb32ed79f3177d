//! What a stored answer is found by: scheme, authority, path and query (RFC 9111, 2; RFC 3986, 6.2.2).
//!
//! Two spellings of a path are one key only if no origin may tell them apart: an unreserved character that was
//! percent-encoded, the case of hexadecimal digits, dot segments. Origins exist that do tell these apart, so what
//! is asked of the origin is the key's path ([`Key::path_and_query`]) and never the client's: otherwise one spelling
//! could fill the place of another.

use std::{borrow::Borrow, fmt, sync::Arc};

use memchr::{memchr, memchr2_iter, memchr3};
use smallvec::SmallVec;

/// A URI without a fragment, in one spelling. Made with one allocation; a clone is a count.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

type Buffer = SmallVec<[u8; 512]>;

impl Key {
    /// Of the parts of a request. The authority is without user information (as [`crate::front::head`] makes sure), its
    /// scheme's own port is dropped; a path that is empty is `/`; a query is kept as it is, an empty one too.
    #[must_use]
    pub fn of(scheme: &str, authority: &str, path_and_query: &str) -> Self {
        let mut text = Buffer::new();
        text.extend_from_slice(scheme.as_bytes());
        text.make_ascii_lowercase();
        text.extend_from_slice(b"://");
        let default_port = match &text[..] {
            b"http://" => ":80",
            b"https://" => ":443",
            _ => ":",
        };
        let authority = authority.strip_suffix(default_port).unwrap_or(authority);
        let authority = authority.strip_suffix(':').unwrap_or(authority);
        let start = text.len();
        text.extend_from_slice(authority.as_bytes());
        text[start..].make_ascii_lowercase();
        let end_of_path = memchr(b'?', path_and_query.as_bytes()).unwrap_or(path_and_query.len());
        let (path, query) = path_and_query.split_at(end_of_path);
        push_path(&mut text, path.as_bytes());
        text.extend_from_slice(query.as_bytes());
        Self(match std::str::from_utf8(&text) {
            Ok(text) => text.into(),
            Err(_) => String::from_utf8_lossy(&text).into(),
        })
    }

    /// One that was a key before.
    #[must_use]
    pub fn from_normalised(text: &str) -> Self {
        Self(text.into())
    }

    /// The whole.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `http` or `https`.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.0[..self.end_of_scheme()]
    }

    /// Host, and port if it is not the scheme's.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.0[self.end_of_scheme() + 3..self.end_of_authority()]
    }

    /// What to ask the origin for.
    #[must_use]
    pub fn path_and_query(&self) -> &str {
        &self.0[self.end_of_authority()..]
    }

    /// The path alone.
    #[must_use]
    pub fn path(&self) -> &str {
        let whole = self.path_and_query();
        &whole[..memchr(b'?', whole.as_bytes()).unwrap_or(whole.len())]
    }

    /// Whether scheme and authority are the same (RFC 9110, 4.3.1).
    #[must_use]
    pub fn has_origin_of(&self, other: &Self) -> bool {
        self.0[..self.end_of_authority()] == other.0[..other.end_of_authority()]
    }

    /// What a reference of an answer to this means (RFC 3986, 5.2); none if it is no reference to HTTP.
    #[must_use]
    pub fn resolve(&self, reference: &str) -> Option<Self> {
        let reference = reference.trim_matches([' ', '\t']);
        let reference = &reference[..reference.find('#').unwrap_or(reference.len())];
        if reference.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return None;
        }
        if let Some((scheme, rest)) = with_scheme(reference) {
            let is_http = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
            return if is_http { Self::absolute(scheme, rest.strip_prefix("//")?) } else { None };
        }
        if let Some(rest) = reference.strip_prefix("//") {
            return Self::absolute(self.scheme(), rest);
        }
        let here = |path_and_query: &str| Some(Self::of(self.scheme(), self.authority(), path_and_query));
        match reference.as_bytes().first() {
            None => Some(self.clone()),
            Some(b'/') => here(reference),
            Some(b'?') => here(&format!("{}{reference}", self.path())),
            Some(_) => {
                let path = self.path();
                let folder = path.rfind('/').map_or("/", |at| &path[..=at]);
                here(&format!("{folder}{reference}"))
            }
        }
    }

    /// Of what stands behind `scheme://`.
    fn absolute(scheme: &str, rest: &str) -> Option<Self> {
        let (authority, path_and_query) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.is_empty() || authority.contains(['@', '*']) {
            return None;
        }
        Some(Self::of(scheme, authority, path_and_query))
    }

    fn end_of_scheme(&self) -> usize {
        // What is before it has no colon.
        memchr(b':', self.0.as_bytes()).unwrap_or(0)
    }

    fn end_of_authority(&self) -> usize {
        let start = self.end_of_scheme() + 3;
        self.0
            .as_bytes()
            .get(start..)
            .and_then(|rest| memchr3(b'/', b'*', b'?', rest))
            .map_or(self.0.len(), |at| start + at)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// `scheme` and the rest behind its colon.
fn with_scheme(reference: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = reference.split_once(':')?;
    let mut bytes = scheme.bytes();
    let is_scheme = bytes.next()?.is_ascii_alphabetic()
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    is_scheme.then_some((scheme, rest))
}

/// Appends a path in its one spelling.
fn push_path(text: &mut Buffer, path: &[u8]) {
    if path == b"*" {
        // `OPTIONS *`.
        text.push(b'*');
        return;
    }
    let within = path.strip_prefix(b"/").unwrap_or(path);
    let is_after_slash = |at: usize| at == 0 || within[at - 1] == b'/';
    if memchr2_iter(b'.', b'%', within).all(|at| within[at] == b'.' && !is_after_slash(at)) {
        text.push(b'/');
        text.extend_from_slice(within);
        return;
    }
    let root = text.len();
    let mut segments = within.split(|byte| *byte == b'/').peekable();
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

/// Decodes what need not be encoded, and writes the rest in upper case (RFC 3986, 6.2.2.1 and 6.2.2.2).
///
/// A segment with a `%` that begins no code stays as it is: decoded, what comes after that might make it one.
fn push_segment(text: &mut Buffer, segment: &[u8]) {
    let begins_a_code = |(at, _): (usize, &u8)| {
        segment.get(at + 1..at + 3).is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit))
    };
    if !segment.iter().enumerate().filter(|(_, byte)| **byte == b'%').all(begins_a_code) {
        return text.extend_from_slice(segment);
    }
    let mut rest = segment;
    while let Some((byte, after)) = rest.split_first() {
        let digits = if *byte == b'%' { after.first_chunk::<2>() } else { None };
        match digits.and_then(|[high, low]| Some((hex(*high)?, hex(*low)?))) {
            Some((high, low)) => {
                let decoded = high * 16 + low;
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

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(path_and_query: &str) -> Key {
        Key::of("http", "example.com", path_and_query)
    }

    #[test]
    fn spellings() {
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
    fn parts() {
        for (scheme, authority, expected) in [
            ("HTTP", "Example.COM:80", "http://example.com/p?q"),
            ("http", "example.com:", "http://example.com/p?q"),
            ("http", "example.com:443", "http://example.com:443/p?q"),
            ("https", "example.com:443", "https://example.com/p?q"),
            ("https", "[::1]:443", "https://[::1]/p?q"),
            ("http", "[::80]", "http://[::80]/p?q"),
        ] {
            let key = Key::of(scheme, authority, "/p?q");
            assert_eq!(key.as_str(), expected);
            assert_eq!(key.path_and_query(), "/p?q");
            assert_eq!(key.path(), "/p");
            assert_eq!(format!("{}://{}/p?q", key.scheme(), key.authority()), expected);
        }
    }

    /// The examples of RFC 3986, 5.4, as far as they are HTTP, and the suite's `invalidation`.
    #[test]
    fn references() {
        let base = Key::of("http", "a", "/b/c/d;p?q");
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
            assert_eq!(base.resolve(reference).as_ref().map(Key::as_str), expected, "{reference}");
        }
        assert!(base.has_origin_of(&Key::of("HTTP", "A:80", "/")));
        assert!(!base.has_origin_of(&Key::of("https", "a", "/")));
        assert!(!base.has_origin_of(&Key::of("http", "a:81", "/")));
        assert!(!Key::of("http", "a", "/").has_origin_of(&Key::of("http", "ab", "/")));
    }

    /// Decodes by steps of its own.
    fn decoded(segment: &str) -> String {
        let mut decoded = String::new();
        let mut rest = segment;
        while let Some(first) = rest.chars().next() {
            if first != '%' {
                decoded.push(first);
                rest = &rest[first.len_utf8()..];
                continue;
            }
            let code = rest.get(1..3).filter(|code| code.chars().all(|digit| digit.is_ascii_hexdigit()));
            let Some(code) = code else { return segment.to_owned() };
            let byte = char::from(u8::from_str_radix(code, 16).unwrap());
            if byte.is_ascii_alphanumeric() || "-._~".contains(byte) {
                decoded.push(byte);
            } else {
                decoded.push_str(&rest[..3].to_uppercase());
            }
            rest = &rest[3..];
        }
        decoded
    }

    /// The same by steps of its own: cut, decode, walk.
    fn naive(path: &str) -> String {
        let decoded: Vec<String> = path.split('/').map(decoded).collect();
        let segments: Vec<&str> = decoded.iter().skip(1).map(String::as_str).collect();
        let mut walked: Vec<&str> = Vec::new();
        for (at, segment) in segments.iter().enumerate() {
            let is_last = at + 1 == segments.len();
            match *segment {
                "." => {}
                ".." => drop(walked.pop()),
                name => {
                    walked.push(name);
                    continue;
                }
            }
            if is_last {
                walked.push("");
            }
        }
        format!("/{}", walked.join("/"))
    }

    proptest! {
        #[test]
        fn as_the_naive_steps(path in "(/|\\.|%2e|%2E|%2f|%41|%c3|%|a|~){0,12}") {
            let path = format!("/{path}");
            let key = key(&path);
            prop_assert_eq!(key.path_and_query(), naive(&path));
        }

        #[test]
        fn spelled_once_it_stays(path in "[ -~]{0,40}", authority in "[a-zA-Z.:0-9]{1,12}") {
            let once = Key::of("http", &authority, &path);
            let again = Key::of(once.scheme(), once.authority(), once.path_and_query());
            // A second default port would be dropped a second time.
            if !once.authority().ends_with(':') && !once.authority().ends_with(":80") {
                prop_assert_eq!(&once, &again);
            }
        }

        #[test]
        fn any_reference_is_resolved_or_not(base in "/[ -~]{0,20}", reference in ".{0,30}") {
            if let Some(key) = key(&base).resolve(&reference) {
                prop_assert!(key.path_and_query().starts_with(['/']));
                prop_assert!(!key.as_str().contains('#') || base.contains('#'));
            }
        }
    }
}
