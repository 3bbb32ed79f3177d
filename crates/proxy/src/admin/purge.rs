//! Parses purge requests from query strings. Pure.

use std::borrow::Cow;

use http::{Uri, uri::PathAndQuery};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use stockade_cache::Invalidation;
use stockade_http::host::is_host;
use stockade_model::nearest::remedy;

const TAG_BYTES_MAX: usize = 1_024;

/// A purge request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purge {
    pub target: PurgeTarget,
    /// `Hard` removes the entries, `Soft` marks them stale.
    pub mode: Invalidation,
}

/// The entries to purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PurgeTarget {
    /// All methods and variants of one absolute URL.
    Url(Uri),
    /// All URLs with this prefix, such as `http://example.org/news/`.
    Prefix(String),
    /// All URLs of all hosts whose path and query have this prefix, such as `/static/`.
    PathPrefix(String),
    /// Entries with this surrogate key.
    Tag(String),
    All,
}

/// The number of entries that a purge matched, with a note where it is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeResult {
    /// Removed or marked stale.
    pub entries: usize,
    /// A reason for a purge that matched nothing.
    pub note: Option<String>,
}

impl PurgeResult {
    /// The answer: `{"purged": 2, "kind": "prefix", "target": "/static/", "soft": false}`.
    #[must_use]
    pub fn shown(&self, kind: &str, target: &str, mode: Invalidation) -> Value {
        let is_soft = mode == Invalidation::Soft;
        let mut shown = json!({ "purged": self.entries, "kind": kind, "target": target, "soft": is_soft });
        if let Some(note) = &self.note {
            shown["note"] = json!(note);
        }
        shown
    }
}

const KEYS: [&str; 4] = ["url", "prefix", "tag", "soft"];

impl Purge {
    /// Parses `url=...`, `prefix=...` or `tag=...`, percent-encoded, and optional `soft`.
    pub(super) fn read(query: &str) -> Result<Self, String> {
        let (mut target, mut mode) = (None, Invalidation::Hard);
        for (key, value) in pairs(query)? {
            let read = match key.as_str() {
                "url" => PurgeTarget::Url(url(&value)?),
                "prefix" if value.starts_with('/') => PurgeTarget::PathPrefix(path(value)?),
                "prefix" => {
                    url(&value)?;
                    PurgeTarget::Prefix(value)
                }
                "tag" if (1..=TAG_BYTES_MAX).contains(&value.len()) => PurgeTarget::Tag(value),
                "tag" => return Err("a tag has 1 to 1,024 bytes".to_owned()),
                "soft" => {
                    mode = soft(&value)?;
                    continue;
                }
                other => return Err(unknown(other, &KEYS)),
            };
            if target.replace(read).is_some() {
                return Err("write one of url, prefix and tag: they cannot be combined".to_owned());
            }
        }
        let target =
            target.ok_or("write one of ?url=URL, ?prefix=URL and ?tag=TAG; /purge_all purges everything")?;
        Ok(Self { target, mode })
    }

    /// The answer to it.
    #[must_use]
    pub fn shown(&self, result: &PurgeResult) -> Value {
        let (kind, target) = match &self.target {
            PurgeTarget::Url(url) => ("url", url.to_string()),
            PurgeTarget::Prefix(prefix) | PurgeTarget::PathPrefix(prefix) => ("prefix", prefix.clone()),
            PurgeTarget::Tag(tag) => ("tag", tag.clone()),
            PurgeTarget::All => ("all", "*".to_owned()),
        };
        result.shown(kind, &target, self.mode)
    }

    /// Parses the query of `/purge_all`: optional `soft`.
    pub(super) fn read_all(query: &str) -> Result<Self, String> {
        let mut mode = Invalidation::Hard;
        for (key, value) in pairs(query)? {
            match key.as_str() {
                "soft" => mode = soft(&value)?,
                other => return Err(unknown(other, &["soft"])),
            }
        }
        Ok(Self { target: PurgeTarget::All, mode })
    }
}

/// A path, with a query perhaps.
fn path(text: String) -> Result<String, String> {
    match text.parse::<PathAndQuery>() {
        Ok(read) if read.as_str() == text => Ok(text),
        _ => Err(format!("`{}` is not a path: write /PATH, percent-encoded", shown(&text))),
    }
}

fn unknown(key: &str, known: &[&'static str]) -> String {
    format!("there is no `{}`: {}", shown(key), remedy(key, known.iter().copied()))
}

/// Typed text for a message: shortened, and without control characters.
fn shown(text: &str) -> String {
    text.chars().take(200).flat_map(char::escape_debug).collect()
}

fn soft(value: &str) -> Result<Invalidation, String> {
    match value {
        "" | "1" | "true" => Ok(Invalidation::Soft),
        "0" | "false" => Ok(Invalidation::Hard),
        _ => Err("write `soft`, `soft=true` or `soft=false`".to_owned()),
    }
}

fn pairs(query: &str) -> Result<Vec<(String, String)>, String> {
    let decoded = |text: &str| {
        // HTML forms encode a space as `+`.
        let text = text.replace('+', " ");
        let decoded = percent_decode_str(&text).decode_utf8().map(Cow::into_owned);
        decoded.map_err(|_| "a value is not UTF-8: encode it with %".to_owned())
    };
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    let pair = |parameter: &str| {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        Ok((decoded(key)?, decoded(value)?))
    };
    parameters.map(pair).collect()
}

/// Parses an absolute http or https URL whose host a request may have.
pub(super) fn url(text: &str) -> Result<Uri, String> {
    let wrong = || format!("`{}` is not a URL: write http://HOST/PATH", shown(text));
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let has_host = uri.authority().is_some_and(|authority| is_host(authority.as_str().as_bytes()));
    if is_http && has_host { Ok(uri) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_selects_target_and_mode() {
        let hard = |target| Ok(Purge { target, mode: Invalidation::Hard });
        let soft = |target| Ok(Purge { target, mode: Invalidation::Soft });
        let news = || PurgeTarget::Url("http://example.org/news?a=b".parse().expect("a URL"));
        for (query, purge) in [
            ("url=http://example.org/news%3Fa%3Db", hard(news())),
            ("url=http%3A%2F%2Fexample.org%2Fnews%3Fa%3Db&soft", soft(news())),
            ("soft=true&prefix=https://h/a", soft(PurgeTarget::Prefix("https://h/a".to_owned()))),
            ("prefix=/static/", hard(PurgeTarget::PathPrefix("/static/".to_owned()))),
            ("prefix=%2Fa%3Fb&soft", soft(PurgeTarget::PathPrefix("/a?b".to_owned()))),
            ("tag=sport&soft=0", hard(PurgeTarget::Tag("sport".to_owned()))),
            ("tag=a+b%26c", hard(PurgeTarget::Tag("a b&c".to_owned()))),
        ] {
            assert_eq!(Purge::read(query), purge, "{query}");
        }
        assert_eq!(Purge::read_all(""), hard(PurgeTarget::All));
        assert_eq!(Purge::read_all("soft"), soft(PurgeTarget::All));
        for (query, message) in [
            ("", "write one of ?url=URL, ?prefix=URL and ?tag=TAG; /purge_all purges everything"),
            ("soft", "write one of ?url=URL, ?prefix=URL and ?tag=TAG; /purge_all purges everything"),
            ("tag=a&url=http://h/", "write one of url, prefix and tag: they cannot be combined"),
            ("tag=", "a tag has 1 to 1,024 bytes"),
            ("soft%07=1", "there is no `soft\\u{7}`: did you mean `soft`?"),
            ("tags=a", "there is no `tags`: did you mean `tag`?"),
            ("url=/news", "`/news` is not a URL: write http://HOST/PATH"),
            ("url=ftp://h/", "`ftp://h/` is not a URL: write http://HOST/PATH"),
            ("url=http://a:b@h/", "`http://a:b@h/` is not a URL: write http://HOST/PATH"),
            ("url=http://a*b/", "`http://a*b/` is not a URL: write http://HOST/PATH"),
            ("prefix=%0a", "`\\n` is not a URL: write http://HOST/PATH"),
            ("prefix=/a%20b", "`/a b` is not a path: write /PATH, percent-encoded"),
            ("prefix=/a%23b", "`/a#b` is not a path: write /PATH, percent-encoded"),
            ("tag=%ff", "a value is not UTF-8: encode it with %"),
            ("tag=a&soft=maybe", "write `soft`, `soft=true` or `soft=false`"),
        ] {
            assert_eq!(Purge::read(query), Err(message.to_owned()), "{query}");
        }
        assert_eq!(Purge::read_all("tag=a"), Err("there is no `tag`: use one of: soft".to_owned()));
    }
}
