//! The admin pages below `/_admin/`.

use std::path::Path;

use bytes::Bytes;
use http::{
    HeaderValue, Method, StatusCode,
    header::{ALLOW, CONTENT_TYPE},
    request::Parts,
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde_json::{Map, Value, json};
use stockade_http::guard::{self, GuardFault};
use stockade_model::{
    nearest::remedy,
    snapshot,
    telemetry::MetricKind,
    time::{Precise, Runtime},
};
use stockade_record::telemetry::prometheus::Text;

use crate::{
    counters::{CounterValues, Gauge},
    recipe::TEXT_BYTES_MAX,
    response::{BufferedResponse, NO_RECIPE},
    state::{AddRecipesError, OriginState},
};

/// Every page with its method.
const PAGES: [(&str, Method); 11] = [
    ("status", Method::GET),
    ("add_recipe", Method::POST),
    ("current_recipe", Method::GET),
    ("restart", Method::GET),
    ("start", Method::GET),
    ("routes", Method::GET),
    ("routes_status", Method::GET),
    ("current_count", Method::GET),
    ("clear_current_count", Method::GET),
    ("metrics", Method::GET),
    ("certificate", Method::GET),
];

pub(crate) async fn respond(
    state: &OriginState,
    time: &Precise,
    head: &Parts,
    body: Incoming,
) -> BufferedResponse {
    let (method, path) = (&head.method, head.uri.path());
    // GET changes state on some pages.
    if let Err(fault) = guard::admit(head, &state.admin_hosts, true) {
        let text = match fault {
            GuardFault::OtherSite => "pages of other sites may not use the admin pages\n",
            GuardFault::Host | GuardFault::UnknownHost => {
                "the host of a request for these pages is an IP address, localhost or a name of --admin-host\n"
            }
        };
        return BufferedResponse::text(StatusCode::FORBIDDEN, text);
    }
    let Some(page) = path.strip_prefix("/_admin/") else {
        let text = "this listener serves paths below /_admin/ only\n";
        return BufferedResponse::text(StatusCode::NOT_FOUND, text);
    };
    let Some((page, allowed)) = PAGES.iter().find(|(known, _)| *known == page) else {
        let remedy = remedy(page, PAGES.iter().map(|(known, _)| *known));
        let text = format!("there is no page /_admin/{page}: {remedy}\n");
        return BufferedResponse::text(StatusCode::NOT_FOUND, text);
    };
    // In OriginSimulator, GET changes state on these pages. POST is accepted, too.
    let changes_state = ["restart", "start", "clear_current_count"].contains(page);
    let is_allowed = method == allowed
        || (allowed == Method::GET && method == Method::HEAD && !changes_state)
        || (changes_state && method == Method::POST);
    if !is_allowed {
        let text = format!("/_admin/{page} has the method {allowed}\n");
        let mut response = BufferedResponse::text(StatusCode::METHOD_NOT_ALLOWED, text);
        if let Ok(allowed) = HeaderValue::from_str(allowed.as_str()) {
            response.headers.insert(ALLOW, allowed);
        }
        return response;
    }
    let ok = |text: &'static str| BufferedResponse::text(StatusCode::OK, text);
    match *page {
        "add_recipe" => add_recipes(state, time, body).await,
        "current_recipe" => json_value(StatusCode::OK, &current_recipes(state)),
        "restart" => {
            state.restart(time).await;
            ok("ok!")
        }
        "start" => {
            state.start_stages(time).await;
            ok("ok!")
        }
        "routes" => lines(state.routes.load().routes().map(|route| route.recipe.route.clone())),
        "routes_status" => {
            let now = time.now();
            lines(state.routes.load().routes().map(|route| route.status_line(now)))
        }
        "current_count" => json_value(StatusCode::OK, &current_count(state)),
        "clear_current_count" => {
            state.clear_counters();
            json_text(StatusCode::OK, r#"{"cleared": "yes"}"#)
        }
        "metrics" => BufferedResponse::text(StatusCode::OK, prometheus_metrics(state)),
        "certificate" => match &state.certificate {
            Some(pem) => BufferedResponse::text(StatusCode::OK, pem.clone()),
            None => {
                let text = "connections are not encrypted: start the origin with --tls\n";
                BufferedResponse::text(StatusCode::NOT_FOUND, text)
            }
        },
        _ => ok("ok!"),
    }
}

async fn add_recipes(state: &OriginState, time: &Precise, body: Incoming) -> BufferedResponse {
    let reject = |status, text: &dyn std::fmt::Display| BufferedResponse::text(status, format!("{text}\n"));
    let body = match Limited::new(body, TEXT_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return reject(StatusCode::PAYLOAD_TOO_LARGE, &"a recipe has at most 64 MiB");
        }
        Err(_) => return reject(StatusCode::BAD_REQUEST, &"the recipe is incomplete"),
    };
    let Ok(text) = str::from_utf8(&body) else {
        return reject(StatusCode::BAD_REQUEST, &"the recipe is not UTF-8 text");
    };
    let error = match state.add_or_replace_recipes(text, "recipe", Path::new(""), time).await {
        Ok(()) => return json_value(StatusCode::CREATED, &current_recipes(state)),
        Err(error) => error,
    };
    let status = match &error {
        AddRecipesError::ContentFetch(_) => StatusCode::BAD_GATEWAY,
        AddRecipesError::ContentsTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        AddRecipesError::Recipe(_) | AddRecipesError::NeverListensAgain => StatusCode::BAD_REQUEST,
    };
    reject(status, &error)
}

fn current_recipes(state: &OriginState) -> Value {
    let recipes: Vec<_> = state.routes.load().routes().map(|route| route.recipe.json.clone()).collect();
    if recipes.is_empty() { NO_RECIPE.into() } else { recipes.into() }
}

/// The counters of `OriginSimulator` (by status, over all routes), and by route.
fn current_count(state: &OriginState) -> Value {
    let (mut total, mut statuses) = (0, Map::new());
    let mut routes = Map::new();
    for (pattern, values) in counters_by_pattern(state) {
        total += values.total_without_abandoned();
        for (status, count) in &values.statuses {
            let sum = statuses.entry(status.to_string()).or_insert(json!(0));
            *sum = json!(sum.as_u64().unwrap_or_default() + count);
        }
        routes.insert(pattern, counters_by_name(&values));
    }
    let mut counts = Map::from_iter([("total_requests".to_owned(), json!(total))]);
    counts.append(&mut statuses);
    let gauge = |gauge: &Gauge| json!({ "now": gauge.current(), "max": gauge.max() });
    counts.insert("concurrent_requests".to_owned(), gauge(&state.open_requests));
    counts.insert("connections".to_owned(), gauge(&state.connections));
    counts.insert("routes".to_owned(), routes.into());
    counts.into()
}

fn counters_by_name(values: &CounterValues) -> Value {
    let statuses = values.statuses.iter().map(|(status, count)| (status.to_string(), *count));
    let faults = values.faults.iter().map(|(name, count)| ((*name).to_owned(), *count));
    let others = [("rejected", values.rejected), ("abandoned", values.abandoned)];
    let others =
        others.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count));
    statuses
        .chain(faults)
        .chain(others)
        .map(|(name, count)| (name, json!(count)))
        .collect::<Map<_, _>>()
        .into()
}

/// The counters of every route, then those of requests without a route as `none`.
fn counters_by_pattern(state: &OriginState) -> Vec<(String, CounterValues)> {
    let routes = state.routes.load();
    let mut counters: Vec<_> =
        routes.routes().map(|route| (route.recipe.route.clone(), route.counters.values())).collect();
    let unrouted = state.unrouted.values();
    if unrouted != CounterValues::default() {
        counters.push(("none".to_owned(), unrouted));
    }
    counters
}

snapshot! {
    /// Gauges of the whole origin.
    struct OriginGauges {
        /// Open requests.
        requests: u64 = gauge "stockade_origin_concurrent_requests",
        /// Maximum of open requests since the counters were cleared.
        requests_max: u64 = gauge "stockade_origin_concurrent_requests_max",
        /// Open connections.
        connections: u64 = gauge "stockade_origin_connections",
        /// Maximum of open connections since the counters were cleared.
        connections_max: u64 = gauge "stockade_origin_connections_max",
    }
}

snapshot! {
    /// Counters of one route.
    struct RouteTotals {
        /// Requests answered 503 because the queue was full, by route.
        rejected: u64 = counter "stockade_origin_rejected_total",
        /// Requests whose client disconnected before the response, by route.
        abandoned: u64 = counter "stockade_origin_abandoned_total",
    }
}

fn prometheus_metrics(state: &OriginState) -> String {
    const REQUESTS: &str = "stockade_origin_requests_total";
    const FAULTS: &str = "stockade_origin_faults_total";
    let mut text = Text::default();
    let routes = counters_by_pattern(state);
    text.family(REQUESTS, MetricKind::Counter, "Requests answered, by route and status");
    for (route, values) in &routes {
        for (status, count) in &values.statuses {
            text.sample(
                REQUESTS,
                &[("route", route.as_str()), ("status", status.to_string().as_str())],
                count,
            );
        }
    }
    text.family(FAULTS, MetricKind::Counter, "Requests that met a fault of the recipe, by route and fault");
    for (route, values) in &routes {
        for (fault, count) in &values.faults {
            text.sample(FAULTS, &[("route", route.as_str()), ("fault", *fault)], count);
        }
    }
    let totals: Vec<_> = routes
        .iter()
        .map(|(route, values)| {
            let totals = RouteTotals { rejected: values.rejected, abandoned: values.abandoned };
            ([("route", route.as_str())], totals)
        })
        .collect();
    let totals: Vec<_> = totals.iter().map(|(labels, totals)| (&labels[..], totals)).collect();
    text.snapshots(RouteTotals::METRICS, &totals);
    let gauges = OriginGauges {
        requests: state.open_requests.current(),
        requests_max: state.open_requests.max(),
        connections: state.connections.current(),
        connections_max: state.connections.max(),
    };
    text.snapshots(OriginGauges::METRICS, &[(&[], &gauges)]);
    text.finish()
}

fn lines(lines: impl Iterator<Item = String>) -> BufferedResponse {
    BufferedResponse::text(StatusCode::OK, lines.collect::<Vec<_>>().join("\n"))
}

fn json_value(status: StatusCode, value: &Value) -> BufferedResponse {
    json_text(status, value.to_string())
}

fn json_text(status: StatusCode, text: impl Into<Bytes>) -> BufferedResponse {
    let mut response = BufferedResponse::text(status, text);
    response.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    response
}
