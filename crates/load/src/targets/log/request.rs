//! What a line says that was asked.

use std::borrow::Cow;

use super::Reason;

/// A request that can be sent again.
#[derive(Debug, PartialEq)]
pub(super) struct Request<'a> {
    pub is_head: bool,
    /// Path and query, beginning with a slash; whether it is a URL's is not yet known.
    pub path: Cow<'a, str>,
}

impl<'a> Request<'a> {
    /// Reads `GET /path HTTP/1.1`.
    pub fn of_line(line: &'a str) -> Result<Self, Reason> {
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some(method), Some(url), Some(version), None) if version.starts_with("HTTP/") => {
                Self::of_parts(method, url.into())
            }
            _ => Err(Reason::NoRequest),
        }
    }

    /// Of a method, and a URL or a path.
    pub fn of_parts(method: &str, url: Cow<'a, str>) -> Result<Self, Reason> {
        let is_method = |byte: u8| byte.is_ascii_uppercase() || byte == b'-' || byte == b'_';
        if method.is_empty()
            || method == "-"
            || !method.bytes().all(is_method)
            || url.is_empty()
            || url == "-"
        {
            return Err(Reason::NoRequest);
        }
        let is_head = match method {
            "GET" => false,
            "HEAD" => true,
            _ => return Err(Reason::Method),
        };
        Ok(Self { is_head, path: path(url)? })
    }
}

/// The part that is asked for. What the log could not write as it was is not asked for.
fn path(url: Cow<'_, str>) -> Result<Cow<'_, str>, Reason> {
    let mut path = match url.split_once("://") {
        _ if url.starts_with('/') => url,
        Some((scheme, rest))
            if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https") =>
        {
            match rest.find(['/', '?', '#']) {
                Some(at) if rest[at..].starts_with('/') => rest[at..].to_owned().into(),
                Some(at) => format!("/{}", &rest[at..]).into(),
                None => "/".into(),
            }
        }
        _ => return Err(Reason::Url),
    };
    if path.contains(|c: char| c.is_control() || c == ' ' || c == char::REPLACEMENT_CHARACTER) {
        return Err(Reason::Url);
    }
    if let Some(at) = path.find('#') {
        match &mut path {
            Cow::Borrowed(path) => *path = &path[..at],
            Cow::Owned(path) => path.truncate(at),
        }
    }
    // A place for a key is nothing that a log has; in percents it is the same URL.
    if path.contains("{key") {
        path = path.replace("{key", "%7Bkey").into();
    }
    Ok(path)
}
