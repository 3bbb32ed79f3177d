//! `GET /metrics` while the run continues.
//!
//! Bounds: 16 connections of at most 5 seconds with one request each, a head of 16 KiB, and a page that is rendered once a
//! second at most: a client that is slow, or asks all the time, takes nothing from the run.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, VARY},
};
use http_body_util::Full;
use stockade_http::server::{self, Connections, ServerLimits, WhenFull};
use stockade_model::time::{Live, Runtime, Time};
use stockade_record::telemetry::openmetrics::Exposition;
use tokio::net::TcpListener;

use super::LiveFigures;

const LIMITS: ServerLimits = ServerLimits {
    connections_max: 16,
    connection_time_max: Duration::from_secs(5),
    head_time_max: Duration::from_secs(2),
    is_keep_alive: false,
    when_full: WhenFull::Wait,
};
/// The figures change once a second.
const PAGE_AGE_MAX: Duration = Duration::from_secs(1);

/// The last page of a format, and when it was rendered.
type RenderedPage = Option<(Time, Bytes)>;

/// The last page of each format.
#[derive(Clone)]
struct Pages {
    figures: LiveFigures,
    rendered: Arc<Mutex<[RenderedPage; 2]>>,
}

/// Serves the figures and never returns.
pub async fn serve(listener: &TcpListener, figures: &LiveFigures, time: &Live) {
    let pages = Pages { figures: figures.clone(), rendered: Arc::default() };
    let clock = time.clone();
    let respond = move |request| {
        let response = pages.respond(&request, clock.now());
        async move { response }
    };
    server::serve(listener, &Connections::within(LIMITS), time, respond).await;
}

impl Pages {
    fn respond<B>(&self, request: &Request<B>, now: Time) -> Response<Full<Bytes>> {
        if request.uri().path() != "/metrics" {
            return server::text(StatusCode::NOT_FOUND, "the figures are at /metrics\n");
        }
        if let Some(refused) = server::refused_method(request.method(), &Method::GET) {
            return refused;
        }
        let accepted = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let exposition = if accepted.into_iter().any(|value| value.contains("application/openmetrics-text")) {
            Exposition::OpenMetrics
        } else {
            Exposition::Prometheus
        };
        let mut response = Response::new(Full::new(self.page(exposition, now)));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(exposition.content_type()));
        response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
        response
    }

    fn page(&self, exposition: Exposition, now: Time) -> Bytes {
        let mut rendered = self.rendered.lock().unwrap_or_else(PoisonError::into_inner);
        let last = &mut rendered[exposition as usize];
        match last {
            Some((at, page)) if now - *at < PAGE_AGE_MAX => page.clone(),
            _ => {
                let page = Bytes::from(exposition.render(&self.figures.snapshot().families()));
                *last = Some((now, page.clone()));
                page
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use stockade_record::telemetry::measurement::MeasurementSnapshot;

    use super::*;

    #[test]
    fn page_is_rendered_once_a_second() {
        let figures = LiveFigures::new(Vec::new());
        let pages = Pages { figures: figures.clone(), rendered: Arc::default() };
        let one = MeasurementSnapshot { requests: 1, ..MeasurementSnapshot::default() };
        figures.add(&one);
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        let page = |millis| pages.page(Exposition::Prometheus, at(millis));
        let first = page(100);
        figures.add(&one);
        assert_eq!(page(1_099), first);
        assert_ne!(page(1_100), first);
    }

    #[test]
    fn format_follows_accept() {
        let pages = Pages { figures: LiveFigures::new(Vec::new()), rendered: Arc::default() };
        for (method, path, accept, status, content_type) in [
            ("GET", "/metrics", "", 200, "text/plain; version=0.0.4; charset=utf-8"),
            ("HEAD", "/metrics?x", "*/*", 200, "text/plain; version=0.0.4; charset=utf-8"),
            (
                "GET",
                "/metrics",
                "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3",
                200,
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
            ),
            ("POST", "/metrics", "", 405, "text/plain; charset=utf-8"),
            ("GET", "/", "", 404, "text/plain; charset=utf-8"),
        ] {
            let request =
                Request::builder().method(method).uri(path).header(ACCEPT, accept).body(()).unwrap();
            let response = pages.respond(&request, Time::ZERO);
            let of = response.headers().get(CONTENT_TYPE).map_or("", |value| value.to_str().unwrap());
            assert_eq!((response.status().as_u16(), of), (status, content_type), "{method} {path} {accept}");
        }
    }
}
