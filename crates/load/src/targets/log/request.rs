//! The request of a log line.

use std::{borrow::Cow, fmt::Write};

use stockade_logs::{LoggedKey, LoggedRequest, Operation, request::AbsoluteUrl};

use super::SkipReason;

/// A request that can be replayed.
#[derive(Debug, PartialEq)]
pub(super) struct ReplayRequest<'a> {
    pub is_head: bool,
    /// Host and port, where the log has them.
    pub host: Option<Cow<'a, str>>,
    /// Path and query with a leading slash; not yet checked as part of a URL.
    pub path: Cow<'a, str>,
}

impl<'a> ReplayRequest<'a> {
    pub fn of(logged: &LoggedRequest<'a>) -> Result<Self, SkipReason> {
        match logged.key {
            LoggedKey::Url { method, host, url } => Self::of_url(method, host, url),
            _ if logged.operation != Operation::Read => Err(SkipReason::Method),
            LoggedKey::Text(key) => match str::from_utf8(key) {
                Ok(url) if url.starts_with('/') || AbsoluteUrl::parse(url).is_some() => {
                    Self::of_url("GET", None, url)
                }
                _ => Ok(Self { is_head: false, host: None, path: path_of_key(key).into() }),
            },
            LoggedKey::Number(key) => Ok(Self { is_head: false, host: None, path: format!("/{key}").into() }),
        }
    }

    fn of_url(method: &str, host: Option<&'a str>, url: &'a str) -> Result<Self, SkipReason> {
        let is_head = match method {
            "GET" => false,
            "HEAD" => true,
            _ => return Err(SkipReason::Method),
        };
        // Those of browsers and forward proxies are absolute.
        let (host, path) = match AbsoluteUrl::parse(url) {
            _ if url.starts_with('/') => (host, url.into()),
            Some(absolute) if absolute.path.starts_with('/') => (Some(absolute.host), absolute.path.into()),
            Some(absolute) => (Some(absolute.host), format!("/{}", absolute.path).into()),
            None => return Err(SkipReason::Url),
        };
        Ok(Self { is_head, host: host.map(Cow::Borrowed), path: sendable(path)? })
    }
}

/// Path and query of a request. One with characters that the log replaced is skipped.
fn sendable(mut path: Cow<'_, str>) -> Result<Cow<'_, str>, SkipReason> {
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

/// The path of a key of a trace: other bytes than those of a path (RFC 3986, 3.3) are percent-encoded.
fn path_of_key(key: &[u8]) -> String {
    let mut path = String::from("/");
    for byte in key {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(byte) {
            path.push(char::from(*byte));
        } else {
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path
}
