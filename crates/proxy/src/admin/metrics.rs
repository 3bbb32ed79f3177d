//! How it goes, for Prometheus: the text format, version 0.0.4.
//!
//! The names are those of `Builder::metrics` of the cache, by route in place of cache; what else a proxy knows is
//! beside them. The origins of a proxy are `upstream`s here: `stockade_origin_*` are those of `stockade origin`.

use std::fmt::{Display, Write};

use stockade_model::outcome::Outcome;

use super::stats::{Breaker, Histogram, OriginStats, RouteStats, Stats};

/// What Prometheus is told that it is given.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Name, kind and help of a figure, and what it is of one of its like.
type Figure<T> = (&'static str, &'static str, &'static str, fn(&T) -> u64);

/// Name and help of times, and those of a route.
type Times = (&'static str, &'static str, fn(&RouteStats) -> Option<&Histogram>);

/// All of it.
pub(super) fn text(stats: &Stats) -> String {
    let mut text = Text(String::with_capacity(16 << 10));
    requests(&mut text, &stats.routes);
    loads(&mut text, &stats.routes);
    store(&mut text, stats);
    upstreams(&mut text, &stats.origins);
    program(&mut text, stats);
    text.0
}

fn requests(text: &mut Text, routes: &[RouteStats]) {
    text.family("stockade_requests_total", "counter", "requests, by what the cache did for them");
    for route in routes {
        for outcome in Outcome::ALL {
            let labels = [("route", route.name.as_str()), ("outcome", outcome.name())];
            text.sample("stockade_requests_total", &labels, route.outcomes.of(outcome));
        }
    }
    let times: [Times; 3] = [
        ("stockade_response_seconds", "from a request's head to the last byte of its answer", |route| {
            route.response_time.as_ref()
        }),
        ("stockade_load_seconds", "how long loads took, failed ones too", |route| route.load_time.as_ref()),
        ("stockade_wait_seconds", "how long waiters waited", |route| route.wait_time.as_ref()),
    ];
    for (name, help, histogram) in times {
        if routes.iter().any(|route| histogram(route).is_some()) {
            text.family(name, "histogram", help);
        }
        for route in routes {
            if let Some(histogram) = histogram(route) {
                text.histogram(name, ("route", &route.name), histogram);
            }
        }
    }
}

fn loads(text: &mut Text, routes: &[RouteStats]) {
    let figures: [Figure<RouteStats>; 6] = [
        ("stockade_loads_total", "counter", "loads begun", |route| route.loads),
        ("stockade_loads_failed_total", "counter", "loads that failed, were cancelled or lost", |route| {
            route.loads_failed
        }),
        ("stockade_loads_refused_total", "counter", "loads that the breaker did not let begin", |route| {
            route.loads_refused
        }),
        (
            "stockade_loads_rejected_total",
            "counter",
            "loads that the queue had no room or no time for",
            |route| route.loads_rejected,
        ),
        ("stockade_loads_in_flight", "gauge", "loads under way", |route| route.loads_in_flight),
        ("stockade_waiters_total", "counter", "waits for another caller's load, in vain or not", |route| {
            route.waiters
        }),
    ];
    for (name, kind, help, figure) in figures {
        text.family(name, kind, help);
        routes.iter().for_each(|route| text.sample(name, &[("route", &route.name)], figure(route)));
    }
    text.family("stockade_refreshes_total", "counter", "loads of what could still be answered with");
    for route in routes {
        let of = route.refreshes;
        for (kind, count) in
            [("early", of.early), ("xfetch", of.xfetch), ("swr", of.swr), ("probe", of.probe)]
        {
            let labels = [("route", route.name.as_str()), ("refresh", kind)];
            text.sample("stockade_refreshes_total", &labels, count);
        }
    }
    text.family("stockade_breaker_state", "gauge", "0 closed, 1 ramp, 2 half-open, 3 open");
    for route in routes {
        let state = route.breaker.map(|state| match state {
            Breaker::Closed => 0,
            Breaker::Ramp => 1,
            Breaker::HalfOpen => 2,
            Breaker::Open => 3,
        });
        if let Some(state) = state {
            text.sample("stockade_breaker_state", &[("route", &route.name)], state);
        }
    }
}

fn store(text: &mut Text, stats: &Stats) {
    text.family("stockade_evicted_total", "counter", "entries that left, by reason");
    text.sample("stockade_evicted_total", &[("reason", "expired")], stats.evicted_expired);
    text.sample("stockade_evicted_total", &[("reason", "size")], stats.evicted_size);
    text.family("stockade_reclaims_total", "counter", "times that a share of the limit was cleared");
    text.sample("stockade_reclaims_total", &[], stats.reclaims);
    text.one("stockade_invalidated_total", "counter", "entries that were invalidated", stats.invalidated);
    text.one("stockade_entries", "gauge", "entries stored, fresh or not", stats.entries);
    for (name, help, value) in [
        ("stockade_entries_limit", "how many entries there may be", stats.entries_limit),
        ("stockade_bytes", "bytes held of the limit, entries and reservations", stats.bytes),
        ("stockade_bytes_limit", "how many bytes may be held", stats.bytes_limit),
    ] {
        if let Some(value) = value {
            text.one(name, "gauge", help, value);
        }
    }
}

fn upstreams(text: &mut Text, origins: &[OriginStats]) {
    text.family("stockade_upstream_connections", "gauge", "connections to an origin, by what they do");
    for origin in origins {
        for (state, count) in [("busy", origin.connections_busy), ("idle", origin.connections_idle)] {
            let labels = [("origin", origin.name.as_str()), ("state", state)];
            text.sample("stockade_upstream_connections", &labels, count);
        }
    }
    let figures: [Figure<OriginStats>; 3] = [
        ("stockade_upstream_waiting", "gauge", "requests that wait for a connection", |origin| {
            origin.waiting
        }),
        ("stockade_upstream_requests_total", "counter", "requests that an origin was asked for", |origin| {
            origin.requests
        }),
        (
            "stockade_upstream_failures_total",
            "counter",
            "requests that an origin did not answer, or not to the end",
            |origin| origin.failures,
        ),
    ];
    for (name, kind, help, figure) in figures {
        text.family(name, kind, help);
        origins.iter().for_each(|origin| text.sample(name, &[("origin", &origin.name)], figure(origin)));
    }
    text.family("stockade_upstream_healthy", "gauge", "1 if a server is asked before those that are not");
    for origin in origins {
        for server in &origin.servers {
            let labels = [("origin", origin.name.as_str()), ("server", server.address.as_str())];
            text.sample("stockade_upstream_healthy", &labels, u8::from(server.is_healthy));
        }
    }
}

fn program(text: &mut Text, stats: &Stats) {
    text.one("stockade_connections", "gauge", "connections of clients", stats.connections);
    for (name, help, value) in [
        (
            "stockade_connections_accepted_total",
            "connections of clients taken in",
            stats.connections_accepted,
        ),
        ("stockade_connections_refused_total", "connections without room", stats.connections_refused),
        ("stockade_log_dropped_total", "lines that the access log lacks", stats.log_dropped),
    ] {
        text.one(name, "counter", help, value);
    }
    text.one("stockade_requests_in_flight", "gauge", "requests under way", stats.requests_in_flight);
    text.one("stockade_draining", "gauge", "1 if no more requests are taken", u8::from(stats.is_draining));
    text.one("stockade_uptime_seconds", "gauge", "how long it has been running", stats.uptime_seconds);
    if let Some(bytes) = stats.resident_bytes {
        text.one("process_resident_memory_bytes", "gauge", "memory of the whole program", bytes);
    }
}

/// Lines of the format. Writing into memory does not fail.
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (number, (label, value)) in labels.iter().enumerate() {
            self.0.push(if number == 0 { '{' } else { ',' });
            let _ = write!(self.0, "{label}=\"");
            for c in value.chars() {
                match c {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    fn histogram(&mut self, name: &str, label: (&str, &str), histogram: &Histogram) {
        let (bucket, mut count) = (format!("{name}_bucket"), 0);
        for (bound, more) in histogram.bounds_seconds.iter().zip(&histogram.counts) {
            count += more;
            self.sample(&bucket, &[label, ("le", &bound.to_string())], count);
        }
        count += histogram.counts.get(histogram.bounds_seconds.len()).copied().unwrap_or_default();
        self.sample(&bucket, &[label, ("le", "+Inf")], count);
        self.sample(&format!("{name}_sum"), &[label], histogram.sum_seconds);
        self.sample(&format!("{name}_count"), &[label], count);
    }
}
