//! Lines in JSON.

use std::{borrow::Cow, fmt, sync::LazyLock};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use stockade_model::message::shown;

use crate::{
    request,
    time::{self, TimeParser},
    value,
};

const SECOND_NS: u64 = 1_000_000_000;
const MILLISECOND_NS: u64 = 1_000_000;
const MICROSECOND_NS: u64 = 1_000;

/// The fields of a JSON line: the first of these names that is present. A dot separates nested objects.
///
/// | field | names |
/// |---|---|
/// | time | `StartUTC`, `StartLocal` (Traefik), `msec` (nginx), `ts` (Caddy), `EdgeStartTimestamp` (Cloudflare), `reqTimeSec` (Akamai), `timestamp(ms)` (`CloudFront`), `start_time` (Envoy), `time_start` (Fastly), `time_iso8601`, `time_local` (nginx), `@timestamp`, `timestamp`, `timeStamp` (Azure), `time` |
/// | request | `request`, `RequestLine`: `GET /path HTTP/1.1`, or the method (Fastly); else the next two |
/// | method | `request_method` (nginx, Fastly), `RequestMethod` (Traefik), `request.method` (Caddy), `http.request.method` (ECS), `ClientRequestMethod` (Cloudflare), `reqMethod` (Akamai), `httpRequest.requestMethod` (Google), `cs-method` (`CloudFront`), `properties.httpMethod` (Azure), `method` |
/// | URL or path | `request_uri` (nginx), `RequestPath` (Traefik), `request.uri` (Caddy), `url.original` (ECS), `ClientRequestURI`, `ClientRequestPath` (Cloudflare), `reqPath` (Akamai), `httpRequest.requestUrl` (Google), `cs-uri-stem` (`CloudFront`), `properties.originalRequestUriWithArgs`, `properties.requestUri` (Azure), `x-envoy-origin-path` (Envoy Gateway), `uri`, `url`, `path` |
/// | query, if the path has none | `args`, `query_string` (nginx), `queryStr` (Akamai), `cs-uri-query` (`CloudFront`), `properties.requestQuery` (Azure) |
/// | host | `http_host` (nginx), `RequestHost` (Traefik), `request.host` (Caddy), `url.domain` (ECS), `ClientRequestHost` (Cloudflare), `reqHost` (Akamai), `x-host-header` (`CloudFront`), `authority` (Envoy), `:authority` (Envoy Gateway), `properties.originalHost`, `properties.host` (Azure), `server_name` (nginx), `host` |
/// | status | `DownstreamStatus` (Traefik), `http.response.status_code` (ECS), `EdgeResponseStatus` (Cloudflare), `httpRequest.status` (Google), `sc-status` (`CloudFront`), `response_code` (Envoy), `response_status` (Fastly), `properties.httpStatus`, `properties.httpStatusCode` (Azure), `status`, `statusCode` (Akamai), `status_code`, `code` |
/// | size | `body_bytes_sent`, `bytes_sent` (nginx, Envoy), `DownstreamContentSize` (Traefik), `http.response.body.bytes` (ECS), `EdgeResponseBytes` (Cloudflare), `httpRequest.responseSize` (Google), `sc-bytes` (`CloudFront`), `response_body_size` (Fastly), `properties.sentBytes`, `properties.responseBytes` (Azure), `size` (Caddy), `bytes`, `totalBytes` (Akamai) |
/// | lifetime | `upstream_http_cache_control`, `sent_http_cache_control` (nginx), `origin_Cache-Control`, `downstream_Cache-Control` (Traefik), `resp_headers.Cache-Control` (Caddy), `cache_control`, `max_age`, `ttl` |
/// | service time | `upstream_response_time`, `request_time` (nginx), `OriginDuration`, `Duration` (Traefik), `event.duration` (ECS), `origin_ms` (Stockade), `OriginResponseDurationMs`, `OriginResponseTime` (Cloudflare), `turnAroundTimeMSec` (Akamai), `httpRequest.latency` (Google), `time-taken` (`CloudFront`), `upstream_service_time` (Envoy), `x-envoy-upstream-service-time` (Envoy Gateway), `time_elapsed` (Fastly), `properties.serverResponseLatency`, `properties.timeToFirstByte` (Azure), `duration` (Caddy, Envoy) |
/// | answer of a cache | `CacheCacheStatus` (Cloudflare), `cacheStatus` (Akamai), `httpRequest.cacheHit` (Google), `response_state` (Fastly), `x-edge-response-result-type` (`CloudFront`), `properties.cacheStatus` (Azure) |
/// | user agent | `http_user_agent` (nginx), `request_User-Agent` (Traefik), `request.headers.User-Agent` (Caddy), `user_agent.original` (ECS), `ClientRequestUserAgent` (Cloudflare), `UA` (Akamai), `httpRequest.userAgent` (Google), `request_user_agent` (Fastly), `cs(User-Agent)` (`CloudFront`), `properties.userAgent` (Azure), `user-agent` (Envoy Gateway), `user_agent` (Envoy) |
/// | content type | `sent_http_content_type`, `upstream_http_content_type` (nginx), `downstream_Content-Type` (Traefik), `resp_headers.Content-Type` (Caddy), `http.response.mime_type` (ECS), `EdgeResponseContentType` (Cloudflare), `rspContentType` (Akamai), `sc-content-type` (`CloudFront`), `content_type` |
/// | date, where the time is a time of day | `date` (`CloudFront`) |
/// | logger | `logger` (Caddy): those of messages begin with `http.log.error` or `http.handlers.` |
///
/// A time is RFC 3339, seconds or a smaller unit since 1970 as a number or a string, or as in the Common Log Format. Start times
/// precede end times in this order, and exact times coarse ones. A lifetime is `Cache-Control` or seconds. The unit of a service
/// time belongs to the format.
pub const JSON_FIELDS: [(&str, &[&str]); 15] = [
    (
        "time",
        &[
            "StartUTC",
            "StartLocal",
            "msec",
            "ts",
            "EdgeStartTimestamp",
            "reqTimeSec",
            "timestamp(ms)",
            "start_time",
            "time_start",
            "time_iso8601",
            "time_local",
            "@timestamp",
            "timestamp",
            "timeStamp",
            "time",
        ],
    ),
    ("request", &["request", "RequestLine"]),
    (
        "method",
        &[
            "request_method",
            "RequestMethod",
            "request.method",
            "http.request.method",
            "ClientRequestMethod",
            "reqMethod",
            "httpRequest.requestMethod",
            "cs-method",
            "properties.httpMethod",
            "method",
        ],
    ),
    (
        "URL",
        &[
            "request_uri",
            "RequestPath",
            "request.uri",
            "url.original",
            "ClientRequestURI",
            "ClientRequestPath",
            "reqPath",
            "httpRequest.requestUrl",
            "cs-uri-stem",
            "properties.originalRequestUriWithArgs",
            "properties.requestUri",
            "x-envoy-origin-path",
            "uri",
            "url",
            "path",
        ],
    ),
    ("query", &["args", "query_string", "queryStr", "cs-uri-query", "properties.requestQuery"]),
    (
        "host",
        &[
            "http_host",
            "RequestHost",
            "request.host",
            "url.domain",
            "ClientRequestHost",
            "reqHost",
            "x-host-header",
            "authority",
            ":authority",
            "properties.originalHost",
            "properties.host",
            "server_name",
            "host",
        ],
    ),
    (
        "status",
        &[
            "DownstreamStatus",
            "http.response.status_code",
            "EdgeResponseStatus",
            "httpRequest.status",
            "sc-status",
            "response_code",
            "response_status",
            "properties.httpStatus",
            "properties.httpStatusCode",
            "status",
            "statusCode",
            "status_code",
            "code",
        ],
    ),
    (
        "size",
        &[
            "body_bytes_sent",
            "bytes_sent",
            "DownstreamContentSize",
            "http.response.body.bytes",
            "EdgeResponseBytes",
            "httpRequest.responseSize",
            "sc-bytes",
            "response_body_size",
            "properties.sentBytes",
            "properties.responseBytes",
            "size",
            "bytes",
            "totalBytes",
        ],
    ),
    (
        "lifetime",
        &[
            "upstream_http_cache_control",
            "sent_http_cache_control",
            "origin_Cache-Control",
            "downstream_Cache-Control",
            "resp_headers.Cache-Control",
            "cache_control",
            "max_age",
            "ttl",
        ],
    ),
    (
        "service time",
        &[
            "upstream_response_time",
            "request_time",
            "OriginDuration",
            "Duration",
            "event.duration",
            "origin_ms",
            "OriginResponseDurationMs",
            "OriginResponseTime",
            "turnAroundTimeMSec",
            "httpRequest.latency",
            "time-taken",
            "upstream_service_time",
            "x-envoy-upstream-service-time",
            "time_elapsed",
            "properties.serverResponseLatency",
            "properties.timeToFirstByte",
            "duration",
        ],
    ),
    (
        "answer of a cache",
        &[
            "CacheCacheStatus",
            "cacheStatus",
            "httpRequest.cacheHit",
            "response_state",
            "x-edge-response-result-type",
            "properties.cacheStatus",
        ],
    ),
    (
        "user agent",
        &[
            "http_user_agent",
            "request_User-Agent",
            "request.headers.User-Agent",
            "user_agent.original",
            "ClientRequestUserAgent",
            "UA",
            "httpRequest.userAgent",
            "request_user_agent",
            "cs(User-Agent)",
            "properties.userAgent",
            "user-agent",
            "user_agent",
        ],
    ),
    (
        "content type",
        &[
            "sent_http_content_type",
            "upstream_http_content_type",
            "downstream_Content-Type",
            "resp_headers.Content-Type",
            "http.response.mime_type",
            "EdgeResponseContentType",
            "rspContentType",
            "sc-content-type",
            "content_type",
        ],
    ),
    ("date", &["date"]),
    ("logger", &["logger"]),
];

/// The nested objects that have fields.
const OBJECTS: [&str; 12] = [
    "request",
    "request.headers",
    "user_agent",
    "http",
    "http.request",
    "http.response",
    "http.response.body",
    "httpRequest",
    "url",
    "resp_headers",
    "event",
    "properties",
];

/// The rows of [`JSON_FIELDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the rows have the names")]
pub enum JsonField {
    Time,
    Request,
    Method,
    Url,
    Query,
    Host,
    Status,
    Size,
    Lifetime,
    ServiceTime,
    CacheStatus,
    UserAgent,
    ContentType,
    Date,
    Logger,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum JsonValue<'a> {
    /// `true` or `false`
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string without its escapes.
    Text(Cow<'a, str>),
    /// The first element, if it is a string.
    List(Option<Cow<'a, str>>),
    /// Its known fields are fields of the line.
    Object,
}

/// The fields of a line that are known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JsonLine<'a> {
    /// The values, each with the position of its name in the row.
    fields: [Option<(u8, JsonValue<'a>)>; JSON_FIELDS.len()],
}

/// The request of a line, as logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonRequest<'a> {
    /// `GET /path HTTP/1.1`
    Line(&'a str),
    /// Method, and URL with its query.
    Parts(&'a str, Cow<'a, str>),
}

impl<'a> JsonLine<'a> {
    /// Reads a line that starts with `{`.
    pub fn parse(line: &'a str) -> Result<Self, String> {
        let mut parsed = Self::default();
        let mut path = String::new();
        let mut json = serde_json::Deserializer::from_str(line);
        let object = ObjectSeed { path: &mut path, line: &mut parsed };
        object.deserialize(&mut json).and_then(|()| json.end()).map_err(|error| {
            let column = error.column();
            format!(
                "the line is not JSON from column {column} on: in nginx, write `log_format NAME escape=json ...`"
            )
        })?;
        Ok(parsed)
    }

    /// The time in nanoseconds since 1970, if the line has one.
    pub fn at_ns(&self, times: &mut TimeParser) -> Result<Option<u64>, String> {
        let Some((name, value)) = self.find(JsonField::Time) else { return Ok(None) };
        let time = match value {
            JsonValue::Text(text) if let Some(date) = self.date() => {
                times.parse_any(&format!("{date}T{text}Z"))
            }
            JsonValue::Text(text) => times.parse_any(text),
            JsonValue::Number(number) => time::from_unix_time(number.as_f64().unwrap_or(-1.0)),
            _ => time::from_unix_time(-1.0),
        };
        let at = time.map_err(|remedy| {
            format!("`{name}` is not a time, but `{}`: {remedy}", shown(&value.to_string()))
        })?;
        Ok(Some(at))
    }

    /// The date in UTC, where the time is a time of day: `date` and `time` of `CloudFront`.
    fn date(&self) -> Option<&str> {
        match (self.find(JsonField::Time)?, self.find(JsonField::Date)?.1) {
            (("time", JsonValue::Text(time)), JsonValue::Text(date)) if !time.contains(['T', ' ']) => {
                Some(date)
            }
            _ => None,
        }
    }

    /// Why the line is a message of a program: it names no request, or Caddy repeats in it the request of an access line.
    pub fn message(&self) -> Option<String> {
        let is_missing = |field: &JsonField| self.find(*field).is_none();
        if [JsonField::Request, JsonField::Method, JsonField::Url].iter().all(is_missing) {
            return Some(missing(JsonField::Method));
        }
        match self.find(JsonField::Logger) {
            Some((_, JsonValue::Text(logger)))
                if ["http.log.error", "http.handlers."].iter().any(|start| logger.starts_with(start)) =>
            {
                Some(format!(
                    "`logger` is `{}`: that of Caddy's requests is `http.log.access`",
                    shown(logger)
                ))
            }
            _ => None,
        }
    }

    /// The request. An error names the missing field.
    pub fn request(&self) -> Result<JsonRequest<'_>, String> {
        let mut method = JsonField::Method;
        if let Some((_, JsonValue::Text(request))) = self.find(JsonField::Request) {
            if !request::is_method(request) || self.find(JsonField::Url).is_none() {
                return Ok(JsonRequest::Line(request));
            }
            method = JsonField::Request;
        }
        let (method, url) = (self.required_text(method)?, self.required_text(JsonField::Url)?);
        let query = match self.find(JsonField::Query) {
            Some((_, JsonValue::Text(query))) => &**query,
            _ => "",
        };
        let has_query = query.is_empty() || query == "-" || url.contains('?');
        // The paths of Akamai begin after their slash.
        let slash = if matches!(self.find(JsonField::Url), Some(("reqPath", _))) && !url.starts_with('/') {
            "/"
        } else {
            ""
        };
        let url = match (slash, has_query) {
            ("", true) => url.into(),
            (slash, true) => format!("{slash}{url}").into(),
            (slash, false) => format!("{slash}{url}?{query}").into(),
        };
        Ok(JsonRequest::Parts(method, url))
    }

    /// The unit of the [service time](JsonField::ServiceTime) in nanoseconds, which belongs to the format that has the name. `duration`
    /// is in milliseconds in the lines of Envoy, which have `start_time` and `response_code`, and else in seconds.
    #[must_use]
    pub fn service_time_unit_ns(&self) -> u64 {
        match self.find(JsonField::ServiceTime) {
            Some(("OriginDuration" | "Duration" | "event.duration" | "OriginResponseTime", _)) => 1,
            Some(("time_elapsed", _)) => MICROSECOND_NS,
            Some((
                "origin_ms"
                | "OriginResponseDurationMs"
                | "turnAroundTimeMSec"
                | "upstream_service_time"
                | "x-envoy-upstream-service-time",
                _,
            )) => MILLISECOND_NS,
            Some(("duration", _)) if self.is_envoy() => MILLISECOND_NS,
            _ => SECOND_NS,
        }
    }

    fn is_envoy(&self) -> bool {
        let is = |field, known| self.find(field).is_some_and(|(name, _)| name == known);
        is(JsonField::Time, "start_time") && is(JsonField::Status, "response_code")
    }

    /// True if a cache answered, so that the service time is not that of its origin.
    #[must_use]
    pub fn is_hit(&self) -> bool {
        match self.find(JsonField::CacheStatus) {
            // Akamai: anything but 0 is a hit.
            Some(("cacheStatus", JsonValue::Number(number))) => number.as_u64() != Some(0),
            Some(("cacheStatus", JsonValue::Text(text))) => !matches!(&**text, "0" | "-" | ""),
            Some((_, JsonValue::Text(text))) => value::is_hit(text.as_bytes()),
            Some((_, JsonValue::Bool(is_hit))) => *is_hit,
            _ => false,
        }
    }

    fn required_text(&self, field: JsonField) -> Result<&str, String> {
        match self.find(field) {
            None => Err(missing(field)),
            Some((_, JsonValue::Text(text))) => Ok(text),
            Some((name, _)) => Err(format!("`{name}` is not a string: log it in quotation marks")),
        }
    }

    /// The first name of a field that is present, and its value.
    #[must_use]
    pub fn find(&self, field: JsonField) -> Option<(&'static str, &JsonValue<'a>)> {
        let (name, value) = self.fields[field as usize].as_ref()?;
        Some((JSON_FIELDS[field as usize].1[usize::from(*name)], value))
    }
}

/// Starts of the names that a service sets, so that no user can choose them.
const SET_BY_SERVICES: [&str; 16] = [
    "Edge",
    "ClientRequest",
    "OriginResponse",
    "httpRequest.",
    "reqTimeSec",
    "start_time",
    "time_start",
    "reqMethod",
    "reqPath",
    "reqHost",
    "timestamp(ms)",
    "cs-",
    "sc-",
    "x-host-header",
    "properties.",
    "x-envoy-",
];

fn missing(field: JsonField) -> String {
    let (field, names) = JSON_FIELDS[field as usize];
    let can_choose = |name: &&&str| !SET_BY_SERVICES.iter().any(|start| name.starts_with(start));
    let names: Vec<_> = names.iter().filter(can_choose).copied().collect();
    format!("the line has no {field}: log it as one of {}", names.join(", "))
}

/// As JSON, without the contents of lists and objects.
impl fmt::Display for JsonValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Text(text) => write!(f, "{}", serde_json::Value::from(&**text)),
            Self::List(_) => f.write_str("[...]"),
            Self::Object => f.write_str("{...}"),
        }
    }
}

/// The longest name.
const NAME_BYTES_MAX: usize = 40;

/// The uses of a path: the row of a name and the position of the name in it, or an object that has fields, or both.
type Known = (&'static str, Option<(u8, u8)>, bool);

/// The known paths of each length: a line has many more keys, which are told apart by their length first.
static KNOWN: LazyLock<[Vec<Known>; NAME_BYTES_MAX + 1]> = LazyLock::new(|| {
    let mut known = [const { Vec::<Known>::new() }; NAME_BYTES_MAX + 1];
    for ((_, names), row) in JSON_FIELDS.iter().zip(0..) {
        for (name, position) in names.iter().zip(0..) {
            known[name.len()].push((name, Some((row, position)), OBJECTS.contains(name)));
        }
    }
    let names = JSON_FIELDS.map(|(_, names)| names).concat();
    for object in OBJECTS.iter().filter(|object| !names.contains(object)) {
        known[object.len()].push((object, None, true));
    }
    known
});

fn known(path: &str) -> Option<&'static Known> {
    let first = path.bytes().next();
    // The first byte saves most comparisons of whole names.
    KNOWN.get(path.len())?.iter().find(|(name, ..)| name.bytes().next() == first && *name == path)
}

/// Reads an object into a line. `path` is the path of the object: empty, or with names that dots separate.
struct ObjectSeed<'s, 'a> {
    path: &'s mut String,
    line: &'s mut JsonLine<'a>,
}

impl<'de> DeserializeSeed<'de> for ObjectSeed<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ObjectSeed<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let length = self.path.len();
        while let Some(known) = map.next_key_seed(PathSeed(self.path))? {
            if let Some((_, field, is_object)) = known {
                let seed = ValueSeed { path: self.path, line: self.line, is_object: *is_object };
                let value = map.next_value_seed(seed)?;
                if let (Some((row, name)), Some(value)) = (field, value) {
                    let slot = &mut self.line.fields[usize::from(*row)];
                    if slot.as_ref().is_none_or(|(other, _)| name <= other) {
                        *slot = Some((*name, value));
                    }
                }
            } else {
                map.next_value::<IgnoredAny>()?;
            }
            self.path.truncate(length);
        }
        Ok(())
    }
}

/// Appends a key to a path, and looks the path up.
struct PathSeed<'s>(&'s mut String);

impl<'de> DeserializeSeed<'de> for PathSeed<'_> {
    type Value = Option<&'static Known>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for PathSeed<'_> {
    type Value = Option<&'static Known>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        if self.0.is_empty() {
            // Most keys are at the top and unknown, so that their path is not needed.
            let known = known(key);
            self.0.push_str(known.map_or("", |(name, ..)| name));
            return Ok(known);
        }
        self.0.push('.');
        self.0.push_str(key);
        Ok(known(self.0))
    }
}

/// Reads a value; null stands for a missing one.
struct ValueSeed<'s, 'a> {
    path: &'s mut String,
    line: &'s mut JsonLine<'a>,
    /// The value may be an object that has fields.
    is_object: bool,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_, 'de> {
    type Value = Option<JsonValue<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_, 'de> {
    type Value = Option<JsonValue<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Some(JsonValue::Bool(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Some(JsonValue::Number(value.into())))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Some(JsonValue::Number(value.into())))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Number::from_f64(value).map(JsonValue::Number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Some(JsonValue::Text(text.into())))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(JsonValue::Text(text.to_owned().into())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let first = list.next_element_seed(ValueSeed { is_object: false, ..self })?.flatten();
        while list.next_element::<IgnoredAny>()?.is_some() {}
        let text = if let Some(JsonValue::Text(text)) = first { Some(text) } else { None };
        Ok(Some(JsonValue::List(text)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        if self.is_object {
            ObjectSeed { path: self.path, line: self.line }.visit_map(map)?;
        } else {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        }
        Ok(Some(JsonValue::Object))
    }
}
