//! What is to be forgotten, as a query has it: pure.

use std::borrow::Cow;

use http::Uri;
use percent_encoding::percent_decode_str;
use stockade_cache::Invalidation;
use stockade_model::nearest::remedy;

/// A tag is no longer.
const TAG_BYTES_MAX: usize = 1_024;

/// What is to be forgotten, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purge {
    /// Which answers.
    pub what: What,
    /// `Hard`: they are gone. `Soft`: they are stale.
    pub how: Invalidation,
}

/// Which answers are to be forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// All of one URL: every method, every variant. It has a scheme, a host, a path, perhaps a query.
    Url(Uri),
    /// Those of all URLs that begin so: `http://example.org/news/`.
    Prefix(String),
    /// Those with this tag.
    Tag(String),
    /// All.
    All,
}

const KEYS: [&str; 4] = ["url", "prefix", "tag", "soft"];

impl Purge {
    /// Reads `url=...`, `prefix=...` or `tag=...`, percent-encoded, and `soft`; else says what to write.
    pub(super) fn read(query: &str) -> Result<Self, String> {
        let (mut what, mut how) = (None, Invalidation::Hard);
        for (key, value) in pairs(query)? {
            let read = match key.as_str() {
                "url" => What::Url(url(&value)?),
                "prefix" => {
                    url(&value)?;
                    What::Prefix(value)
                }
                "tag" if (1..=TAG_BYTES_MAX).contains(&value.len()) => What::Tag(value),
                "tag" => return Err("a tag has 1 to 1,024 bytes".to_owned()),
                "soft" => {
                    how = soft(&value)?;
                    continue;
                }
                other => return Err(unknown(other, &KEYS)),
            };
            if what.replace(read).is_some() {
                return Err(
                    "write one of url, prefix and tag: what has two of them is not asked for".to_owned()
                );
            }
        }
        let what = what.ok_or("say what: ?url=URL, ?prefix=URL or ?tag=TAG; /purge_all is for everything")?;
        Ok(Self { what, how })
    }

    /// All, and `soft` perhaps.
    pub(super) fn read_all(query: &str) -> Result<Self, String> {
        let mut how = Invalidation::Hard;
        for (key, value) in pairs(query)? {
            match key.as_str() {
                "soft" => how = soft(&value)?,
                other => return Err(unknown(other, &["soft"])),
            }
        }
        Ok(Self { what: What::All, how })
    }
}

fn unknown(key: &str, known: &[&'static str]) -> String {
    format!("there is no `{key}`: {}", remedy(key, known.iter().copied()))
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
        // As forms write spaces.
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

/// A URL of a page: what clients ask for.
pub(super) fn url(text: &str) -> Result<Uri, String> {
    let wrong = || {
        let text: String = text.chars().take(200).collect();
        format!("`{}` is no URL: write http://HOST/PATH", text.escape_debug())
    };
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let has_host = uri
        .authority()
        .is_some_and(|authority| !authority.host().is_empty() && !authority.as_str().contains('@'));
    if is_http && has_host { Ok(uri) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_what_and_how() {
        let hard = |what| Ok(Purge { what, how: Invalidation::Hard });
        let soft = |what| Ok(Purge { what, how: Invalidation::Soft });
        let news = || What::Url("http://example.org/news?a=b".parse().expect("a URL"));
        for (query, purge) in [
            ("url=http://example.org/news%3Fa%3Db", hard(news())),
            ("url=http%3A%2F%2Fexample.org%2Fnews%3Fa%3Db&soft", soft(news())),
            ("soft=true&prefix=https://h/a", soft(What::Prefix("https://h/a".to_owned()))),
            ("tag=sport&soft=0", hard(What::Tag("sport".to_owned()))),
            ("tag=a+b%26c", hard(What::Tag("a b&c".to_owned()))),
        ] {
            assert_eq!(Purge::read(query), purge, "{query}");
        }
        assert_eq!(Purge::read_all(""), hard(What::All));
        assert_eq!(Purge::read_all("soft"), soft(What::All));
        for (query, said) in [
            ("", "say what: ?url=URL, ?prefix=URL or ?tag=TAG; /purge_all is for everything"),
            ("soft", "say what: ?url=URL, ?prefix=URL or ?tag=TAG; /purge_all is for everything"),
            (
                "tag=a&url=http://h/",
                "write one of url, prefix and tag: what has two of them is not asked for",
            ),
            ("tag=", "a tag has 1 to 1,024 bytes"),
            ("tags=a", "there is no `tags`: did you mean `tag`?"),
            ("url=/news", "`/news` is no URL: write http://HOST/PATH"),
            ("url=ftp://h/", "`ftp://h/` is no URL: write http://HOST/PATH"),
            ("url=http://a:b@h/", "`http://a:b@h/` is no URL: write http://HOST/PATH"),
            ("prefix=%0a", "`\\n` is no URL: write http://HOST/PATH"),
            ("tag=%ff", "a value is not UTF-8: encode it with %"),
            ("tag=a&soft=maybe", "write `soft`, `soft=true` or `soft=false`"),
        ] {
            assert_eq!(Purge::read(query), Err(said.to_owned()), "{query}");
        }
        assert_eq!(Purge::read_all("tag=a"), Err("there is no `tag`: use one of: soft".to_owned()));
    }
}
