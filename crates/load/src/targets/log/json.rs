//! A line of a log in JSON.

use serde_json::{Map, Value};

use super::{Said, request::Request, time};
use crate::target::shown;

/// What is looked for in a line of JSON: the first of these names that is there. A point means an object within.
///
/// | what | names |
/// |---|---|
/// | time | `StartUTC`, `StartLocal` (Traefik), `msec` (nginx), `ts` (Caddy), `time_iso8601`, `time_local` (nginx), `@timestamp`, `timestamp`, `time` |
/// | request | `request`, `RequestLine`: `GET /path HTTP/1.1`; else the next two |
/// | method | `request_method` (nginx), `RequestMethod` (Traefik), `request.method` (Caddy), `http.request.method` (ECS), `method` |
/// | URL or path | `request_uri` (nginx), `RequestPath` (Traefik), `request.uri` (Caddy), `url.original` (ECS), `uri`, `url`, `path` |
/// | query, if the path has none | `args`, `query_string` (nginx) |
///
/// A time is RFC 3339, seconds since 1970 as a number or as text, or as in the Common Log Format. When a request came
/// is taken before when it was done, and what is more exact before what is less.
pub const JSON_FIELDS: [(&str, &[&str]); 5] =
    [("time", &TIMES), ("request", &REQUESTS), ("method", &METHODS), ("URL", &URLS), ("query", &QUERIES)];

const TIMES: [&str; 9] =
    ["StartUTC", "StartLocal", "msec", "ts", "time_iso8601", "time_local", "@timestamp", "timestamp", "time"];
const REQUESTS: [&str; 2] = ["request", "RequestLine"];
const METHODS: [&str; 5] =
    ["request_method", "RequestMethod", "request.method", "http.request.method", "method"];
const URLS: [&str; 7] = ["request_uri", "RequestPath", "request.uri", "url.original", "uri", "url", "path"];
const QUERIES: [&str; 2] = ["args", "query_string"];

/// What a line says, or what it lacks.
pub(super) fn said(line: &str) -> Result<Said<'static>, String> {
    let object: Map<String, Value> = serde_json::from_str(line).map_err(|error| {
        let column = error.column();
        format!(
            "the line is no JSON from column {column} on: in nginx, write `log_format NAME escape=json ...`"
        )
    })?;
    let at = at(&object)?;
    if let Some((_, Value::String(request))) = found(&object, &REQUESTS) {
        return Ok(Said { at, request: Request::of_line(request).map(owned) });
    }
    let method = text(&object, "method", &METHODS)?;
    let url = text(&object, "URL", &URLS)?;
    let query = QUERIES.iter().find_map(|name| value(&object, name)).and_then(Value::as_str);
    let url = match query.filter(|query| !url.contains('?') && !query.is_empty() && *query != "-") {
        Some(query) => format!("{url}?{query}"),
        None => url.to_owned(),
    };
    Ok(Said { at, request: Request::of_parts(method, url.into()) })
}

fn owned(Request { is_head, path }: Request<'_>) -> Request<'static> {
    Request { is_head, path: path.into_owned().into() }
}

fn at(object: &Map<String, Value>) -> Result<u64, String> {
    let (name, value) = found(object, &TIMES).ok_or_else(|| lacks("time", &TIMES))?;
    let time = match value {
        Value::String(text) => time::any(text),
        value => time::seconds(value.as_f64().unwrap_or(-1.0)),
    };
    time.map_err(|remedy| format!("`{name}` is no time, it has `{}`: {remedy}", shown(&value.to_string())))
}

/// The text of a field that has to be there.
fn text<'a>(object: &'a Map<String, Value>, what: &str, names: &[&str]) -> Result<&'a str, String> {
    let (name, value) = found(object, names).ok_or_else(|| lacks(what, names))?;
    value.as_str().ok_or_else(|| format!("`{name}` is no text: log it in quotation marks"))
}

fn lacks(what: &str, names: &[&str]) -> String {
    format!("the line has no {what}: log it as one of {}", names.join(", "))
}

/// The first of several fields that is there.
fn found<'a, 'n>(object: &'a Map<String, Value>, names: &[&'n str]) -> Option<(&'n str, &'a Value)> {
    names.iter().find_map(|name| Some((*name, value(object, name)?)))
}

/// A field, or one of an object within.
fn value<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let value = object.get(name).or_else(|| {
        let (outer, inner) = name.split_once('.')?;
        value(object.get(outer)?.as_object()?, inner)
    });
    value.filter(|value| !value.is_null())
}
