//! Where OTLP goes: the URL and its environment variables.

use std::{env, path::PathBuf};

use http::{HeaderMap, HeaderName, HeaderValue, header::CONTENT_TYPE};
use stockade_http::{
    client::{HttpUrl, UrlFault},
    tls::Trust,
};
use stockade_record::telemetry::family::Labels;

/// The path of metrics below an endpoint.
const METRICS_PATH: &str = "/v1/metrics";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
const SERVICE: &str = "OTEL_SERVICE_NAME";

/// A variable that cannot be used. Its value may be a secret, and is not printed.
#[derive(Debug, thiserror::Error)]
#[error("{0} has an entry that is not `name=value`: write entries such as `name=value,other=value`")]
pub struct EnvironmentError(&'static str);

/// Reads the URL of `--otlp`. Without a path, or with `/`, it is an endpoint, and `/v1/metrics` is appended.
pub fn parse_url(text: &str) -> Result<HttpUrl, String> {
    let url = HttpUrl::parse(text).map_err(|fault| match fault {
        UrlFault::Malformed => "write the URL of a collector, such as http://127.0.0.1:4318".to_owned(),
        UrlFault::Credentials => format!("a URL with a user or a password is not supported: set {HEADERS}"),
    })?;
    let path = if url.path == "/" { METRICS_PATH.to_owned() } else { url.path };
    Ok(HttpUrl { path, ..url })
}

/// The headers and the certificate authority of the standard variables.
pub fn collector() -> Result<(HeaderMap, Trust), EnvironmentError> {
    let theirs = env::var(HEADERS).unwrap_or_default();
    let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    headers.extend(parse_headers(&theirs).ok_or(EnvironmentError(HEADERS))?);
    let trust = env::var_os(CERTIFICATE).filter(|path| !path.is_empty());
    Ok((headers, trust.map_or(Trust::System, |path| Trust::File(PathBuf::from(path)))))
}

/// The resource with the attributes of the standard variables, which replace ours.
pub fn with_environment(resource: Labels) -> Result<Labels, EnvironmentError> {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let attributes = parse_attributes(&variable(ATTRIBUTES)).ok_or(EnvironmentError(ATTRIBUTES))?;
    Ok(merged(resource, attributes, variable(SERVICE)))
}

fn merged(resource: Labels, attributes: Labels, service: String) -> Labels {
    let service = Some(("service.name", service)).filter(|(_, name)| !name.is_empty());
    let mut merged: Labels = Vec::new();
    for (name, value) in service.into_iter().chain(attributes).chain(resource) {
        if merged.iter().all(|(known, _)| *known != name) {
            merged.push((name, value));
        }
    }
    merged
}

fn parse_attributes(text: &str) -> Option<Labels> {
    let attribute = |(name, value): (&str, Vec<u8>)| {
        // Read once, and needed until the end of the program.
        let name: &'static str = name.to_owned().leak();
        Some((name, String::from_utf8(value).ok()?))
    };
    parse_entries(text)?.into_iter().map(attribute).collect()
}

fn parse_headers(text: &str) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let header = |(name, value): (&str, Vec<u8>)| {
        let mut value = HeaderValue::from_bytes(&value).ok()?;
        value.set_sensitive(true);
        Some((name.parse().ok()?, value))
    };
    parse_entries(text)?.into_iter().map(header).collect()
}

/// `name=value` entries separated by commas, values percent-encoded.
fn parse_entries(text: &str) -> Option<Vec<(&str, Vec<u8>)>> {
    fn entry(entry: &str) -> Option<(&str, Vec<u8>)> {
        let (name, value) = entry.split_once('=')?;
        let name = Some(name.trim()).filter(|name| !name.is_empty())?;
        Some((name, percent_decoded(value.trim())?))
    }
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(entry).collect()
}

fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_without_a_path_gets_that_of_metrics() {
        for (text, host, port, path) in [
            ("http://127.0.0.1:4318", "127.0.0.1", 4318, "/v1/metrics"),
            ("http://[::1]:4318/", "::1", 4318, "/v1/metrics"),
            ("https://otlp.example/otlp/v1/metrics", "otlp.example", 443, "/otlp/v1/metrics"),
            ("http://collector/x?y=1", "collector", 80, "/x?y=1"),
        ] {
            let url = parse_url(text).unwrap();
            assert_eq!((url.host.as_str(), url.port, url.path.as_str()), (host, port, path));
        }
        for text in ["127.0.0.1:4318", "grpc://x", "http://", "", "http://user:secret@x"] {
            assert!(parse_url(text).is_err_and(|error| !error.contains("secret")), "{text}");
        }
    }

    #[test]
    fn attributes_of_the_environment_replace_ours() {
        let ours = vec![("service.name", "stockade".to_owned()), ("host.arch", "amd64".to_owned())];
        let theirs = parse_attributes("service.name=a, vcs.ref.head.name=b%2Fc").unwrap();
        assert_eq!(
            merged(ours, theirs, "gate".to_owned()),
            [("service.name", "gate"), ("vcs.ref.head.name", "b/c"), ("host.arch", "amd64")]
                .map(|(name, value)| (name, value.to_owned()))
        );
        assert_eq!(parse_attributes("x=%ff"), None);
    }

    #[test]
    fn headers_are_percent_decoded() {
        let headers = parse_headers(" api-key=a%20b=c , x=,").unwrap();
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(headers, [("api-key", &b"a b=c"[..]), ("x", b"")]);
        for wrong in ["x", "a b=c", "x=%", "x=%zz", "x=%0a"] {
            assert_eq!(parse_headers(wrong), None, "{wrong}");
        }
    }
}
