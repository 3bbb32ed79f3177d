//! Export of metrics by OTLP over HTTP, in its JSON encoding.
//!
//! Nothing is queued: every export has all figures since the start (cumulative temporality), so an export that fails is made up
//! for by the next one. See decisions/020.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{Method, Response, header::RETRY_AFTER};
use serde_json::{Value, json};
use stockade_http::client::HttpClient;
use stockade_model::{
    message::shown_to,
    telemetry::MetricUnit,
    time::{Live, Runtime, before},
};
use stockade_record::telemetry::{
    family::{Family, FamilyKind, Labels, Series, SeriesValue, otel_name, ucum},
    measurement::RunSnapshot,
};

use super::LiveFigures;
use crate::progress::message;

const PERIOD: Duration = Duration::from_secs(5);
/// The longest pause after failures, or that a collector asks for.
const PAUSE_MAX: Duration = Duration::from_mins(1);
const EXPORT_TIME_MAX: Duration = Duration::from_secs(5);
/// The part of a collector's answer that a warning has.
const REASON_CHARS_MAX: usize = 200;
/// `AGGREGATION_TEMPORALITY_CUMULATIVE` of the protocol.
const CUMULATIVE: u8 = 2;

/// Sends the figures of a run to a collector.
pub struct Exporter {
    client: HttpClient,
    figures: LiveFigures,
    started_unix_nanos: u64,
    /// Exports that failed one after the other.
    failures: u32,
    has_warned: bool,
}

impl Exporter {
    pub fn new(client: HttpClient, figures: LiveFigures, started_unix_nanos: u64) -> Self {
        Self { client, figures, started_unix_nanos, failures: 0, has_warned: false }
    }

    /// Exports until it is dropped.
    pub async fn run(&mut self, time: &Live) {
        let mut pause = PERIOD;
        loop {
            time.sleep_until(time.now() + pause).await;
            pause = self.export(time).await;
        }
    }

    /// Exports once, and returns the pause before the next export. A failure is a warning, the first time.
    pub async fn export(&mut self, time: &Live) -> Duration {
        let snapshot = self.figures.snapshot();
        if snapshot.measurements.is_empty() {
            return PERIOD;
        }
        let body = encode(&snapshot, self.started_unix_nanos, unix_nanos_now());
        let deadline = time.now() + EXPORT_TIME_MAX;
        let reply = before(time, deadline, self.client.send(Method::POST, body.to_string().into())).await;
        let reply = match reply {
            Some(reply) => reply.map_err(|error| error.to_string()),
            None => Err(format!("no answer within {} s", EXPORT_TIME_MAX.as_secs())),
        };
        let retry_after = reply.as_ref().ok().and_then(retry_after);
        match reply.and_then(|reply| failure(&reply).map_or(Ok(()), Err)) {
            Ok(()) => self.failures = 0,
            Err(reason) => {
                self.failures += 1;
                self.warn(&reason);
            }
        }
        pause(self.failures, retry_after)
    }

    /// Warns on standard error, once.
    pub fn warn(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.has_warned, true) {
            message(&format!(
                "warning: cannot send figures to {}: {reason}; the load goes on. Is a collector there that takes OTLP over \
                 HTTP (usually port 4318)?",
                self.client.shown_url()
            ));
        }
    }
}

/// The pause before the next export: longer after failures, and as long as the collector asks for, up to a minute.
fn pause(failures: u32, retry_after: Option<Duration>) -> Duration {
    let backoff = PERIOD * 2_u32.pow(failures.min(4));
    backoff.max(retry_after.unwrap_or_default()).min(PAUSE_MAX)
}

/// The pause that the collector asks for in seconds; dates are ignored.
fn retry_after(reply: &Response<Bytes>) -> Option<Duration> {
    reply.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

/// Why the collector did not take the figures, or not all of them.
fn failure(reply: &Response<Bytes>) -> Option<String> {
    let status = reply.status();
    if status.is_success() {
        let answer: Value = serde_json::from_slice(reply.body()).unwrap_or_default();
        let partial = &answer["partialSuccess"];
        let rejected = match &partial["rejectedDataPoints"] {
            Value::String(count) => count.parse().unwrap_or_default(),
            count => count.as_i64().unwrap_or_default(),
        };
        let message = shown_to(partial["errorMessage"].as_str().unwrap_or_default(), REASON_CHARS_MAX);
        return (rejected > 0).then(|| format!("it rejected {rejected} data points: {message}"));
    }
    let body = shown_to(String::from_utf8_lossy(reply.body()).trim(), REASON_CHARS_MAX);
    Some(match status.as_u16() {
        300..400 => format!("it answered {status}: redirects are not followed, write the last URL"),
        _ if body.is_empty() => format!("it answered {status}"),
        _ => format!("it answered {status}: {body}"),
    })
}

#[expect(clippy::disallowed_methods, reason = "data points have times of day")]
pub fn unix_nanos_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// An `ExportMetricsServiceRequest` in the JSON encoding: lowerCamelCase, 64-bit integers as text.
fn encode(snapshot: &RunSnapshot, started_unix_nanos: u64, now_unix_nanos: u64) -> Value {
    let times = [started_unix_nanos, now_unix_nanos].map(|nanos| nanos.to_string());
    let families = snapshot.families();
    let metrics = families.iter().filter(|family| family.kind != FamilyKind::Info);
    let metrics: Vec<_> = metrics.map(|family| metric(family, &times)).collect();
    json!({ "resourceMetrics": [{
        "resource": { "attributes": attributes(&snapshot.resource) },
        "scopeMetrics": [{
            "scope": { "name": "stockade", "version": env!("CARGO_PKG_VERSION") },
            "metrics": metrics,
        }],
    }] })
}

fn metric(family: &Family, times: &[String; 2]) -> Value {
    let points: Vec<_> = family.series.iter().map(|series| point(family.unit, series, times)).collect();
    let name = otel_name(family.name);
    // The conventions make memory a sum that may shrink.
    let is_sum = family.kind == FamilyKind::Counter || name == "process.memory.usage";
    let (kind, data) = match family.kind {
        FamilyKind::Histogram => {
            ("histogram", json!({ "aggregationTemporality": CUMULATIVE, "dataPoints": points }))
        }
        _ if is_sum => {
            let is_monotonic = family.kind == FamilyKind::Counter;
            let data = json!({
                "aggregationTemporality": CUMULATIVE, "isMonotonic": is_monotonic, "dataPoints": points,
            });
            ("sum", data)
        }
        _ => ("gauge", json!({ "dataPoints": points })),
    };
    json!({
        "name": name, "description": family.help, "unit": ucum(family.name, family.unit), kind: data,
    })
}

fn point(unit: MetricUnit, series: &Series, [started, now]: &[String; 2]) -> Value {
    let mut point = json!({
        "attributes": attributes(&series.labels), "startTimeUnixNano": started, "timeUnixNano": now,
    });
    match &series.value {
        SeriesValue::Number(value) if unit == MetricUnit::Seconds => point["asDouble"] = json!(value),
        // Counts are whole.
        SeriesValue::Number(value) => point["asInt"] = json!(format!("{value:.0}")),
        SeriesValue::Times(times) => {
            let counts: Vec<_> = times.counts.iter().map(u64::to_string).collect();
            point["count"] = json!(times.count().to_string());
            point["sum"] = json!(times.sum_seconds);
            point["bucketCounts"] = json!(counts);
            point["explicitBounds"] = json!(times.bounds_seconds);
        }
    }
    point
}

fn attributes(labels: &Labels) -> Value {
    let attribute = |(name, value): &(&str, String)| {
        // The conventions define these two as integers. An attribute of the environment may be any text.
        let is_number =
            ["http.response.status_code", "repeat"].contains(name) && value.parse::<i64>().is_ok();
        let value = if is_number { json!({ "intValue": value }) } else { json!({ "stringValue": value }) };
        json!({ "key": name, "value": value })
    };
    labels.iter().map(attribute).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_grows_with_failures_and_respects_the_collector() {
        for (failures, retry_after_s, pause_s) in [
            (0, None, 5),
            (1, None, 10),
            (2, None, 20),
            (9, None, 60),
            (1, Some(30), 30),
            (1, Some(86_400), 60),
        ] {
            let retry_after = retry_after_s.map(Duration::from_secs);
            assert_eq!(pause(failures, retry_after), Duration::from_secs(pause_s));
        }
    }

    #[test]
    fn attribute_that_is_no_number_is_text() {
        let labels = vec![("repeat", "2".to_owned()), ("repeat", "first".to_owned())];
        let expected = json!([
            { "key": "repeat", "value": { "intValue": "2" } },
            { "key": "repeat", "value": { "stringValue": "first" } },
        ]);
        assert_eq!(attributes(&labels), expected);
    }

    #[test]
    fn answer_tells_what_was_not_taken() {
        let reply = |status: u16, body: &'static str| {
            Response::builder().status(status).body(Bytes::from(body)).unwrap()
        };
        let partial = r#"{"partialSuccess":{"rejectedDataPoints":"3","errorMessage":"too\u001b old"}}"#;
        for (reply, expected) in [
            (reply(200, "{}"), None),
            (reply(202, "no JSON"), None),
            (reply(200, r#"{"partialSuccess":{"rejectedDataPoints":"0"}}"#), None),
            (reply(200, partial), Some("it rejected 3 data points: too\u{fffd} old")),
            (reply(503, "\u{1b}[2Jbusy\n"), Some("it answered 503 Service Unavailable: \u{fffd}[2Jbusy")),
            (reply(404, ""), Some("it answered 404 Not Found")),
            (reply(302, ""), Some("it answered 302 Found: redirects are not followed, write the last URL")),
        ] {
            assert_eq!(failure(&reply).as_deref(), expected);
        }
    }
}
