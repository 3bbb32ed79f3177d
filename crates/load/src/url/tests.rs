//! URLs as users type them.

use proptest::prelude::*;

use super::*;

#[test]
fn urls_are_parsed() {
    for (text, url) in [
        ("http://localhost:8080/x", "http://localhost:8080/x"),
        (" https://host ", "https://host/"),
        ("HTTP://Host/a", "http://Host/a"),
        ("http://host?a=1", "http://host/?a=1"),
        ("http://host/a#part", "http://host/a"),
        ("http://host?a#part", "http://host/?a"),
        ("http://[::1]:8080/x", "http://[::1]:8080/x"),
        ("http://host/doc/{key:08}?x={key}", "http://host/doc/{key:08}?x={key}"),
        ("http://host/?to=http://other/", "http://host/?to=http://other/"),
    ] {
        assert_eq!(parse_url(text).unwrap().to_string(), url, "{text}");
    }
}

#[test]
fn invalid_url_has_a_remedy() {
    let malformed = |text: &str, remedy: &str| format!("`{text}` is not a URL: {remedy}");
    let no_host = "has no host: write one before the path, as in `http://localhost:8080/`";
    let port = "has an invalid port: write one from 1 to 65535, or remove the `:`";
    let user = "the URL has a user name: remove it, and send a header `Authorization: Basic ...`";
    for (text, message) in [
        ("localhost:8080/x", "`localhost:8080/x` has no scheme: write `http://localhost:8080/x`"),
        ("localhost", "`localhost` has no scheme: write `http://localhost`"),
        ("//host/x", "`host/x` has no scheme: write `http://host/x`"),
        ("host/?to=http://a/", "`host/?to=http://a/` has no scheme: write `http://host/?to=http://a/`"),
        ("http:/host/x", &malformed("http:/host/x", "write `http://host/x`")),
        (
            "ftp://host/x",
            "`ftp://host/x` is neither http nor https: write `http://` or `https://` before the host",
        ),
        ("/x", &format!("`/x` {no_host}")),
        ("", &format!("`` {no_host}")),
        ("http:///x", &format!("`http:///x` {no_host}")),
        ("http://:80/x", &format!("`http://:80/x` {no_host}")),
        ("http://host:99999/", &format!("`http://host:99999/` {port}")),
        ("http://host:0/", &format!("`http://host:0/` {port}")),
        ("http://host:/", &format!("`http://host:/` {port}")),
        ("http://me:secret@host/", user),
        ("http://host/a b", &malformed("http://host/a b", "there is a space in it, write `%20`")),
        (
            "http://host/<a>",
            &malformed(
                "http://host/<a>",
                "invalid uri character; write special characters as `%` and two hex digits",
            ),
        ),
    ] {
        assert_eq!(parse_url(text).unwrap_err().to_string(), message, "{text}");
    }
    let long = format!("http://host/{}", "a".repeat(70_000));
    let error = parse_url(&long).unwrap_err().to_string();
    assert!(error.ends_with("a...` is not a URL: it has more than 65,534 bytes"), "{error}");
}

#[test]
fn base_url_prefixes_paths() {
    for (base, path, url) in [
        ("http://host", "/", "http://host/"),
        ("http://host/", "/a?b=c", "http://host/a?b=c"),
        ("https://host:8443/v2", "/a", "https://host:8443/v2/a"),
        ("http://host/v2//", "//a", "http://host/v2//a"),
    ] {
        assert_eq!(base.parse::<BaseUrl>().unwrap().url(path).unwrap(), url, "{base} {path}");
    }
    let error = "http://host/?a".parse::<BaseUrl>().unwrap_err().to_string();
    assert_eq!(error, "`http://host/?a` has a query: write the part before the `?`, paths are added to it");
}

proptest! {
    #[test]
    fn arbitrary_text_does_not_panic(text in ".{0,40}", near in "(https?)?(:/?/?)?[a-z@:\\[\\]{}.%?#/é ]{0,24}") {
        for text in [text, near] {
            if let Ok(url) = parse_url(&text) {
                prop_assert!(url.path_and_query().is_some_and(|path| path.as_str().starts_with('/')));
                prop_assert_eq!(parse_url(&url.to_string()), Ok(url));
            }
            let _ = text.parse::<BaseUrl>().map(|base| base.url(&text));
        }
    }
}
