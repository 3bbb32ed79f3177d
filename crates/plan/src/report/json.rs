//! For programs. The shape is part of the command-line contract.

use serde_json::{Map, Value, json};
use stockade_model::units::{format_duration, milliseconds};

use super::{CachePlan, RouteBlock, outlook, traffic, verify};
use crate::{
    curve::{Curve, Point},
    exchange::Exchange,
    recommend::Recommendation,
    replay::{Capacity, Ttl},
    routes::Evidence,
    strategies::StrategyFigures,
};

pub(super) fn render(plan: &CachePlan) -> String {
    let mut json = json!({
        "schema": "stockade.plan/1",
        "requests": plan.trace.totals().requests,
        "bad_lines": plan.bad_lines,
        "lines_without_request": plan.without_request,
        "left_out": plan.left_out,
        "writes": plan.exchanges.of(Exchange::Write) + plan.writes_left_out,
        "not_storable": {
            "methods": plan.exchanges.other_methods(),
            "cache_control": plan.exchanges.of(Exchange::NotShareable),
            "statuses": plan.exchanges.of(Exchange::NoLifetime),
        },
        "not_found": plan.exchanges.of(Exchange::NotFound),
        "keys": plan.trace.keys_estimate(),
        "keys_exact": plan.trace.is_whole(),
        "bytes": plan.trace.totals().bytes,
        "span_s": plan.has_times.then(|| seconds(plan.trace.totals().span_ns)),
        "warmup_requests": plan.trace.totals().requests.saturating_sub(plan.trace.counted().requests),
        "findings": plan.findings,
        "traffic": traffic::json(plan),
        "curves": plan.curves.iter().map(curve).collect::<Vec<_>>(),
    });
    if let Ok(recommendation) = &plan.recommendation {
        json["recommendation"] = recommendation_json(recommendation, plan.has_times);
        let (others, routes): (Vec<_>, Vec<_>) =
            super::route_blocks(plan).into_iter().partition(|block| block.planned.is_none());
        let settings = |block: &RouteBlock<'_>| -> Map<String, Value> {
            block.settings.iter().map(|(name, value)| ((*name).to_owned(), Value::from(&**value))).collect()
        };
        if let Some(others) = others.first() {
            json["recommendation"]["route"] = settings(others).into();
        }
        if !routes.is_empty() {
            let routes: Vec<Value> = routes.iter().map(|block| route(block, &settings(block))).collect();
            let saved = &recommendation.routes;
            json["recommendation"]["routes"] = json!({
                "blocks": routes,
                "loads_saved": saved.loads_saved,
                "bytes_saved": saved.bytes_saved,
                "exact": !saved.is_sampled,
            });
        }
    }
    if let Some(without_bots) = &plan.without_bots {
        json["without_bots"] = recommendation_json(without_bots, plan.has_times);
    }
    if let Some(of) = &plan.outlook {
        json["outlook"] = outlook::json(of);
    }
    if let Some(runs) = &plan.strategies {
        json["strategies"] = json!({
            "requests": runs.requests,
            "span_s": runs.span.as_secs_f64(),
            "outage_s": runs.origin.outage.as_secs_f64(),
            "runs": runs.figures.iter().map(strategy).collect::<Vec<_>>(),
        });
    }
    if let Some(of) = &plan.verification {
        json["verified"] = verify::json(of);
    }
    if !plan.has_times {
        json.as_object_mut().map(|json| json.remove("span_s"));
    }
    let mut text = serde_json::to_string_pretty(&json).unwrap_or_default();
    text.push('\n');
    text
}

/// A route with its reason.
fn route(block: &RouteBlock<'_>, settings: &Map<String, Value>) -> Value {
    let mut json = json!({ "settings": settings });
    let Some(planned) = block.planned else { return json };
    json["share"] = planned.share.into();
    json["evidence"] = match planned.evidence {
        Evidence::SameSize { answers, outdated } => {
            json!({ "kind": "same_size", "answers": answers, "outdated": outdated })
        }
        Evidence::Changes { outdated, outdated_left } => {
            json!({ "kind": "changes", "outdated": outdated, "outdated_left": outdated_left })
        }
        Evidence::UniqueKeys { share } => json!({ "kind": "unique_keys", "share": share }),
    };
    json
}

fn recommendation_json(recommendation: &Recommendation, has_times: bool) -> Value {
    let Recommendation { policy, capacity, lifetime, point, .. } = recommendation;
    let mut cache = Map::new();
    cache.insert("strategy".into(), super::strategy(*lifetime).into());
    let duration = |nanos: u64| Value::from(format_duration(std::time::Duration::from_nanos(nanos)));
    if let Some(ttl_ns) = lifetime.ttl.default_ns() {
        cache.insert("ttl".into(), duration(ttl_ns));
    }
    if lifetime.swr_ns > 0 {
        cache.insert("swr".into(), duration(lifetime.swr_ns));
    }
    let mut limit = size(*capacity);
    if let Some(max_object) = recommendation.max_object.filter(|_| matches!(capacity, Capacity::Bytes(_))) {
        limit.insert("max_object".into(), max_object.into());
    }
    limit.insert("policy".into(), policy.name.into());
    cache.insert("limit".into(), limit.into());
    let mut json = json!({
        "cache": cache,
        "hit_ratio": 1.0 - point.miss_ratio,
        "byte_hit_ratio": 1.0 - point.byte_miss_ratio,
        "bytes_from_origin_ratio": point.byte_load_ratio,
        "wait_ratio": point.wait_ratio,
        "loads_per_request": point.load_ratio,
        "gain_of_double": recommendation.gain_of_double,
        "loss_of_half": recommendation.loss_of_half,
        "loads_saved_by_double": recommendation.loads_saved_by_double,
        "loads_per_request_of_half": recommendation.load_ratio_of_half,
        "exact": point.is_exact,
    });
    if has_times {
        json["source_loads_per_s"] = recommendation.loads_per_s.into();
        json["source_loads_per_s_max"] = recommendation.loads_per_s_max.per_s.into();
        json["source_loads_per_s_busiest_minute"] = recommendation.loads_per_s_in_busiest_minute.per_s.into();
        if let Some(error) = recommendation.loads_per_s_in_busiest_minute.error {
            json["source_loads_per_s_busiest_minute_error"] = error.into();
        }
        if let Some(cold) = recommendation.cold_start {
            json["cold_start"] = json!({
                "span_s": seconds(cold.span_ns),
                "source_loads_per_s_max": cold.loads_per_s_max.per_s,
                "source_loads_per_s_busiest_minute": cold.loads_per_s_in_busiest_minute.per_s,
            });
        }
        json["requests_per_s_max"] = recommendation.requests_per_s_max.per_s.into();
        if recommendation.age_max_ns != u64::MAX {
            json["stale_max_s"] = seconds(recommendation.age_max_ns).into();
        }
    }
    json
}

fn curve(curve: &Curve) -> Value {
    let mut json = Map::new();
    json.insert("policy".into(), curve.policy.name.into());
    if matches!(curve.lifetime.ttl, Ttl::Logged { .. }) {
        json.insert("ttl".into(), "headers".into());
    }
    if let Some(ttl_ns) = curve.lifetime.ttl.default_ns() {
        json.insert("ttl_s".into(), seconds(ttl_ns).into());
    }
    if curve.lifetime.swr_ns > 0 {
        json.insert("swr_s".into(), seconds(curve.lifetime.swr_ns).into());
    }
    if let Some(error) = curve.error {
        json.insert("error_max".into(), error.into());
    }
    json.insert("points".into(), curve.points.iter().map(point).collect());
    json.into()
}

fn strategy(figures: &StrategyFigures) -> Value {
    let time = |quantile: f64| figures.response.quantile(quantile).map(milliseconds);
    json!({
        "strategy": figures.name,
        "outcomes": figures.outcomes,
        "errors_in_outage": figures.errors_in_outage,
        "errors_elsewhere": figures.errors_elsewhere,
        "source_loads": figures.loads,
        "source_loads_per_s_max": figures.loads_per_s_max,
        "response": { "p50_ms": time(0.5), "p99_ms": time(0.99), "max_ms": time(1.0) },
        "age_max_s": figures.age_max.as_secs_f64(),
    })
}

fn point(point: &Point) -> Value {
    let mut json = size(point.capacity);
    json.insert("miss_ratio".into(), point.miss_ratio.into());
    json.insert("byte_miss_ratio".into(), point.byte_miss_ratio.into());
    json.insert("bytes_from_origin_ratio".into(), point.byte_load_ratio.into());
    json.insert("wait_ratio".into(), point.wait_ratio.into());
    json.insert("loads_per_request".into(), point.load_ratio.into());
    json.insert("exact".into(), point.is_exact.into());
    json.into()
}

fn size(capacity: Capacity) -> Map<String, Value> {
    let (name, room) = match capacity {
        Capacity::Entries(entries) => ("entries", entries),
        Capacity::Bytes(bytes) => ("bytes", bytes),
    };
    Map::from_iter([(name.to_owned(), room.into())])
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}
