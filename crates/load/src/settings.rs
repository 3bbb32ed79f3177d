//! How requests are sent: one table of settings for the flags of `stockade load` and the keys of `[load]` in an experiment.
//!
//! A doc comment is the help of the flag and the description of the key; the reference has both from here.

use std::{
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use http::{HeaderName, HeaderValue, Method};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use stockade_model::{
    message::shown,
    units::{format_duration, parse_duration, text},
};

use crate::{
    AllowedTargets, ClientCertificate, ConnectToRule, ResolveRule, Retries, Sha256Digest, Trust,
    keys::Keys,
    template::{CONNECTION_HEADERS, RequestTemplate},
    truth::AnsweredPurges,
};

/// The parts of each request, and how connections and failures are treated.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(default, deny_unknown_fields)]
pub struct RequestSettings {
    /// Add a unique query parameter to every URL
    #[cfg_attr(feature = "cli", arg(long, help_heading = "What"))]
    pub cache_bust: bool,
    /// Add a header to every request; may be repeated
    #[cfg_attr(
        feature = "cli",
        arg(long = "header", short = 'H', value_name = "K: V", help_heading = "What")
    )]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub headers: Vec<HeaderLine>,
    /// Request method [default: GET, or POST with a body]
    #[cfg_attr(feature = "cli", arg(long, short = 'X', value_name = "M", help_heading = "What"))]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub method: Option<MethodName>,
    /// File to send as the body of every request; `-`: standard input
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE", help_heading = "What"))]
    pub body: Option<PathBuf>,

    /// Time out each attempt after this time [default: 30s]
    #[cfg_attr(feature = "cli", arg(long, value_name = "D", help_heading = "How", value_parser = parse_timeout))]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    #[serde(deserialize_with = "timeout", serialize_with = "duration_text")]
    pub timeout: Option<Duration>,
    /// Use HTTP/2 only
    #[cfg_attr(feature = "cli", arg(long, help_heading = "How"))]
    pub http2: bool,
    /// Open a new connection for every request
    #[cfg_attr(feature = "cli", arg(long, help_heading = "How", conflicts_with = "http2"))]
    pub no_keepalive: bool,
    /// Refuse responses that break RFC 9112, also those that common clients accept
    #[cfg_attr(feature = "cli", arg(long, help_heading = "How"))]
    pub strict: bool,
    /// Do not verify certificates
    #[cfg_attr(feature = "cli", arg(long, help_heading = "How", conflicts_with = "ca"))]
    pub insecure: bool,
    /// Trust only the certificate authorities of this file (PEM)
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE", help_heading = "How"))]
    pub ca: Option<PathBuf>,
    /// Show this certificate to servers that ask for one (PEM)
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE", help_heading = "How", requires = "key"))]
    pub cert: Option<PathBuf>,
    /// Private key of the certificate (PEM, without a passphrase)
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE", help_heading = "How", requires = "cert"))]
    pub key: Option<PathBuf>,
    /// Connect to this Unix socket instead of the host of the URLs
    #[cfg_attr(feature = "cli", arg(long, value_name = "PATH", help_heading = "How"))]
    pub unix: Option<PathBuf>,
    /// Connect to this address instead of those of a host's name, as HOST:PORT:ADDR; further addresses follow after commas; `*` is any
    /// host; may be repeated
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "RULE", help_heading = "How", conflicts_with = "unix")
    )]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub resolve: Vec<ResolveRule>,
    /// Connect to another host and port, as HOST1:PORT1:HOST2:PORT2; an empty first one is any, an empty second one stays; may be
    /// repeated
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "RULE", help_heading = "How", conflicts_with = "unix")
    )]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub connect_to: Vec<ConnectToRule>,
    /// Connect from this address of this machine, which has ports of its own (28,000 by default); further ones, after commas, take turns
    #[cfg_attr(
        feature = "cli",
        arg(
            long = "local-address",
            value_name = "ADDR",
            value_delimiter = ',',
            help_heading = "How",
            conflicts_with = "unix"
        )
    )]
    pub local_addresses: Vec<IpAddr>,
    /// Follow at most N redirects per request [default: 0]
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", help_heading = "How"))]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u32>", range(max = 50)))]
    pub redirects: Option<AtMost<50>>,
    /// Retry at most N times after a failure, a timeout, 408, 429, 500, 502, 503 or 504 [default: 0]
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", help_heading = "How"))]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u32>", range(max = 100)))]
    pub retries: Option<AtMost<100>>,
    /// Wait this long before each retry [default: 100ms]
    #[cfg_attr(feature = "cli", arg(long, value_name = "D", help_heading = "How", value_parser = parse_duration))]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    #[serde(deserialize_with = "duration", serialize_with = "duration_text")]
    pub retry_backoff: Option<Duration>,
    /// Bound of all retries, as a share of all requests: 0.1 is one for every ten [default: 0.1]
    #[cfg_attr(feature = "cli", arg(long, value_name = "F", help_heading = "How"))]
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>", range(min = 0, max = 1)))]
    pub retry_budget: Option<Share>,
    /// Verify the SHA-256 of every decoded body, in hex
    #[cfg_attr(feature = "cli", arg(long, value_name = "HEX", help_heading = "How"))]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub sha256: Option<BodyDigest>,
}

/// How a generator sends requests: the settings with their defaults. Agents get them as they stand here.
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ClientOptions {
    /// The time from the start of an attempt until its response has to be complete.
    pub timeout: Duration,
    /// HTTP/2 only: by ALPN over TLS, with prior knowledge without TLS.
    pub http2: bool,
    /// True if a connection serves more than one request.
    pub keep_alive: bool,
    /// The certificates that TLS connections accept.
    #[serde(skip)]
    pub trust: Trust,
    /// The certificate that it shows to servers that ask for one.
    #[serde(skip)]
    pub client_certificate: Option<ClientCertificate>,
    /// The socket that replaces the address of every URL.
    pub unix_socket: Option<PathBuf>,
    /// Addresses instead of those of names; the first rule that matches.
    pub resolve: Vec<ResolveRule>,
    /// Hosts and ports to connect to instead of those of URLs; the first rule that matches. `Host` and the name in TLS stay.
    pub connect_to: Vec<ConnectToRule>,
    /// Addresses of this machine from which connections come, in turn; none: the system chooses.
    pub local_addresses: Vec<IpAddr>,
    /// The most redirects followed for one request.
    pub redirects_max: u32,
    /// The retries of failed requests.
    pub retries: Retries,
    /// The SHA-256 that every decoded body has to have.
    pub body_digest: Option<Sha256Digest>,
    /// True if a response that breaks RFC 9112 is malformed, also where common clients accept it.
    pub is_strict: bool,
    /// True if answers are checked against what their origin states, which has the clock of this machine. Agents do not.
    #[serde(skip)]
    pub checks_answers: bool,
    /// The purges with which such answers are compared.
    #[serde(skip)]
    pub purges: AnsweredPurges,
    /// The servers that it may reach; `None`: any.
    #[serde(skip)]
    pub allowed: Option<AllowedTargets>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            timeout: RequestSettings::TIMEOUT,
            http2: false,
            keep_alive: true,
            trust: Trust::System,
            client_certificate: None,
            unix_socket: None,
            resolve: Vec::new(),
            connect_to: Vec::new(),
            local_addresses: Vec::new(),
            redirects_max: 0,
            retries: Retries::default(),
            body_digest: None,
            is_strict: false,
            checks_answers: false,
            purges: AnsweredPurges::default(),
            allowed: None,
        }
    }
}

/// A header of every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderLine {
    /// In lower case.
    pub name: HeaderName,
    /// Possibly secret.
    pub value: HeaderValue,
}

/// A method in capital letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodName(pub Method);

/// A number from 0 to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AtMost<const MAX: u32>(pub u32);

/// A number from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share(pub f64);

/// The SHA-256 of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyDigest(pub Sha256Digest);

impl RequestSettings {
    /// The time after which an attempt fails, unless another one is set.
    pub const TIMEOUT: Duration = Duration::from_secs(30);

    /// The time after which an attempt fails.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(Self::TIMEOUT)
    }

    /// The method of a request with this body.
    #[must_use]
    pub fn method_with(&self, has_body: bool) -> Method {
        match &self.method {
            Some(method) => method.0.clone(),
            None if has_body => Method::POST,
            None => Method::GET,
        }
    }

    /// Adds the headers that a request does not set itself.
    pub fn add_headers(&self, request: &mut RequestTemplate) {
        let own: Vec<HeaderName> = request.headers.keys().cloned().collect();
        for HeaderLine { name, value } in self.headers.iter().filter(|header| !own.contains(&header.name)) {
            request.headers.append(name, value.clone());
        }
    }

    /// Paths of files are relative to `folder`.
    #[must_use]
    pub fn client_options(&self, folder: &Path) -> ClientOptions {
        let file = |path: &PathBuf| folder.join(path);
        let retries = Retries::default();
        ClientOptions {
            timeout: self.timeout(),
            http2: self.http2,
            keep_alive: !self.no_keepalive,
            trust: match &self.ca {
                _ if self.insecure => Trust::Insecure,
                Some(ca) => Trust::File(file(ca)),
                None => Trust::System,
            },
            client_certificate: (self.cert.as_ref().zip(self.key.as_ref())).map(|(certificate, key)| {
                ClientCertificate { certificate: file(certificate), key: file(key) }
            }),
            unix_socket: self.unix.as_ref().map(file),
            resolve: self.resolve.clone(),
            connect_to: self.connect_to.clone(),
            local_addresses: self.local_addresses.clone(),
            redirects_max: self.redirects.map_or(0, |most| most.0),
            retries: Retries {
                max: self.retries.map_or(retries.max, |most| most.0),
                backoff: self.retry_backoff.unwrap_or(retries.backoff),
                budget: self.retry_budget.map_or(retries.budget, |share| share.0),
            },
            body_digest: self.sha256.map(|digest| digest.0),
            is_strict: self.strict,
            checks_answers: false,
            purges: AnsweredPurges::default(),
            allowed: None,
        }
    }

    /// Two settings that exclude each other, or one without the other that it needs; `None`: they agree. The flags refuse them
    /// before.
    #[must_use]
    pub fn conflict(&self) -> Option<&'static str> {
        [
            (self.http2 && self.no_keepalive, "`http2` and `no_keepalive` exclude each other"),
            (self.insecure && self.ca.is_some(), "`insecure` and `ca` exclude each other"),
            (self.cert.is_some() != self.key.is_some(), "`cert` and `key` belong together"),
            (
                self.unix.is_some()
                    && !(self.resolve.is_empty()
                        && self.connect_to.is_empty()
                        && self.local_addresses.is_empty()),
                "`unix` replaces every address: leave `resolve`, `connect_to` and `local_addresses` out",
            ),
        ]
        .into_iter()
        .find_map(|(is_wrong, message)| is_wrong.then_some(message))
    }

    /// The settings that differ from their defaults as lines of TOML. Headers have their names only, since a value may be secret.
    ///
    /// # Panics
    /// Never: each setting has a form in JSON.
    #[must_use]
    pub fn lines(&self) -> String {
        let settings = serde_json::to_value(self).expect("settings are numbers, texts and lists");
        let settings = settings.as_object().into_iter().flatten();
        let is_set = |value: &serde_json::Value| match value {
            serde_json::Value::Null => false,
            serde_json::Value::Bool(is_set) => *is_set,
            serde_json::Value::Array(items) => !items.is_empty(),
            _ => true,
        };
        // These values of JSON are values of TOML, too.
        let lines = settings
            .filter(|(_, value)| is_set(value))
            .map(|(key, value)| [key, " = ", &value.to_string(), "\n"].concat());
        lines.collect()
    }
}

impl FromStr for HeaderLine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) =
            text.split_once(':').ok_or("write a name, a colon and a value, such as `X-Team: web`")?;
        let name = HeaderName::from_str(name.trim())
            .map_err(|_| format!("`{}` is not a name of a header", shown(name.trim())))?;
        if CONNECTION_HEADERS.contains(&name) {
            return Err(format!("{name} is for the connection to say: --body and --no-keepalive make it"));
        }
        let value = HeaderValue::from_str(value.trim())
            .map_err(|_| "its value has characters that no header has".to_owned())?;
        Ok(Self { name, value })
    }
}

impl FromStr for MethodName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let upper = text.to_uppercase();
        match text.parse::<Method>() {
            Ok(method) if text == upper => Ok(Self(method)),
            Ok(_) => Err(format!("methods are case-sensitive: write {upper}")),
            Err(_) => Err("write a method, such as GET, POST or PURGE".to_owned()),
        }
    }
}

impl<const MAX: u32> AtMost<MAX> {
    fn new(number: u64) -> Result<Self, String> {
        match u32::try_from(number) {
            Ok(number) if number <= MAX => Ok(Self(number)),
            _ => Err(format!("write a number from 0 to {MAX}")),
        }
    }
}

impl<const MAX: u32> FromStr for AtMost<MAX> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("write a number from 0 to {MAX}")).and_then(Self::new)
    }
}

impl<'de, const MAX: u32> Deserialize<'de> for AtMost<MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::new(u64::deserialize(from)?).map_err(D::Error::custom)
    }
}

impl Share {
    fn new(share: f64) -> Result<Self, String> {
        if (0.0..=1.0).contains(&share) {
            return Ok(Self(share));
        }
        Err("write a number from 0 to 1, such as 0.1".to_owned())
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::new(text.parse().unwrap_or(f64::NAN))
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::new(f64::deserialize(from)?).map_err(D::Error::custom)
    }
}

impl FromStr for BodyDigest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let remedy = || "write 64 hex digits, as sha256sum prints them".to_owned();
        let text = text.strip_prefix("sha256:").unwrap_or(text);
        if text.len() != 64 || !text.is_ascii() {
            return Err(remedy());
        }
        let mut digest = Sha256Digest::default();
        for (at, byte) in digest.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| remedy())?;
        }
        Ok(Self(digest))
    }
}

impl fmt::Display for BodyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name alone: a value may be secret.
impl fmt::Display for HeaderLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ...", self.name)
    }
}

/// Settings that are texts in a file, as on the command line.
macro_rules! texts {
    ($($setting:ty),*) => {$(
        impl<'de> Deserialize<'de> for $setting {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                text::name(from)
            }
        }

        impl Serialize for $setting {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
    )*};
}

texts!(HeaderLine, MethodName, BodyDigest, ResolveRule, ConnectToRule, Keys);

fn parse_timeout(text: &str) -> Result<Duration, String> {
    above_zero(parse_duration(text).map_err(|error| error.to_string())?)
}

fn above_zero(timeout: Duration) -> Result<Duration, String> {
    if timeout.is_zero() {
        return Err("a timeout of zero fails every request: write more, or leave it out".to_owned());
    }
    Ok(timeout)
}

fn timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    above_zero(text::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    text::deserialize(from).map(Some)
}

#[expect(clippy::ref_option, reason = "serde passes a reference")]
fn duration_text<S: Serializer>(duration: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    duration.map(format_duration).serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<RequestSettings, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn file_has_the_settings_of_the_flags() {
        let settings = read(
            "headers = [\"Host: a.example\", \"Cookie: id=1\"]\nmethod = \"PURGE\"\nhttp2 = true\ntimeout = \"2s\"\nredirects = 3\n\
             retries = 2\nretry_budget = 0.5\nresolve = [\"*:80:127.0.0.1\"]",
        )
        .unwrap();
        let options = settings.client_options(Path::new("/experiment"));
        assert_eq!(
            (options.timeout, options.http2, options.redirects_max),
            (Duration::from_secs(2), true, 3)
        );
        assert_eq!((options.retries.max, options.retries.budget), (2, 0.5));
        let mut request = RequestTemplate::get("http://127.0.0.1/".parse().unwrap());
        request.headers.insert("cookie", HeaderValue::from_static("own"));
        settings.add_headers(&mut request);
        assert_eq!(
            (&request.headers["host"], &request.headers["cookie"]),
            (&"a.example".parse().unwrap(), &"own".parse().unwrap())
        );
        assert_eq!(settings.method_with(true), Method::from_bytes(b"PURGE").unwrap());
    }

    #[test]
    fn lines_have_no_values_of_headers() {
        let settings =
            read("headers = [\"Authorization: Bearer secret\"]\ntimeout = \"2s\"\nbody = \"b.json\"")
                .unwrap();
        assert_eq!(
            settings.lines(),
            "body = \"b.json\"\nheaders = [\"authorization: ...\"]\ntimeout = \"2s\"\n"
        );
        assert_eq!(RequestSettings::default().lines(), "");
    }

    #[test]
    fn wrong_settings_are_refused_with_a_remedy() {
        for (text, words) in [
            ("headers = [\"Host\"]", "write a name, a colon and a value"),
            ("headers = [\"Content-Length: 3\"]", "is for the connection to say"),
            ("method = \"get\"", "write GET"),
            ("redirects = 51", "write a number from 0 to 50"),
            ("retry_budget = 2", "write a number from 0 to 1"),
            ("timeout = \"2\"", "has no unit"),
            ("timeout = 2", "`2` has no unit: write `2ms` or `2s`"),
            ("method = 5", "expected a string"),
            ("sha256 = \"12\"", "64 hex digits"),
            ("resolve = [\"a\"]", "HOST:PORT:ADDR"),
        ] {
            let message = read(text).unwrap_err();
            assert!(message.contains(words), "{text}: {message}");
        }
        assert_eq!(
            read("insecure = true\nca = \"ca.pem\"").unwrap().conflict(),
            Some("`insecure` and `ca` exclude each other")
        );
        assert_eq!(read("cert = \"a.pem\"").unwrap().conflict(), Some("`cert` and `key` belong together"));
        assert_eq!(read("http2 = true\ntimeout = \"1s\"").unwrap().conflict(), None);
    }
}
