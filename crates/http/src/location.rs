//! URL references, such as `Location`: resolution (RFC 3986, 5.2) and redaction. Pure.
//!
//! Dot segments stay: a server removes them, and a cache normalises its keys anyway.

use std::borrow::Cow;

/// The absolute `http` or `https` URL that a reference means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsoluteUrl<'a> {
    pub scheme: &'a str,
    /// Never empty.
    pub authority: &'a str,
    /// Empty, or begins with `/` or `?`.
    pub path_and_query: Cow<'a, str>,
}

/// Resolves a reference that a response to `base` contains. A fragment is dropped. `None`: it is not a reference to HTTP.
#[must_use]
pub fn resolve<'a>(base: &AbsoluteUrl<'a>, reference: &'a str) -> Option<AbsoluteUrl<'a>> {
    let reference = reference.trim_matches([' ', '\t']);
    let reference = &reference[..reference.find('#').unwrap_or(reference.len())];
    if reference.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return None;
    }
    if let Some((scheme, rest)) = split_scheme_at_colon(reference) {
        let is_http = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
        return if is_http { from_authority(scheme, rest.strip_prefix("//")?) } else { None };
    }
    if let Some(rest) = reference.strip_prefix("//") {
        return from_authority(base.scheme, rest);
    }
    let whole = &base.path_and_query;
    let path = &whole[..whole.find('?').unwrap_or(whole.len())];
    let path_and_query = match reference.as_bytes().first() {
        None => whole.clone(),
        Some(b'/') => Cow::Borrowed(reference),
        Some(b'?') => format!("{path}{reference}").into(),
        Some(_) => {
            let folder = path.rfind('/').map_or("/", |at| &path[..=at]);
            format!("{folder}{reference}").into()
        }
    };
    Some(AbsoluteUrl { path_and_query, ..*base })
}

/// A URL or a reference without user, password, query and fragment, for messages.
#[must_use]
pub fn redact(reference: &str) -> String {
    let place = reference.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = place.split_once("//") else { return place.to_owned() };
    // An `@` in the path: a password may contain an unencoded `/`.
    let rest = rest.split_once('@').map_or(rest, |(_, rest)| rest);
    format!("{scheme}//{rest}")
}

fn from_authority<'a>(scheme: &'a str, rest: &'a str) -> Option<AbsoluteUrl<'a>> {
    let (authority, path_and_query) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    (!authority.is_empty()).then(|| AbsoluteUrl { scheme, authority, path_and_query: path_and_query.into() })
}

/// The scheme, and the rest after its colon.
fn split_scheme_at_colon(reference: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = reference.split_once(':')?;
    let mut bytes = scheme.bytes();
    let is_scheme = bytes.next()?.is_ascii_alphabetic()
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    is_scheme.then_some((scheme, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_resolve_against_the_url_of_the_request() {
        let base =
            AbsoluteUrl { scheme: "http", authority: "a.example:8080", path_and_query: "/x/y?z=/q/r".into() };
        for (reference, expected) in [
            ("", "http://a.example:8080/x/y?z=/q/r"),
            ("/p?q", "http://a.example:8080/p?q"),
            (" /p#fragment", "http://a.example:8080/p"),
            ("p", "http://a.example:8080/x/p"),
            ("../p", "http://a.example:8080/x/../p"),
            ("p?next=http://c.example/", "http://a.example:8080/x/p?next=http://c.example/"),
            ("?q", "http://a.example:8080/x/y?q"),
            ("//b.example/p", "http://b.example/p"),
            ("https://b.example", "https://b.example"),
            ("https://b.example?q", "https://b.example?q"),
            ("HTTPS://b.example/p#fragment", "HTTPS://b.example/p"),
        ] {
            let AbsoluteUrl { scheme, authority, path_and_query } =
                resolve(&base, reference).expect(reference);
            assert_eq!(format!("{scheme}://{authority}{path_and_query}"), expected, "{reference}");
        }
        let none =
            ["ftp://b.example/", "javascript:alert(1)", "http://", "http:/p", "//", "/a b", "/a\u{7f}"];
        for reference in none {
            assert_eq!(resolve(&base, reference), None, "{reference}");
        }
    }

    #[test]
    fn redaction_drops_credentials_and_query() {
        for (reference, expected) in [
            ("https://ada:secret@host/docs/a?key=secret", "https://host/docs/a"),
            ("//host/a#secret", "//host/a"),
            ("/login?next=a//b", "/login"),
            ("a/b", "a/b"),
            ("/@ada?q", "/@ada"),
            ("http://ada:sec/ret@host", "http://host"),
        ] {
            assert_eq!(redact(reference), expected);
        }
    }
}
