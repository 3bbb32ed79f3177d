//! Target files of Vegeta and siege, and URLs.

#![allow(clippy::missing_panics_doc, reason = "a property that does not hold panics")]

use std::{fmt::Write as _, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::json;

use crate::{
    targets::{TargetFileError, siege, vegeta},
    template::RequestTemplate,
    traffic::Traffic,
    url::{BaseUrl, parse_url},
};

/// No folder: files that targets name do not exist.
const FOLDER: &str = "/nonexistent";

/// A file.
///
/// - Every error has a message of one line, at a line of the file.
/// - Targets are the same after they are written as JSON and read again.
/// - Every URL that is accepted can be requested.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for read in [vegeta::read, siege::read] {
        match read("targets.txt", text, Path::new(FOLDER)) {
            Ok(templates) => check_templates(&templates),
            Err(error) => check_error(&error, text),
        }
    }
    match parse_url(text) {
        Ok(url) => {
            assert!(url.authority().is_some() && url.path().starts_with('/'), "{url}");
            assert_eq!(parse_url(&url.to_string()).as_ref(), Ok(&url), "{text}");
        }
        Err(error) => assert!(!error.to_string().contains(char::is_control), "{error:?}"),
    }
    if let Ok(base) = text.parse::<BaseUrl>() {
        assert_eq!(base.to_string().parse(), Ok(base.clone()), "{text}");
        let url = base.url("/a?b").expect("a valid path");
        assert_eq!(url.path(), format!("{}/a", base.prefix()), "{text}");
    }
}

fn check_error(error: &TargetFileError, text: &str) {
    let message = error.to_string();
    assert!(!message.contains(char::is_control), "{message:?}");
    let lines = text.lines().count() as u64;
    assert!(error.line.is_none_or(|line| (1..=lines).contains(&line)), "{message} of {lines} lines");
}

fn check_templates(templates: &[RequestTemplate]) {
    assert!(!templates.is_empty());
    let mut written = String::new();
    for RequestTemplate { method, url, headers, body } in templates {
        let header: serde_json::Map<_, _> = headers
            .keys()
            .map(|name| {
                let values =
                    headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
                (name.to_string(), json!(values.collect::<Vec<_>>()))
            })
            .collect();
        let body = BASE64_STANDARD.encode(body);
        let target =
            json!({"method": method.as_str(), "url": url.to_string(), "header": header, "body": body});
        let _ = writeln!(written, "{target}");
    }
    let again = vegeta::read("targets.json", &written, Path::new(FOLDER)).expect("written targets are valid");
    assert_eq!(again, templates);
    for template in templates {
        if template.url.path_and_query().is_some_and(|path| path.as_str().contains("{key")) {
            continue;
        }
        assert_eq!(Traffic::single_unchecked(template.clone()).templates(), std::slice::from_ref(template));
    }
}
