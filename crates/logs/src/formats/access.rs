//! Access logs: lines in the Common Log Format or in JSON.

use std::{borrow::Cow, time::Duration};

use memchr::memchr;

use super::{LineParser, Parsed, Visit};
use crate::{
    common::{self, CommonLine, unescape},
    format::FormatKind,
    json::{JsonField, JsonLine, JsonRequest, JsonValue},
    logged::{LoggedKey, LoggedRequest, Operation},
    request,
    time::TimeParser,
    value::{self, DeclaredCaching, Problem},
};

/// Lines of JSON may be among its lines.
pub(crate) const CLF: FormatKind =
    FormatKind {
        is_guessed: true,
        ..FormatKind::access_log("clf", "access log in the Common Log Format", || {
            Box::new(AccessLines::default())
        })
    };

pub(crate) const COMBINED: FormatKind = FormatKind::access_log(
    "combined",
    "the same with referrer and user agent, as nginx and Apache write it",
    || Box::new(AccessLines::default()),
);

/// The fields of [`JSON_FIELDS`](crate::JSON_FIELDS). Lines in the Common Log Format may be among its lines.
pub(crate) const JSON: FormatKind = FormatKind::access_log(
    "json",
    "access log with a JSON object a line: nginx, Caddy, Traefik, Envoy, Cloudflare, Google, Azure, Fastly, Akamai, CloudFront, ECS, Stockade",
    || Box::new(AccessLines::default()),
);

const SECOND_NS: u64 = 1_000_000_000;

/// A lifetime above this (317 years) is not one.
const LIFETIME_SECONDS_MAX: f64 = 1e10;

/// A line that starts with `{` is JSON.
#[derive(Debug, Default)]
pub(crate) struct AccessLines {
    times: TimeParser,
}

impl LineParser for AccessLines {
    fn times_without_offset(&self) -> u64 {
        self.times.times_without_offset()
    }

    fn parse(&mut self, line: &[u8], visit: &mut Visit<'_>) -> Result<Parsed, Problem> {
        let line = line.trim_ascii();
        if line.starts_with(b"{") {
            self.parse_json(&value::lossy(line), visit)
        } else if let Some((prefix, json)) = split_prefix(line)
            && let Ok(json) = JsonLine::parse(&value::lossy(json))
        {
            self.parse_prefixed(&value::lossy(prefix), &json, visit)
        } else {
            self.parse_common(line, visit)
        }
    }
}

impl AccessLines {
    fn parse_common(&mut self, text: &[u8], visit: &mut Visit<'_>) -> Result<Parsed, Problem> {
        let line = match CommonLine::parse(text, &mut self.times) {
            Ok(line) => line,
            Err(_) if common::is_error_log(text) => {
                return Ok(Parsed::ProgramMessage(
                    "the line is one of an error log: name the access log".into(),
                ));
            }
            Err(error) => return Err(common::explained(error).into()),
        };
        let bytes = value::size(line.bytes)?;
        let request = unescape(line.request);
        let Some((method, url)) = request::split(&request) else { return Ok(Parsed::NoRequest) };
        let key = LoggedKey::Url { method, host: line.virtual_host(), url };
        visit(LoggedRequest {
            at_ns: Some(line.at_ns),
            operation: Operation::of_method(method),
            status: value::status(line.status),
            bytes,
            service_time: common::service_time(line.after),
            user_agent: common::user_agent(line.after),
            ..LoggedRequest::read(key)
        });
        Ok(Parsed::Requests)
    }

    fn parse_json(&mut self, line: &str, visit: &mut Visit<'_>) -> Result<Parsed, Problem> {
        let line = JsonLine::parse(line)?;
        if let Some(message) = line.message() {
            return Ok(Parsed::ProgramMessage(message.into()));
        }
        let at_ns = line.at_ns(&mut self.times)?;
        visit_json(&line, at_ns, visit)
    }

    /// Reads a line that has its request in JSON after a time, in UTC without an offset, and other words. A time in the JSON is
    /// that of the request.
    fn parse_prefixed(
        &mut self,
        prefix: &str,
        line: &JsonLine<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<Parsed, Problem> {
        if let Some(message) = line.message() {
            return Ok(Parsed::ProgramMessage(message.into()));
        }
        let at_ns = match line.at_ns(&mut self.times)? {
            Some(at_ns) => Some(at_ns),
            None => {
                let time = prefix.split('\t').next().unwrap_or_default();
                let utc = format!("{}Z", time.replace('/', "-").replacen(' ', "T", 1));
                let word = time.split(' ').next().unwrap_or_default();
                [&*utc, time, word].iter().find_map(|time| self.times.parse_any(time).ok())
            }
        };
        visit_json(line, at_ns, visit)
    }
}

fn visit_json(line: &JsonLine<'_>, at_ns: Option<u64>, visit: &mut Visit<'_>) -> Result<Parsed, Problem> {
    let request = line.request()?;
    let (method, url) = match &request {
        JsonRequest::Line(request) => match request::split(request) {
            Some(split) => split,
            None => return Ok(Parsed::NoRequest),
        },
        JsonRequest::Parts(method, url) if request::is_request(method, url) => (*method, &**url),
        JsonRequest::Parts(..) => return Ok(Parsed::NoRequest),
    };
    let host = match line.find(JsonField::Host) {
        Some((_, JsonValue::Text(host))) if !matches!(&**host, "" | "-") => Some(&**host),
        _ => None,
    };
    let DeclaredCaching { ttl, is_shareable } = json_declared_caching(line);
    visit(LoggedRequest {
        at_ns,
        operation: Operation::of_method(method),
        status: json_status(line),
        bytes: json_size(line)?,
        ttl,
        is_shareable,
        service_time: json_service_time(line),
        user_agent: json_text(line, JsonField::UserAgent),
        content_type: json_text(line, JsonField::ContentType),
        ..LoggedRequest::read(LoggedKey::Url { method, host, url })
    });
    Ok(Parsed::Requests)
}

/// The prefix and the JSON of a line: Caddy's console format, `2026/01/31 08:00:01.250`, level, logger, message and JSON, with tabs
/// between them (<https://caddyserver.com/docs/caddyfile/directives/log#console>), or the prefix of a syslog.
fn split_prefix(line: &[u8]) -> Option<(&[u8], &[u8])> {
    if !line.ends_with(b"}") {
        return None;
    }
    let (prefix, json) = line.split_at(memchr(b'{', line)?);
    let is_prefix = matches!(prefix.last(), Some(b' ' | b'\t')) && memchr(b'"', prefix).is_none();
    is_prefix.then_some((prefix, json))
}

/// True if a line is JSON, or has the request in JSON.
pub(crate) fn is_json_line(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"{") || split_prefix(line.trim_ascii()).is_some()
}

fn json_text<'a>(line: &'a JsonLine<'_>, field: JsonField) -> Option<&'a [u8]> {
    match line.find(field)?.1 {
        JsonValue::Text(text) | JsonValue::List(Some(text)) => value::known(text.as_bytes()),
        _ => None,
    }
}

fn json_status(line: &JsonLine<'_>) -> Option<u16> {
    match line.find(JsonField::Status)?.1 {
        JsonValue::Number(number) => {
            let status = number.as_u64().and_then(|status| u16::try_from(status).ok())?;
            (100..1_000).contains(&status).then_some(status)
        }
        JsonValue::Text(text) => value::status(text.as_bytes()),
        _ => None,
    }
}

fn json_size(line: &JsonLine<'_>) -> Result<Option<u64>, Problem> {
    let Some((name, value)) = line.find(JsonField::Size) else { return Ok(None) };
    let size = match value {
        JsonValue::Number(number) => match number.as_u64() {
            Some(bytes) => value::checked_size(bytes).map(Some),
            None => Err("the size is not a number of bytes".into()),
        },
        JsonValue::Text(text) => value::size(text.as_bytes()),
        _ => Ok(None),
    };
    size.map_err(|problem| format!("`{name}`: {problem}").into())
}

fn json_declared_caching(line: &JsonLine<'_>) -> DeclaredCaching {
    let fresh_for = |ttl| DeclaredCaching { ttl, ..DeclaredCaching::UNKNOWN };
    match line.find(JsonField::Lifetime).map(|(_, value)| value) {
        Some(JsonValue::Number(number)) => {
            let seconds = number.as_f64().filter(|seconds| (0.0..LIFETIME_SECONDS_MAX).contains(seconds));
            fresh_for(seconds.map(Duration::from_secs_f64))
        }
        Some(JsonValue::Text(text) | JsonValue::List(Some(text))) => match value::number(text.as_bytes()) {
            Some(seconds) => fresh_for(Some(Duration::from_secs(seconds))),
            None => value::declared_caching(text),
        },
        _ => DeclaredCaching::UNKNOWN,
    }
}

fn json_service_time(line: &JsonLine<'_>) -> Option<Duration> {
    let (name, value) = line.find(JsonField::ServiceTime)?;
    if line.is_hit() {
        return None;
    }
    let unit_ns = line.service_time_unit_ns();
    let text = match value {
        // As decimals, since a float has too few digits for nanoseconds.
        JsonValue::Number(number) => Cow::Owned(number.to_string()),
        JsonValue::Text(text) => Cow::Borrowed(&**text),
        _ => return None,
    };
    if let Some(duration) = value::duration_with_unit(text.as_bytes(), unit_ns) {
        // Cloudflare did not ask the origin.
        let is_none = name.starts_with("OriginResponse") && duration.is_zero();
        return (!is_none).then_some(duration);
    }
    // A small or large float is written with an exponent.
    let seconds = text.parse::<f64>().ok()? * unit_ns as f64 / SECOND_NS as f64;
    (0.0..LIFETIME_SECONDS_MAX).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}
