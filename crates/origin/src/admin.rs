//! The pages of whoever writes the recipes.

use std::{net::IpAddr, path::Path};

use bytes::Bytes;
use http::{
    HeaderValue, Method, StatusCode,
    header::{ALLOW, CONTENT_TYPE},
    request::Parts,
    uri::Authority,
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use metrics::{counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::{Map, Value, json};
use stockade_model::{nearest::remedy, time::Runtime};

use crate::{
    answer::{Answer, NO_RECIPE},
    counts::{Counted, Gauge},
    recipe::TEXT_BYTES_MAX,
    service::Service,
    state::{Refused, State},
};

/// What can be asked for, each with the method that it wants.
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

/// Does what is asked, and tells what came of it.
pub(crate) async fn answer(service: &Service, head: &Parts, body: Incoming) -> Answer {
    let (method, path) = (&head.method, head.uri.path());
    let Some(page) = path.strip_prefix("/_admin/").filter(|_| !is_from_a_page(head)) else {
        let (status, text) = if is_from_a_page(head) {
            (StatusCode::FORBIDDEN, "no page of another site may do this\n")
        } else {
            (StatusCode::NOT_FOUND, "there is nothing here but below /_admin/\n")
        };
        return Answer::text(status, text);
    };
    let Some((page, wanted)) = PAGES.iter().find(|(known, _)| *known == page) else {
        let remedy = remedy(page, PAGES.iter().map(|(known, _)| *known));
        return Answer::text(StatusCode::NOT_FOUND, format!("there is no /_admin/{page}: {remedy}\n"));
    };
    // What changes something is asked for with GET, as it always was; POST says it better.
    let does = ["restart", "start", "clear_current_count"].contains(page);
    let is_fit = method == wanted || (wanted == Method::GET && method == Method::HEAD && !does);
    if !(is_fit || does && method == Method::POST) {
        let text = format!("/_admin/{page} is asked for with {wanted}\n");
        let mut answer = Answer::text(StatusCode::METHOD_NOT_ALLOWED, text);
        if let Ok(wanted) = HeaderValue::from_str(wanted.as_str()) {
            answer.head.insert(ALLOW, wanted);
        }
        return answer;
    }
    let Service { state, time, .. } = service;
    let ok = |text: &'static str| Answer::text(StatusCode::OK, text);
    match *page {
        "add_recipe" => add_recipe(service, body).await,
        "current_recipe" => json_of(StatusCode::OK, &current_recipe(state)),
        "restart" => {
            state.restart(time).await;
            ok("ok!")
        }
        "start" => {
            state.start(time).await;
            ok("ok!")
        }
        "routes" => lines(state.book.load().routes().map(|route| route.recipe.route.clone())),
        "routes_status" => {
            let now = time.now();
            lines(state.book.load().routes().map(|route| route.status_line(now)))
        }
        "current_count" => json_of(StatusCode::OK, &current_count(state)),
        "clear_current_count" => {
            state.clear();
            json_text(StatusCode::OK, r#"{"cleared": "yes"}"#)
        }
        "metrics" => Answer::text(StatusCode::OK, metrics(state)),
        "certificate" => match &state.certificate {
            Some(pem) => Answer::text(StatusCode::OK, pem.clone()),
            None => Answer::text(StatusCode::NOT_FOUND, "connections are not encrypted: start with --tls\n"),
        },
        _ => ok("ok!"),
    }
}

/// Whether a browser asks for a page of somebody else's, who may not be let do what its user may: it says where
/// the page is from, and a name that is not this machine's own may have been given to it by anybody.
fn is_from_a_page(head: &Parts) -> bool {
    let says = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = says("host").map_or_else(|| head.uri.host(), Some).unwrap_or_default();
    let is_ours = |authority: &str| {
        let authority: Result<Authority, _> = authority.parse();
        authority.is_ok_and(|authority| {
            let host = authority.host().trim_matches(['[', ']']);
            host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok()
        })
    };
    match (says("origin"), says("sec-fetch-site")) {
        (None, None) => false,
        (Some(origin), _) if origin.split_once("://").is_none_or(|(_, from)| from != host) => true,
        (_, Some(site)) if !["none", "same-origin"].contains(&site) => true,
        _ => !is_ours(host),
    }
}

async fn add_recipe(service: &Service, body: Incoming) -> Answer {
    let refused = |status, text: &dyn std::fmt::Display| Answer::text(status, format!("{text}\n"));
    let body = match Limited::new(body, TEXT_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return refused(StatusCode::PAYLOAD_TOO_LARGE, &"a recipe has 64 MiB at most");
        }
        Err(_) => return refused(StatusCode::BAD_REQUEST, &"the recipe broke off"),
    };
    let Ok(text) = str::from_utf8(&body) else {
        return refused(StatusCode::BAD_REQUEST, &"the recipe is not UTF-8 text");
    };
    match service.state.add(text, "recipe", Path::new(""), &service.time).await {
        Ok(()) => json_of(StatusCode::CREATED, &current_recipe(&service.state)),
        Err(error @ Refused::Unavailable(_)) => refused(StatusCode::BAD_GATEWAY, &error),
        Err(error @ Refused::TooMuch { .. }) => refused(StatusCode::PAYLOAD_TOO_LARGE, &error),
        Err(error @ (Refused::Recipe(_) | Refused::Final)) => refused(StatusCode::BAD_REQUEST, &error),
    }
}

fn current_recipe(state: &State) -> Value {
    let recipes: Vec<_> = state.book.load().routes().map(|route| route.recipe.written.clone()).collect();
    if recipes.is_empty() { NO_RECIPE.into() } else { recipes.into() }
}

/// `OriginSimulator`'s counts by status over all routes, and more beside them.
fn current_count(state: &State) -> Value {
    let (mut total, mut statuses) = (0, Map::new());
    let mut routes = Map::new();
    for (pattern, counted) in counted(state) {
        total += counted.total();
        for (status, count) in &counted.statuses {
            let sum = statuses.entry(status.to_string()).or_insert(json!(0));
            *sum = json!(sum.as_u64().unwrap_or_default() + count);
        }
        routes.insert(pattern, by_name(&counted));
    }
    let mut counts = Map::from_iter([("total_requests".to_owned(), json!(total))]);
    counts.append(&mut statuses);
    let gauge = |gauge: &Gauge| json!({ "now": gauge.now(), "max": gauge.max() });
    counts.insert("concurrent_requests".to_owned(), gauge(&state.in_flight));
    counts.insert("connections".to_owned(), gauge(&state.connections));
    counts.insert("routes".to_owned(), routes.into());
    counts.into()
}

fn by_name(counted: &Counted) -> Value {
    let statuses = counted.statuses.iter().map(|(status, count)| (status.to_string(), *count));
    let faults = counted.faults.iter().map(|(name, count)| ((*name).to_owned(), *count));
    let others = [("rejected", counted.rejected), ("abandoned", counted.abandoned)];
    let others =
        others.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count));
    statuses
        .chain(faults)
        .chain(others)
        .map(|(name, count)| (name, json!(count)))
        .collect::<Map<_, _>>()
        .into()
}

/// Every route with its counts, and those who met none.
fn counted(state: &State) -> Vec<(String, Counted)> {
    let book = state.book.load();
    let mut all: Vec<_> =
        book.routes().map(|route| (route.recipe.route.clone(), route.counts.counted())).collect();
    let unrouted = state.unrouted.counted();
    if unrouted != Counted::default() {
        all.push(("none".to_owned(), unrouted));
    }
    all
}

fn metrics(state: &State) -> String {
    const REQUESTS: &str = "stockade_origin_requests_total";
    const FAULTS: &str = "stockade_origin_faults_total";
    const REJECTED: &str = "stockade_origin_rejected_total";
    const ABANDONED: &str = "stockade_origin_abandoned_total";
    const REQUESTS_NOW: &str = "stockade_origin_concurrent_requests";
    const REQUESTS_MAX: &str = "stockade_origin_concurrent_requests_max";
    const CONNECTIONS_NOW: &str = "stockade_origin_connections";
    const CONNECTIONS_MAX: &str = "stockade_origin_connections_max";
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        describe_counter!(REQUESTS, "Requests answered, by route and status");
        describe_counter!(FAULTS, "Requests that went wrong as the recipe has it, by route and fault");
        describe_counter!(REJECTED, "Requests turned away with 503 because the queue was full, by route");
        describe_counter!(ABANDONED, "Requests whose client gave up before there was an answer, by route");
        for (route, counted) in counted(state) {
            for (status, count) in counted.statuses {
                counter!(REQUESTS, "route" => route.clone(), "status" => status.to_string()).absolute(count);
            }
            for (fault, count) in counted.faults {
                counter!(FAULTS, "route" => route.clone(), "fault" => fault).absolute(count);
            }
            counter!(REJECTED, "route" => route.clone()).absolute(counted.rejected);
            counter!(ABANDONED, "route" => route).absolute(counted.abandoned);
        }
        for (name, about, value) in [
            (REQUESTS_NOW, "Requests being answered", state.in_flight.now()),
            (
                REQUESTS_MAX,
                "The most requests answered at once since counts were cleared",
                state.in_flight.max(),
            ),
            (CONNECTIONS_NOW, "Open connections", state.connections.now()),
            (
                CONNECTIONS_MAX,
                "The most connections open at once since counts were cleared",
                state.connections.max(),
            ),
        ] {
            describe_gauge!(name, about);
            gauge!(name).set(value as f64);
        }
    });
    recorder.handle().render()
}

fn lines(lines: impl Iterator<Item = String>) -> Answer {
    Answer::text(StatusCode::OK, lines.collect::<Vec<_>>().join("\n"))
}

fn json_of(status: StatusCode, value: &Value) -> Answer {
    json_text(status, value.to_string())
}

fn json_text(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut answer = Answer::text(status, text);
    answer.head.insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    answer
}
