//! Masks secrets in the queries of logged URLs.

use std::borrow::Cow;

use memchr::memchr;

use crate::config::NamePattern;

/// In place of a value. It has no character that a URL would encode.
const MASK: &str = "***";

/// A URL or request target in which the values of parameters with these names are replaced. Borrowed if nothing is replaced.
/// The parameters' names may be percent-encoded, in any case.
pub(crate) fn mask_query<'a>(url: &'a [u8], names: &[NamePattern]) -> Cow<'a, [u8]> {
    let Some(start) = memchr(b'?', url) else { return url.into() };
    let (before, query) = url.split_at(start + 1);
    let is_masked = |parameter: &[u8]| {
        memchr(b'=', parameter)
            .is_some_and(|end| names.iter().any(|name| name.matches_ignoring_case(&parameter[..end])))
    };
    if !query.split(|byte| *byte == b'&').any(is_masked) {
        return url.into();
    }
    let mut masked = Vec::with_capacity(url.len());
    masked.extend_from_slice(before);
    for (number, parameter) in query.split(|byte| *byte == b'&').enumerate() {
        if number > 0 {
            masked.push(b'&');
        }
        match memchr(b'=', parameter) {
            Some(end) if is_masked(parameter) => {
                masked.extend_from_slice(&parameter[..=end]);
                masked.extend_from_slice(MASK.as_bytes());
            }
            _ => masked.extend_from_slice(parameter),
        }
    }
    masked.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LogConfig;

    fn masked(url: &str, names: &[NamePattern]) -> String {
        String::from_utf8(mask_query(url.as_bytes(), names).into_owned()).expect("text")
    }

    #[test]
    fn values_of_secret_parameters_are_masked() {
        let names = LogConfig::default().mask_query;
        for (url, expected) in [
            ("/", "/"),
            ("/token=a", "/token=a"),
            ("/?", "/?"),
            ("/?token", "/?token"),
            ("/?token=", "/?token=***"),
            ("/?token=sesame", "/?token=***"),
            ("/?a=1&ToKeN=sesame&b=2", "/?a=1&ToKeN=***&b=2"),
            (
                "/?access_token=x&api_key=y&key=z&password=p",
                "/?access_token=***&api_key=***&key=***&password=***",
            ),
            ("/?signature=x&sig=y&X-Amz-Signature=z", "/?signature=***&sig=***&X-Amz-Signature=***"),
            ("/?%74oke%6E=sesame", "/?%74oke%6E=***"),
            ("/?token=a=b=c", "/?token=***"),
            ("/?token=a?key=b", "/?token=***"),
            ("/?a?token=b", "/?a?token=b"),
            ("/?tokens=a&keys=b&&=c", "/?tokens=a&keys=b&&=c"),
            ("https://a/?token=sesame", "https://a/?token=***"),
        ] {
            assert_eq!(masked(url, &names), expected, "{url}");
        }
        for (pattern, expected) in [("*", "/?a=***&b=***"), ("a", "/?a=***&b=2"), ("c*", "/?a=1&b=2")] {
            let names = [pattern.parse().expect("a pattern")];
            assert_eq!(masked("/?a=1&b=2", &names), expected, "{pattern}");
        }
        assert_eq!(masked("/?token=a", &[]), "/?token=a");
        let bytes = b"/?\xfftoken=a&token=\xff&\xff=a";
        assert_eq!(&*mask_query(bytes, &names), b"/?\xfftoken=a&token=***&\xff=a");
    }

    #[test]
    fn a_url_without_secrets_is_not_copied() {
        let names = LogConfig::default().mask_query;
        for url in ["/a", "/a?b=c&d"] {
            assert!(matches!(mask_query(url.as_bytes(), &names), Cow::Borrowed(_)), "{url}");
        }
    }
}
