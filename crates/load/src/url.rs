//! URLs in user input.

use std::{fmt, str::FromStr};

use http::{
    Uri,
    uri::{Authority, PathAndQuery, Scheme},
};
use stockade_model::message::shown;

/// Why a URL is refused. The message names the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The scheme is missing.
    #[error("`{0}` has no scheme: write `http://{0}`")]
    NoScheme(String),
    /// The scheme is neither http nor https.
    #[error("`{0}` is neither http nor https: write `http://` or `https://` before the host")]
    Scheme(String),
    /// The host is missing.
    #[error("`{0}` has no host: write one before the path, as in `http://localhost:8080/`")]
    NoHost(String),
    /// The port is out of range.
    #[error("`{0}` has an invalid port: write one from 1 to 65535, or remove the `:`")]
    Port(String),
    /// A user name, possibly with a password: the message does not repeat it.
    #[error("the URL has a user name: remove it, and send a header `Authorization: Basic ...`")]
    User,
    /// Not a URL.
    #[error("`{text}` is not a URL: {remedy}")]
    Malformed {
        /// The text.
        text: String,
        /// The remedy.
        remedy: String,
    },
    /// A base URL has a query.
    #[error("`{0}` has a query: write the part before the `?`, paths are added to it")]
    Query(String),
}

/// Reads an absolute URL. Nothing is guessed; the fragment is dropped, since HTTP does not send it.
///
/// ```
/// use stockade_load::url::parse_url;
///
/// assert_eq!(parse_url("http://localhost:8080/x")?.path(), "/x");
/// assert_eq!(
///     parse_url("localhost:8080/x").unwrap_err().to_string(),
///     "`localhost:8080/x` has no scheme: write `http://localhost:8080/x`",
/// );
/// # Ok::<(), stockade_load::url::UrlError>(())
/// ```
pub fn parse_url(text: &str) -> Result<Uri, UrlError> {
    let text = text.trim();
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(without_scheme(text));
    };
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        // In `localhost/?to=http://...` the `://` belongs to the query.
        let is_scheme = scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
        return Err(if is_scheme { UrlError::Scheme(shown(text)) } else { without_scheme(text) });
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(UrlError::User);
    }
    if authority.is_empty() || authority.starts_with(':') {
        return Err(UrlError::NoHost(shown(text)));
    }
    let malformed = |remedy: &str| UrlError::Malformed { text: shown(text), remedy: remedy.to_owned() };
    if text.contains(char::is_whitespace) {
        return Err(malformed("there is a space in it, write `%20`"));
    }
    match text.parse() {
        Ok(url) => checked(url),
        Err(error) if error.to_string() == "uri too long" => Err(malformed("it has more than 65,534 bytes")),
        Err(error) => Err(malformed(&format!("{error}; write special characters as `%` and two hex digits"))),
    }
}

fn without_scheme(text: &str) -> UrlError {
    let lower = text.to_ascii_lowercase();
    if let Some(scheme) =
        ["http", "https"].into_iter().find(|scheme| lower.starts_with(&format!("{scheme}:")))
    {
        let rest = text[scheme.len() + 1..].trim_start_matches('/');
        let remedy = format!("write `{scheme}://{rest}`");
        return UrlError::Malformed { text: shown(text), remedy: shown(&remedy) };
    }
    match text.trim_start_matches('/') {
        rest if text.is_empty() || (rest.len() + 1 == text.len()) => UrlError::NoHost(shown(text)),
        rest => UrlError::NoScheme(shown(rest)),
    }
}

/// Checks that a request can be sent to a URL, and adds a missing `/` before its query.
pub(crate) fn checked(url: Uri) -> Result<Uri, UrlError> {
    let text = || shown(&url.to_string());
    let Some(authority) = url.authority() else {
        return Err(UrlError::NoHost(text()));
    };
    if authority.as_str().contains('@') {
        return Err(UrlError::User);
    }
    if url.scheme() != Some(&Scheme::HTTP) && url.scheme() != Some(&Scheme::HTTPS) {
        return Err(UrlError::Scheme(text()));
    }
    if authority.host().is_empty() {
        return Err(UrlError::NoHost(text()));
    }
    let has_port = authority.as_str().len() > authority.host().len();
    if has_port && authority.port_u16().is_none_or(|port| port == 0) {
        return Err(UrlError::Port(text()));
    }
    let path = url.path_and_query().map_or("/", PathAndQuery::as_str);
    if path.starts_with('/') {
        return Ok(url);
    }
    // `http://host?a=1` is requested as `/?a=1`.
    let whole = format!("/{path}");
    let mut parts = url.clone().into_parts();
    parts.path_and_query = whole.parse().ok();
    Uri::from_parts(parts).map_err(|error| UrlError::Malformed { text: text(), remedy: error.to_string() })
}

/// A URL to which paths are added: `http://localhost:8080`, or `https://host/prefix`.
///
/// ```
/// use stockade_load::url::BaseUrl;
///
/// let base: BaseUrl = "http://localhost:8080/v2/".parse()?;
/// assert_eq!(base.url("/news?page=2").unwrap(), "http://localhost:8080/v2/news?page=2");
/// assert_eq!(base.to_string(), "http://localhost:8080/v2");
/// # Ok::<(), stockade_load::url::UrlError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct BaseUrl {
    scheme: Scheme,
    authority: Authority,
    /// Without a trailing slash.
    prefix: String,
}

impl BaseUrl {
    /// The prefix of every path: empty, or with a leading and without a trailing slash.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The URL of a path, which starts with `/` and may have a query.
    pub fn url(&self, path: &str) -> Result<Uri, http::Error> {
        let path = if self.prefix.is_empty() {
            PathAndQuery::try_from(path)?
        } else {
            PathAndQuery::try_from(format!("{}{path}", self.prefix))?
        };
        let url = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        url.path_and_query(path).build()
    }
}

impl FromStr for BaseUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let url = parse_url(text)?;
        if url.query().is_some() {
            return Err(UrlError::Query(shown(text.trim())));
        }
        let prefix = url.path().trim_end_matches('/').to_owned();
        let parts = url.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(UrlError::NoHost(shown(text.trim())));
        };
        Ok(Self { scheme, authority, prefix })
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests;
