//! Values of the file: each is read from the text that a user writes, and shown in the same form.

use std::{fmt, net::SocketAddr, str::FromStr, time::Duration};

use http::{HeaderName, Uri, uri::PathAndQuery};
#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use stockade_cache::spec::value::bounded_integers;
#[cfg(feature = "schema")]
use stockade_cache::spec::value::{SizeValue, TextSchema as _, duration_schema};
use stockade_model::{
    rate::Rate,
    units::{UnitError, format_exact_duration, format_exact_size, parse_duration, parse_size, text},
};
use stockade_source::SourceUrl;

use super::{
    route::{HostPattern, NamePattern, PathPattern},
    shadow::{GhostPolicy, GhostSize, GhostTtlText},
};

/// Types that a string is parsed into, and that are shown as one, each with its JSON schema. `parsed`: a number instead of the string is
/// refused by the parser, which knows the remedy. `name`: a number could be one, and is refused.
macro_rules! text_values {
    ($read:ident: $($name:ty: $schema:expr;)*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                text::$read(from)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        #[cfg(feature = "schema")]
        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    )*};
}

text_values! {
    parsed:
    PlainDuration: duration_schema(false);
    PositiveDuration: duration_schema(false);
    OrNone<PositiveDuration>: duration_schema(true);
    OrNone<Rate>: json_schema!({ "type": "string", "pattern": "^(none|[0-9_]+/[0-9]*[a-z]+)$" });
    Size: SizeValue::schema();
    HeadSize: SizeValue::schema();
    GhostSize: json_schema!({ "type": "string" });
    GhostTtlText: json_schema!({ "type": "string" });
    SocketAddress: json_schema!({ "type": "string" });
    ProbePath: json_schema!({ "type": "string", "pattern": "^/" });
    OriginAddress: json_schema!({ "type": "string" });
    PathPattern: json_schema!({ "type": "string", "pattern": "^/[^*?# ]*\\*?$" });
    GhostPolicy: json_schema!({ "type": "string" });
}

text_values! {
    name:
    Name: json_schema!({ "type": "string", "pattern": "^[A-Za-z0-9_.-]{1,64}$" });
    AdminHost: json_schema!({ "type": "string" });
    HeaderFieldName: json_schema!({ "type": "string" });
    HostPattern: json_schema!({ "type": "string" });
    NamePattern: json_schema!({ "type": "string" });
}

bounded_integers! {
    /// Threads that serve.
    pub Threads: 1..=1_024, "a proxy has 1 to 1,024 threads";
    /// Keys in the sample of a shadow.
    pub ShadowKeys: 256..=131_072, "the sample has 256 to 131,072 keys: write one of these numbers";
    /// Headers of a request or a response.
    pub Headers: 1..=10_000, "a head may have 1 to 10,000 headers";
    /// Connections of clients.
    pub Connections: 1..=10_000_000, "there may be 1 to 10,000,000 connections";
    /// Requests of one connection.
    pub Streams: 1..=100_000, "a connection may have 1 to 100,000 requests at once";
    /// Requests of one client at once.
    pub Burst: 1..=1_000_000, "1 to 1,000,000 requests may come at once";
    /// Bits of an IPv4 address.
    pub Ipv4Bits: 1..=32, "1 to 32 bits of an IPv4 address tell clients apart";
    /// Bits of an IPv6 address.
    pub Ipv6Bits: 1..=56, "1 to 56 bits of an IPv6 address tell clients apart";
    /// Connections to an origin.
    pub OriginConnections: 1..=100_000, "an origin has 1 to 100,000 connections";
    /// Requests that wait for one.
    pub Waiting: 0..=1_000_000, "0 to 1,000,000 requests may wait";
    /// Failures or good answers.
    pub Times: 1..=1_000, "write a number from 1 to 1,000";
    /// A status of a final response.
    pub FinalStatus: 200..=599, "write a status from 200 to 599";
}

/// Zero or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainDuration(pub Duration);

impl FromStr for PlainDuration {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse_duration(text).map(Self)
    }
}

impl fmt::Display for PlainDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_exact_duration(self.0))
    }
}

/// Above 0, at most a year.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PositiveDuration(pub Duration);

impl FromStr for PositiveDuration {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        match parse_duration(text)? {
            Duration::ZERO => Err(TimeError::Zero),
            time if time > Duration::from_hours(365 * 24) => Err(TimeError::Long(text.to_owned())),
            time => Ok(Self(time)),
        }
    }
}

impl fmt::Display for PositiveDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_exact_duration(self.0))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TimeError {
    #[error(transparent)]
    Unit(#[from] UnitError),
    #[error("this has to be above 0")]
    Zero,
    #[error("`{0}` is more than a year")]
    Long(String),
}

/// `None`: unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrNone<T>(pub Option<T>);

impl<T: FromStr> FromStr for OrNone<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text == "none" { Ok(Self(None)) } else { text.parse().map(Some).map(Self) }
    }
}

impl<T: fmt::Display> fmt::Display for OrNone<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("none"),
        }
    }
}

/// Bytes. A number that exceeds `usize` is read as `usize::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub usize);

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse_size(text).map(|bytes| Self(usize::try_from(bytes).unwrap_or(usize::MAX)))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_exact_size(self.0 as u64))
    }
}

/// Bytes of the head of a request or a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadSize(pub usize);

impl FromStr for HeadSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // hyper's minimum, and a bound on the memory of ten thousand clients.
        let Size(bytes) = text.parse().map_err(|error: UnitError| error.to_string())?;
        let error_text = || "the head of a request may have 8KiB to 1MiB".to_owned();
        (8 << 10..=1 << 20).contains(&bytes).then_some(Self(bytes)).ok_or_else(error_text)
    }
}

impl fmt::Display for HeadSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Size(self.0).fmt(f)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketAddress(pub SocketAddr);

impl FromStr for SocketAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = match text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')) {
            Some(port) if port.parse::<u16>().is_ok() => format!("127.0.0.1:{port}"),
            _ => "127.0.0.1:8080, 0.0.0.0:80 or [::]:80".to_owned(),
        };
        let message =
            || format!("`{text}` is not an address: write an IP address and a port, as in {example}");
        text.parse().map(Self).map_err(|_| message())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(pub String);

impl FromStr for Name {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if (1..=64).contains(&text.len()) && text.chars().all(is_plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err("names are made of 1 to 64 letters, digits, `_`, `-` and `.`")
        }
    }
}

/// A host name that the admin listener accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminHost(pub String);

impl FromStr for AdminHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let host = text.parse::<HostPattern>().map_err(|error| error.to_string())?;
        if text.starts_with("*.") {
            return Err(format!(
                "`{text}`: write every name in full; a pattern would let others choose a name"
            ));
        }
        Ok(Self(host.to_string()))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePath(pub String);

impl FromStr for ProbePath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_path = text.starts_with('/') && text.parse::<PathAndQuery>().is_ok();
        let message = || format!("`{text}` is not a path: write one such as /healthz");
        is_path.then(|| Self(text.to_owned())).ok_or_else(message)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderFieldName(pub HeaderName);

impl FromStr for HeaderFieldName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| format!("`{text}` is not a field name"))
    }
}

/// Shows the inner value.
macro_rules! shown_as_inner {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

shown_as_inner!(SocketAddress Name AdminHost ProbePath HeaderFieldName);

/// The URL of an HTTP server, or of a database of documents. Displayed without secrets.
#[derive(Clone, Debug, PartialEq)]
pub enum OriginAddress {
    /// Scheme, host, port and optionally a base path; no user, no query.
    Http(Uri),
    Documents(SourceUrl),
}

impl FromStr for OriginAddress {
    type Err = String;

    /// Errors do not contain the URL, which may have a secret.
    fn from_str(url: &str) -> Result<Self, String> {
        let scheme = url.split(':').next().unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            return url
                .parse()
                .map(Self::Documents)
                .map_err(|error: stockade_source::OpenError| error.to_string());
        }
        let malformed = || "this is not the URL of a server: write http://HOST:PORT".to_owned();
        let uri: Uri = url.parse().map_err(|_| malformed())?;
        let authority = uri.authority().ok_or_else(malformed)?;
        if authority.as_str().contains('@') {
            return Err("the client's `Authorization` is forwarded: remove user and password".to_owned());
        }
        // `http` returns no port for one above 65535.
        let has_port = authority.as_str().len() > authority.host().len();
        if authority.host().is_empty() || has_port && authority.port_u16().is_none_or(|port| port == 0) {
            return Err(malformed());
        }
        if uri.query().is_some() || url.contains('#') {
            return Err("remove the query and the fragment".to_owned());
        }
        Ok(Self::Http(uri))
    }
}

impl fmt::Display for OriginAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(url) => url.fmt(f),
            Self::Documents(url) => url.fmt(f),
        }
    }
}
