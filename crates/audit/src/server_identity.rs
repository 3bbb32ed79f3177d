//! The program of a cache, recognised by the fields of its responses.

use http::HeaderMap;
use serde::Serialize;

/// The program of a cache, as far as its responses state it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServerIdentity {
    /// In lower case, such as `nginx`. Absent: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Words of `Server`, `Via` and `Cache-Status`, and the servers that write them.
const SIGNS: [(&str, &str); 9] = [
    ("stockade", "stockade"),
    ("varnish", "varnish"),
    ("ats/", "trafficserver"),
    ("apachetrafficserver", "trafficserver"),
    ("squid", "squid"),
    ("caddy", "caddy"),
    ("haproxy", "haproxy"),
    ("envoy", "envoy"),
    ("nginx", "nginx"),
];

impl ServerIdentity {
    /// The server that wrote a response.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let fields = ["via", "server", "cache-status", "x-varnish"];
        let values =
            fields.iter().flat_map(|name| headers.get_all(*name).iter().map(move |value| (*name, value)));
        let texts: Vec<String> = values
            .filter_map(|(name, value)| Some(format!("{name} {}", value.to_str().ok()?.to_ascii_lowercase())))
            .collect();
        let with = |sign: &'static str| texts.iter().filter(move |text| text.contains(sign));
        SIGNS.iter().find(|(sign, _)| with(sign).next().is_some()).map_or_else(
            Self::default,
            |(sign, name)| {
                let word = sign.trim_end_matches('/');
                let version = with(sign).flat_map(|text| text.split(word).skip(1)).find_map(version);
                Self { name: Some(name), version }
            },
        )
    }
}

/// The number at the start of a text: `/1.22.1 (Ubuntu)` has 1.22.1.
fn version(text: &str) -> Option<String> {
    let number = text.strip_prefix('/')?;
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
    Some(number[..end].to_owned()).filter(|number| !number.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_known_by_their_fields() {
        for (fields, name, number) in [
            (&[("server", "nginx/1.22.1")][..], Some("nginx"), Some("1.22.1")),
            (
                &[("server", "Apache"), ("via", "1.1 host (Varnish/7.1)"), ("x-varnish", "3 2")],
                Some("varnish"),
                Some("7.1"),
            ),
            (&[("x-varnish", "3 2"), ("via", "1.1 varnish (Varnish/6.0)")], Some("varnish"), Some("6.0")),
            (&[("server", "ATS/9.2.0")], Some("trafficserver"), Some("9.2.0")),
            (&[("via", "1.1 cache (squid/5.7)")], Some("squid"), Some("5.7")),
            (&[("server", "gunicorn")], None, None),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(*name, value.parse().unwrap());
            }
            let expected = ServerIdentity { name, version: number.map(str::to_owned) };
            assert_eq!(ServerIdentity::of(&headers), expected, "{fields:?}");
        }
    }
}
