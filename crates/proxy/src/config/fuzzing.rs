//! Configuration files, and the patterns of routes.

#![allow(clippy::missing_panics_doc, reason = "a property that does not hold panics")]

use super::{Config, ConfigError, HostPattern, NamePattern, PathPattern, RouteConfig, RouteTable, diff};

/// A file.
///
/// - A file that is refused has a message of one line, at a place in the file, that can be shown with the file.
/// - A comment at its end changes nothing, and a valid file does not differ from itself.
/// - Every valid file can be shown as JSON, and has a route for every request, or not for a request of another path.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let config = match Config::parse("stockade.toml", text) {
        Ok(config) => config,
        Err(ConfigError::File(error)) => {
            let line = error.line();
            assert!(!line.contains(char::is_control), "{line:?}");
            if let Some(at) = error.at {
                assert!(text.get(at.offset()..at.offset() + at.len()).is_some(), "{line}");
                let (line, column) = error.position().expect("a place");
                let text = text.split('\n').nth(line - 1).expect("a line of the file");
                assert!(column <= text.chars().count() + 1, "column {column} of {text:?}");
            }
            let mut shown = String::new();
            let report = miette::NarratableReportHandler::new().render_report(&mut shown, error.as_ref());
            assert!(report.is_ok() && !shown.is_empty());
            return;
        }
        Err(error) => panic!("{error}: an error of no file"),
    };
    let commented = Config::parse("stockade.toml", &format!("{text}\n# the end"));
    assert_eq!(commented.expect("a comment at the end is valid"), config);
    assert!(diff(&config, &config).is_empty());
    let shown = config.shown();
    let text = serde_json::to_string(&shown).expect("it is JSON");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&text).expect("it is JSON"), shown);
    assert!(config.listen.len() + config.listen_proxy_protocol.len() > 0 && !config.origins.is_empty());
    for route in &config.routes {
        assert!(route.origin < config.origins.len(), "{}", route.name);
        let _ = route.cache_target("/a?b=1&utm_x=2");
    }
    let _ = (config.route("example.org", "/"), config.has_host("example.org"));
}

/// A pattern and a text, in lines.
///
/// - A pattern matches what a naive matcher matches.
/// - A pattern is read as it is written.
/// - Ignored parameters are gone, and all others stay in their order.
pub fn patterns(data: &[u8]) {
    let Some((pattern, text)) = std::str::from_utf8(data).ok().and_then(|text| text.split_once('\n')) else {
        return;
    };
    if let Ok(host) = pattern.parse::<HostPattern>() {
        assert_eq!(host.to_string().parse(), Ok(host.clone()), "{pattern}");
        let (host_text, lower) = (host.to_string(), text.to_ascii_lowercase());
        let expected = match host_text.strip_prefix("*.") {
            Some(name) => lower.strip_suffix(&format!(".{name}")).is_some_and(|label| !label.is_empty()),
            None => lower == host_text,
        };
        assert_eq!(host.matches(text), expected, "{pattern} and {text}");
    }
    if let Ok(path) = pattern.parse::<PathPattern>() {
        assert_eq!(path.to_string().parse(), Ok(path.clone()), "{pattern}");
        let expected = match pattern.strip_suffix('*') {
            Some("/") => true,
            Some(folder) => text.find(folder) == Some(0),
            None => text == pattern,
        };
        assert_eq!(path.matches(text), expected, "{pattern} and {text}");
    }
    if let Ok(name) = pattern.parse::<NamePattern>() {
        assert_eq!(name.to_string().parse(), Ok(name.clone()), "{pattern}");
        let expected = match pattern.strip_suffix('*') {
            Some(start) => text.find(start) == Some(0),
            None => text == pattern,
        };
        assert_eq!(name.matches(text), expected, "{pattern} and {text}");
        check_target(&name, text);
    }
}

/// `text` as the query of a request whose route ignores the parameters of this name.
fn check_target(ignored: &NamePattern, text: &str) {
    if text.contains(['?', '#']) {
        return;
    }
    let route = RouteConfig {
        table: RouteTable { ignore_query: vec![ignored.clone()], ..RouteTable::default() },
        ..route()
    };
    let target = format!("/a?{text}");
    let kept: Vec<&str> = text
        .split('&')
        .filter(|parameter| {
            let name = parameter.split_once('=').map_or(*parameter, |(name, _)| name);
            let name: Vec<u8> = percent_encoding::percent_decode_str(name).collect();
            !ignored.matches(&String::from_utf8_lossy(&name))
        })
        .collect();
    let expected = if kept.is_empty() { "/a".to_owned() } else { format!("/a?{}", kept.join("&")) };
    let cached = route.cache_target(&target);
    assert_eq!(cached, expected, "{ignored} in {target}");
    assert_eq!(route.cache_target(&cached), cached);
}

fn route() -> RouteConfig {
    let file = "[[origin]]\nname = \"app\"\nurl = \"http://127.0.0.1:9000\"\n";
    let config = Config::parse("stockade.toml", file).expect("a valid file");
    config.routes.into_iter().next().expect("the default route")
}
