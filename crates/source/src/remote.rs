//! The common part of the URLs of network sources: credentials and settings.

use std::{fmt, str::Utf8Error, time::Duration};

use percent_encoding::percent_decode_str;
use stockade_model::{
    nearest::remedy,
    units::{format_duration, parse_duration},
};

use crate::OpenError;

/// Default timeout of a fetch, including the wait for a connection.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Default limit of connections.
const CONNECTIONS: usize = 16;

/// Settings of all network sources.
const COMMON: [&str; 2] = ["connections", "timeout"];

/// A parsed URL. `Display` omits the password and the parameters of the server.
pub(crate) struct Remote {
    scheme: String,
    /// `user:password`, percent-encoded as in the URL.
    userinfo: Option<String>,
    hosts: String,
    path: String,
    ours: Vec<(String, String)>,
    theirs: Vec<String>,
}

impl Remote {
    /// Parses `//[user[:password]@]hosts[/path][?parameters]`. The common parameters and those in `ours` are settings of
    /// the source. With `keeps_others` the other parameters belong to the server, else they are refused.
    pub(crate) fn parse(
        scheme: &str,
        rest: &str,
        ours: &[&str],
        keeps_others: bool,
    ) -> Result<Self, OpenError> {
        let wrong = |what: &str| OpenError::BadUrl { scheme: scheme.to_owned(), what: what.to_owned() };
        let rest = rest.strip_prefix("//").ok_or_else(|| wrong("write `//` and a host after the colon"))?;
        let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        // Not shown: the text before the `@` may be the rest of a password.
        if fragment.contains('@') {
            return Err(wrong("it has an `@` after a `#`: write a `#` in a password as %23"));
        }
        if query.contains('@') {
            return Err(wrong(
                "it has an `@` after a `?`: write a `?` in a password as %3F, an `@` in a parameter as %40",
            ));
        }
        let (authority, path) = place.find('/').map_or((place, ""), |slash| place.split_at(slash));
        let (userinfo, hosts) = match authority.rsplit_once('@') {
            Some((userinfo, hosts)) => (Some(userinfo.to_owned()), hosts),
            None => (None, authority),
        };
        if hosts.is_empty() {
            return Err(wrong("it names no host"));
        }
        if path.contains('@') {
            // Not shown: the path may be the rest of a password.
            return Err(wrong("its path has an `@`: write a `/` in a password as %2F"));
        }
        let mut remote = Self {
            scheme: scheme.to_owned(),
            userinfo,
            hosts: hosts.to_owned(),
            path: path.to_owned(),
            ours: Vec::new(),
            theirs: Vec::new(),
        };
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            if COMMON.contains(&name) || ours.contains(&name) {
                if remote.setting(name).is_some() {
                    return Err(wrong(&format!("it has `{name}` twice")));
                }
                let value = percent_decode(value).map_err(|_| wrong(&format!("`{name}` is not UTF-8")))?;
                remote.ours.push((name.to_owned(), value));
            } else if keeps_others {
                remote.theirs.push(parameter.to_owned());
            } else {
                let remedy = remedy(name, ours.iter().chain(&COMMON).copied());
                return Err(wrong(&format!("unknown parameter `{name}`: {remedy}")));
            }
        }
        remote.connections()?;
        remote.timeout()?;
        Ok(remote)
    }

    /// The value of one of the source's settings.
    pub(crate) fn setting(&self, name: &str) -> Option<&str> {
        self.ours.iter().find(|(ours, _)| ours == name).map(|(_, value)| value.as_str())
    }

    /// The limit of connections.
    pub(crate) fn connections(&self) -> Result<usize, OpenError> {
        let Some(written) = self.setting("connections") else { return Ok(CONNECTIONS) };
        match written.parse() {
            Ok(connections @ 1..=1_000) => Ok(connections),
            _ => Err(self.invalid("`connections` is a number from 1 to 1000")),
        }
    }

    /// The timeout of a fetch.
    pub(crate) fn timeout(&self) -> Result<Duration, OpenError> {
        let Some(written) = self.setting("timeout") else { return Ok(TIMEOUT) };
        match parse_duration(written) {
            Ok(timeout) if !timeout.is_zero() => Ok(timeout),
            Ok(_) => Err(self.invalid("`timeout` has to be above 0")),
            Err(error) => Err(self.invalid(&format!("`timeout`: {error}"))),
        }
    }

    /// The user and the password, decoded.
    pub(crate) fn credentials(&self) -> Option<(String, String)> {
        let (user, password) =
            self.userinfo.as_ref()?.split_once(':').unwrap_or((self.userinfo.as_ref()?, ""));
        Some((percent_decode(user).ok()?, percent_decode(password).ok()?))
    }

    pub(crate) fn has_credentials(&self) -> bool {
        self.userinfo.is_some()
    }

    /// The hosts with their ports.
    pub(crate) fn hosts(&self) -> &str {
        &self.hosts
    }

    /// The part after the hosts, with its slash.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The parameters of the server, with the question mark.
    pub(crate) fn their_query(&self) -> String {
        if self.theirs.is_empty() { String::new() } else { format!("?{}", self.theirs.join("&")) }
    }

    /// The URL for the server's driver: with secrets, without the source's settings.
    pub(crate) fn with_secrets(&self, scheme: &str) -> String {
        let Self { userinfo, hosts, path, .. } = self;
        let userinfo = userinfo.as_ref().map(|userinfo| format!("{userinfo}@")).unwrap_or_default();
        format!("{scheme}://{userinfo}{hosts}{path}{}", self.their_query())
    }

    pub(crate) fn invalid(&self, what: &str) -> OpenError {
        OpenError::BadUrl { scheme: self.scheme.clone(), what: what.to_owned() }
    }

    /// The error of a source that is missing or unsuitable.
    pub(crate) fn unusable(&self, reason: impl fmt::Display) -> OpenError {
        OpenError::Unusable { place: self.to_string(), reason: reason.to_string() }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, userinfo, hosts, path, ours, .. } = self;
        write!(f, "{scheme}://")?;
        // A user without a password may be a token.
        if let Some((user, _)) = userinfo.as_ref().and_then(|userinfo| userinfo.split_once(':')) {
            write!(f, "{user}@")?;
        }
        write!(f, "{hosts}{path}")?;
        for (index, (name, value)) in ours.iter().enumerate() {
            write!(f, "{}{name}={value}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

fn percent_decode(text: &str) -> Result<String, Utf8Error> {
    percent_decode_str(text).decode_utf8().map(Into::into)
}

/// The text of a timeout in a message.
pub(crate) fn within(timeout: Duration) -> String {
    format!("no answer within {}", format_duration(timeout))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rest: &str) -> Result<Remote, OpenError> {
        Remote::parse("mongodb", rest, &["collection", "key"], true)
    }

    #[test]
    fn settings_are_parsed_and_secrets_not_shown() {
        let url = "//ada:se%40cret@a:1,b:2/db?collection=people&authSource=x&timeout=2s&key=name";
        let remote = read(url).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(remote.to_string(), "mongodb://ada@a:1,b:2/db?collection=people&timeout=2s&key=name");
        assert_eq!(remote.with_secrets("mongodb"), "mongodb://ada:se%40cret@a:1,b:2/db?authSource=x");
        assert_eq!(remote.credentials(), Some(("ada".to_owned(), "se@cret".to_owned())));
        assert_eq!((remote.hosts(), remote.path()), ("a:1,b:2", "/db"));
        assert_eq!((remote.setting("key"), remote.setting("body")), (Some("name"), None));
        assert_eq!((remote.timeout().unwrap(), remote.connections().unwrap()), (Duration::from_secs(2), 16));
        assert_eq!(read("//token@host/").map(|remote| remote.to_string()).unwrap(), "mongodb://host/");
    }

    #[test]
    fn url_errors_do_not_quote_the_url() {
        for (rest, expected) in [
            ("host/db", "write `//` and a host after the colon"),
            ("//", "it names no host"),
            ("//ada:secret@/db", "it names no host"),
            ("//ada:sec/ret@host/db", "its path has an `@`: write a `/` in a password as %2F"),
            ("//ada:sec?ret@host/db", "it has an `@` after a `?`: write a `?` in a password as %3F"),
            ("//ada:sec#ret@host/db", "it has an `@` after a `#`: write a `#` in a password as %23"),
            ("//host/db?key=a&key=b", "it has `key` twice"),
            ("//host/db?connections=0", "`connections` is a number from 1 to 1000"),
            ("//host/db?timeout=5", "`timeout`: `5` has no unit: write `5ms` or `5s`"),
        ] {
            let error = read(rest).err().expect("an error").to_string();
            assert!(error.starts_with(&format!("mongodb: {expected}")), "{error}");
            assert!(!error.contains("sec"), "{error}");
        }
        let error = Remote::parse("couchdb", "//host/db?tiemout=1s", &[], false).err().expect("an error");
        assert_eq!(error.to_string(), "couchdb: unknown parameter `tiemout`: did you mean `timeout`?");
    }
}
