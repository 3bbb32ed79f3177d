//! What one request asks for.

use std::{fmt, str::FromStr};

use bytes::Bytes;
use http::{
    HeaderMap, Method, Uri,
    uri::{Authority, PathAndQuery, Scheme},
};

/// One request: everything but when, and on which connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its method.
    pub method: Method,
    /// Whole: scheme, host and path. In its path and query `{key}` stands for a key that is drawn.
    pub url: Uri,
    /// Its headers; those that every request has (`Host`, `Content-Length`, ...) are added where they are not here.
    pub headers: HeaderMap,
    /// Its body; most have none.
    pub body: Bytes,
}

impl Target {
    /// A plain GET.
    #[must_use]
    pub fn get(url: Uri) -> Self {
        Self::new(Method::GET, url)
    }

    /// A request without headers and body.
    #[must_use]
    pub fn new(method: Method, url: Uri) -> Self {
        Self { method, url, headers: HeaderMap::new(), body: Bytes::new() }
    }
}

/// A URL could not be read, or nobody can be asked there. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// No `http://` before it: nobody can tell whether to encrypt.
    #[error("`{0}` has no scheme: write `http://{0}`")]
    NoScheme(String),
    /// Somebody else's protocol.
    #[error("`{0}` is neither http nor https: write `http://` or `https://` before the host")]
    Scheme(String),
    /// Nobody to connect to.
    #[error("`{0}` has no host: write one before the path, as in `http://localhost:8080/`")]
    NoHost(String),
    /// A port that no machine has.
    #[error("`{0}` has a port that is none: write one from 1 to 65535, or leave the `:` out")]
    Port(String),
    /// A user's name, and maybe a password: it is not repeated here.
    #[error("the URL has a user's name in it: leave it out, and send a header `Authorization: Basic ...`")]
    User,
    /// Not a URL.
    #[error("`{text}` is no URL: {remedy}")]
    Malformed {
        /// What was written.
        text: String,
        /// What to do about it.
        remedy: String,
    },
    /// A query where paths are to be added.
    #[error("`{0}` has a query: write the part before the `?`, paths are added to it")]
    Query(String),
}

/// So much of a text is repeated in a message.
const SHOWN_CHARS: usize = 120;

/// A text as a message repeats it: not all of a long one, and nothing that moves a cursor.
pub(crate) fn shown(text: &str) -> String {
    let mut shown: String =
        text.chars().take(SHOWN_CHARS).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        shown.push_str("...");
    }
    shown
}

/// Reads one URL as it is typed. Nothing is guessed; a fragment is left out, as nobody sends it.
///
/// ```
/// use stockade_load::target::read_url;
///
/// assert_eq!(read_url("http://localhost:8080/x")?.path(), "/x");
/// assert_eq!(
///     read_url("localhost:8080/x").unwrap_err().to_string(),
///     "`localhost:8080/x` has no scheme: write `http://localhost:8080/x`",
/// );
/// # Ok::<(), stockade_load::target::UrlError>(())
/// ```
pub fn read_url(text: &str) -> Result<Uri, UrlError> {
    let text = text.trim();
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(without_scheme(text));
    };
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        // `localhost/?to=http://...` has its `://` elsewhere.
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
        Err(error) if error.to_string() == "uri too long" => {
            Err(malformed("it is too long, 65,534 bytes are the most"))
        }
        Err(error) => {
            Err(malformed(&format!("{error}; write what is special in it as `%` and two hex digits")))
        }
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

/// A URL that a request can be sent to: whole, with a path that begins with `/`; or what is wrong with it.
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
    // `http://host?a=1`: what is sent begins with a slash all the same.
    let whole = format!("/{path}");
    let mut parts = url.clone().into_parts();
    parts.path_and_query = whole.parse().ok();
    Uri::from_parts(parts).map_err(|error| UrlError::Malformed { text: text(), remedy: error.to_string() })
}

/// Where paths are asked for: `http://localhost:8080`, or `https://host/prefix`.
///
/// ```
/// use stockade_load::target::Base;
///
/// let base: Base = "http://localhost:8080/v2/".parse()?;
/// assert_eq!(base.at("/news?page=2").unwrap(), "http://localhost:8080/v2/news?page=2");
/// assert_eq!(base.to_string(), "http://localhost:8080/v2");
/// # Ok::<(), stockade_load::target::UrlError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Base {
    scheme: Scheme,
    authority: Authority,
    /// Without a slash at its end.
    prefix: String,
}

impl Base {
    /// What stands before every path: nothing, or what begins with a slash and does not end with one.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The URL of a path, which begins with `/` and may have a query.
    pub fn at(&self, path: &str) -> Result<Uri, http::Error> {
        let path = if self.prefix.is_empty() {
            PathAndQuery::try_from(path)?
        } else {
            PathAndQuery::try_from(format!("{}{path}", self.prefix))?
        };
        let url = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        url.path_and_query(path).build()
    }
}

impl FromStr for Base {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let url = read_url(text)?;
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

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests;
