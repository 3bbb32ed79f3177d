//! Lines in JSON.

use serde_json::{Map, Value};

use super::{LogLine, request::ReplayRequest, time};
use crate::url::shown;

/// The fields of a JSON line: the first of these names that is present. A dot separates nested objects.
///
/// | field | names |
/// |---|---|
/// | time | `StartUTC`, `StartLocal` (Traefik), `msec` (nginx), `ts` (Caddy), `time_iso8601`, `time_local` (nginx), `@timestamp`, `timestamp`, `time` |
/// | request | `request`, `RequestLine`: `GET /path HTTP/1.1`; else the next two |
/// | method | `request_method` (nginx), `RequestMethod` (Traefik), `request.method` (Caddy), `http.request.method` (ECS), `method` |
/// | URL or path | `request_uri` (nginx), `RequestPath` (Traefik), `request.uri` (Caddy), `url.original` (ECS), `uri`, `url`, `path` |
/// | query, if the path has none | `args`, `query_string` (nginx) |
///
/// A time is RFC 3339, seconds since 1970 as a number or a string, or as in the Common Log Format. Start times precede end
/// times in this order, and exact times coarse ones.
pub const JSON_FIELDS: [(&str, &[&str]); 5] =
    [("time", &TIMES), ("request", &REQUESTS), ("method", &METHODS), ("URL", &URLS), ("query", &QUERIES)];

const TIMES: [&str; 9] =
    ["StartUTC", "StartLocal", "msec", "ts", "time_iso8601", "time_local", "@timestamp", "timestamp", "time"];
const REQUESTS: [&str; 2] = ["request", "RequestLine"];
const METHODS: [&str; 5] =
    ["request_method", "RequestMethod", "request.method", "http.request.method", "method"];
const URLS: [&str; 7] = ["request_uri", "RequestPath", "request.uri", "url.original", "uri", "url", "path"];
const QUERIES: [&str; 2] = ["args", "query_string"];

pub(super) fn parse_line(line: &str) -> Result<LogLine<'static>, String> {
    let object: Map<String, Value> = serde_json::from_str(line).map_err(|error| {
        let column = error.column();
        format!(
            "the line is not JSON from column {column} on: in nginx, write `log_format NAME escape=json ...`"
        )
    })?;
    let at = parse_time(&object)?;
    if let Some((_, Value::String(request))) = find(&object, &REQUESTS) {
        return Ok(LogLine { at, request: ReplayRequest::parse(request).map(into_owned) });
    }
    let method = required_text(&object, "method", &METHODS)?;
    let url = required_text(&object, "URL", &URLS)?;
    let query = QUERIES.iter().find_map(|name| value(&object, name)).and_then(Value::as_str);
    let url = match query.filter(|query| !url.contains('?') && !query.is_empty() && *query != "-") {
        Some(query) => format!("{url}?{query}"),
        None => url.to_owned(),
    };
    Ok(LogLine { at, request: ReplayRequest::from_parts(method, url.into()) })
}

fn into_owned(ReplayRequest { is_head, path }: ReplayRequest<'_>) -> ReplayRequest<'static> {
    ReplayRequest { is_head, path: path.into_owned().into() }
}

fn parse_time(object: &Map<String, Value>) -> Result<u64, String> {
    let (name, value) = find(object, &TIMES).ok_or_else(|| missing("time", &TIMES))?;
    let time = match value {
        Value::String(text) => time::parse_any(text),
        value => time::from_seconds(value.as_f64().unwrap_or(-1.0)),
    };
    time.map_err(|remedy| format!("`{name}` is not a time, but `{}`: {remedy}", shown(&value.to_string())))
}

fn required_text<'a>(object: &'a Map<String, Value>, field: &str, names: &[&str]) -> Result<&'a str, String> {
    let (name, value) = find(object, names).ok_or_else(|| missing(field, names))?;
    value.as_str().ok_or_else(|| format!("`{name}` is not a string: log it in quotation marks"))
}

fn missing(field: &str, names: &[&str]) -> String {
    format!("the line has no {field}: log it as one of {}", names.join(", "))
}

/// The first of these fields that is present.
fn find<'a, 'n>(object: &'a Map<String, Value>, names: &[&'n str]) -> Option<(&'n str, &'a Value)> {
    names.iter().find_map(|name| Some((*name, value(object, name)?)))
}

/// A field, possibly of a nested object.
fn value<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let value = object.get(name).or_else(|| {
        let (outer, inner) = name.split_once('.')?;
        value(object.get(outer)?.as_object()?, inner)
    });
    value.filter(|value| !value.is_null())
}
