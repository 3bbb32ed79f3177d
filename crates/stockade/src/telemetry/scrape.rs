//! `GET /metrics` while the run continues.
//!
//! Bounds: 16 connections of at most 5 seconds with one request each, a head of 16 KiB, and a page that is rendered once a
//! second at most: a client that is slow, or asks all the time, takes nothing from the run.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ACCEPT, ALLOW, CONTENT_TYPE, VARY},
};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use stockade_model::{
    telemetry::openmetrics::Exposition,
    time::{Live, Runtime, Time, before},
};
use tokio::{net::TcpListener, net::TcpStream, sync::Semaphore};

use super::LiveFigures;

const CONNECTIONS_MAX: usize = 16;
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(5);
const HEAD_TIME_MAX: Duration = Duration::from_secs(2);
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Pause after a failed accept, such as one without a free file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
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

/// Accepts connections and never returns. Above the limit, a connection waits for another one to end.
pub async fn serve(listener: &TcpListener, figures: &LiveFigures, time: &Live) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let pages = Pages { figures: figures.clone(), rendered: Arc::default() };
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let Ok((tcp, _)) = listener.accept().await else {
            time.sleep_until(time.now() + ACCEPT_PAUSE).await;
            continue;
        };
        let (pages, clock) = (pages.clone(), time.clone());
        time.spawn(async move {
            let deadline = clock.now() + CONNECTION_TIME_MAX;
            // A connection error cannot be reported to the client.
            let _ = before(&clock, deadline, connection(tcp, &pages, &clock)).await;
            drop(permit);
        });
    }
}

async fn connection(tcp: TcpStream, pages: &Pages, time: &Live) {
    let respond = service_fn(|request: Request<Incoming>| {
        let response = pages.respond(&request, time.now());
        async move { Ok::<_, Infallible>(response) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME_MAX).max_buf_size(HEAD_BYTES_MAX);
    let _ = builder.keep_alive(false).serve_connection(TokioIo::new(tcp), respond).await;
}

impl Pages {
    fn respond<B>(&self, request: &Request<B>, now: Time) -> Response<Full<Bytes>> {
        let text = |status, text: &'static str| {
            let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
            *response.status_mut() = status;
            response
        };
        if request.uri().path() != "/metrics" {
            return text(StatusCode::NOT_FOUND, "the figures are at /metrics\n");
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
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
    use stockade_model::telemetry::measurement::MeasurementSnapshot;

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
            ("POST", "/metrics", "", 405, ""),
            ("GET", "/", "", 404, ""),
        ] {
            let request =
                Request::builder().method(method).uri(path).header(ACCEPT, accept).body(()).unwrap();
            let response = pages.respond(&request, Time::ZERO);
            let of = response.headers().get(CONTENT_TYPE).map_or("", |value| value.to_str().unwrap());
            assert_eq!((response.status().as_u16(), of), (status, content_type), "{method} {path} {accept}");
        }
    }
}
