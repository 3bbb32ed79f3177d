//! The request of a log line.

use std::borrow::Cow;

use stockade_logs::request;

use super::SkipReason;

/// A request that can be replayed.
#[derive(Debug, PartialEq)]
pub(super) struct ReplayRequest<'a> {
    pub is_head: bool,
    /// Path and query with a leading slash; not yet checked as part of a URL.
    pub path: Cow<'a, str>,
}

impl<'a> ReplayRequest<'a> {
    /// Reads `GET /path HTTP/1.1`.
    pub fn parse(line: &'a str) -> Result<Self, SkipReason> {
        let (method, url) = request::split(line).ok_or(SkipReason::NoRequest)?;
        Self::from_parts(method, url.into())
    }

    /// A request of a method, and a URL or a path.
    pub fn from_parts(method: &str, url: Cow<'a, str>) -> Result<Self, SkipReason> {
        if !request::is_request(method, &url) {
            return Err(SkipReason::NoRequest);
        }
        let is_head = match method {
            "GET" => false,
            "HEAD" => true,
            _ => return Err(SkipReason::Method),
        };
        Ok(Self { is_head, path: request_path(url)? })
    }

    pub fn into_owned(self) -> ReplayRequest<'static> {
        ReplayRequest { is_head: self.is_head, path: self.path.into_owned().into() }
    }
}

/// Path and query of a URL. A URL with characters that the log replaced is skipped.
fn request_path(url: Cow<'_, str>) -> Result<Cow<'_, str>, SkipReason> {
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
        _ => return Err(SkipReason::Url),
    };
    if path.contains(|c: char| c.is_control() || c == ' ' || c == char::REPLACEMENT_CHARACTER) {
        return Err(SkipReason::Url);
    }
    if let Some(at) = path.find('#') {
        match &mut path {
            Cow::Borrowed(path) => *path = &path[..at],
            Cow::Owned(path) => path.truncate(at),
        }
    }
    // A logged URL has no placeholders: the percent-encoded URL is the same.
    if path.contains("{key") {
        path = path.replace("{key", "%7Bkey").into();
    }
    Ok(path)
}
