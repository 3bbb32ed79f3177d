//! Routes admin requests to their handlers.

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE},
};
use hyper::body::Incoming;
use serde::Serialize;
use serde_json::json;
use stockade_http::{
    guard::{self, GuardFault},
    server::refused_method,
};
use stockade_model::{
    nearest::remedy,
    time::{Live, Runtime},
};
use tokio::sync::{Semaphore, mpsc};

use super::{
    Control, metrics, page,
    purge::Purge,
    request_body::{AdminLimits, BodyError, read_body},
    response::{AdminBody, AdminResponse, error, json, of_type, safe, text},
    token::Token,
    warm,
};

/// All paths and their methods.
const PAGES: [(&str, Method); 11] = [
    ("/", Method::GET),
    ("/healthz", Method::GET),
    ("/readyz", Method::GET),
    ("/stats", Method::GET),
    ("/metrics", Method::GET),
    ("/keys", Method::GET),
    ("/config", Method::GET),
    ("/purge", Method::POST),
    ("/purge_all", Method::POST),
    ("/warm", Method::POST),
    ("/reload", Method::POST),
];

fn figures(figures: impl Serialize) -> AdminResponse {
    match serde_json::to_value(figures) {
        Ok(figures) => json(StatusCode::OK, &figures),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

pub(super) struct AdminService<C> {
    control: Arc<C>,
    token: Arc<Token>,
    hosts: Arc<[String]>,
    limits: AdminLimits,
    /// One permit: one list is warmed at a time.
    warming: Arc<Semaphore>,
}

impl<C> Clone for AdminService<C> {
    fn clone(&self) -> Self {
        Self {
            control: Arc::clone(&self.control),
            token: Arc::clone(&self.token),
            hosts: Arc::clone(&self.hosts),
            limits: self.limits,
            warming: Arc::clone(&self.warming),
        }
    }
}

fn refusal(fault: GuardFault) -> AdminResponse {
    match fault {
        GuardFault::Host => text(StatusCode::BAD_REQUEST, "a request has one Host\n"),
        GuardFault::UnknownHost => {
            text(StatusCode::MISDIRECTED_REQUEST, "unknown Host: write it into [admin] hosts\n")
        }
        GuardFault::OtherSite => text(StatusCode::FORBIDDEN, "a page of another site must not do this\n"),
    }
}

impl<C: Control> AdminService<C> {
    pub(super) fn new(control: Arc<C>, token: Arc<Token>, hosts: Vec<String>, limits: AdminLimits) -> Self {
        Self { control, token, hosts: hosts.into(), limits, warming: Arc::new(Semaphore::new(1)) }
    }

    pub(super) async fn respond(&self, request: Request<Incoming>, time: &Live) -> AdminResponse {
        let (head, body) = request.into_parts();
        let (method, path) = (&head.method, head.uri.path());
        let is_probe = path == "/healthz" || path == "/readyz";
        if !is_probe {
            let is_read = [Method::GET, Method::HEAD].contains(method);
            if let Err(fault) = guard::admit(&head, &self.hosts, !is_read) {
                return refusal(fault);
            }
            if !self.token.admits(head.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes)) {
                let mut response =
                    text(StatusCode::UNAUTHORIZED, "send the token: Authorization: Bearer TOKEN\n");
                let challenge = HeaderValue::from_static("Basic realm=\"stockade\", charset=\"UTF-8\"");
                response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
                return response;
            }
        }
        let Some((_, allowed)) = PAGES.iter().find(|(known, _)| *known == path) else {
            let remedy = remedy(path, PAGES.iter().map(|(known, _)| *known));
            return text(StatusCode::NOT_FOUND, format!("there is no such page: {remedy}\n"));
        };
        if let Some(refused) = refused_method(method, allowed) {
            return safe(refused);
        }
        let query = head.uri.query().unwrap_or_default();
        match path {
            "/" => page::response(),
            "/healthz" => text(StatusCode::OK, "ok\n"),
            "/readyz" if self.control.stats().is_draining => {
                text(StatusCode::SERVICE_UNAVAILABLE, "draining\n")
            }
            "/readyz" => text(StatusCode::OK, "ready\n"),
            "/stats" => figures(self.control.stats()),
            "/keys" => figures(self.control.keys()),
            "/metrics" => {
                of_type(StatusCode::OK, metrics::CONTENT_TYPE, metrics::text(&self.control.stats()))
            }
            "/config" => json(StatusCode::OK, &self.control.config()),
            "/purge" => match Purge::read(query) {
                Ok(purge) => self.purge(&purge),
                Err(message) => error(StatusCode::BAD_REQUEST, &message),
            },
            "/purge_all" => match Purge::read_all(query) {
                Ok(purge) => self.warm(body, Some(&purge), time).await,
                Err(message) => error(StatusCode::BAD_REQUEST, &message),
            },
            "/warm" => self.warm(body, None, time).await,
            _ => self.reload().await,
        }
    }

    fn purge(&self, purge: &Purge) -> AdminResponse {
        json(StatusCode::OK, &purge.shown(&self.control.purge(purge)))
    }

    /// Warms the URLs in the body, after the purge if there is one. An invalid list purges nothing.
    async fn warm(&self, body: Incoming, purge: Option<&Purge>, time: &Live) -> AdminResponse {
        let body = match read_body(body, self.limits, time).await {
            Ok(body) => body,
            Err(BodyError::TimedOut) => return error(StatusCode::REQUEST_TIMEOUT, "the list took too long"),
            Err(BodyError::TooLarge) => {
                return error(StatusCode::PAYLOAD_TOO_LARGE, "a list has at most 1 MiB");
            }
            Err(BodyError::Incomplete) => return error(StatusCode::BAD_REQUEST, "the list is incomplete"),
        };
        let Ok(list) = str::from_utf8(&body) else {
            return error(StatusCode::BAD_REQUEST, "the list is not UTF-8 text");
        };
        let urls = match warm::list(list) {
            Ok(urls) => urls,
            Err(message) => return error(StatusCode::BAD_REQUEST, &message),
        };
        match purge {
            Some(purge) if urls.is_empty() => return self.purge(purge),
            None if urls.is_empty() => {
                return error(StatusCode::BAD_REQUEST, "write the URLs to load into the body, one a line");
            }
            _ => {}
        }
        let Ok(permit) = Arc::clone(&self.warming).try_acquire_owned() else {
            return error(StatusCode::CONFLICT, "another list is being warmed up: wait for its end");
        };
        let (sender, lines) = mpsc::channel(2);
        if let Some(purge) = purge {
            let purged = purge.shown(&self.control.purge(purge));
            // The channel has room for two lines; this is the first.
            let _ = sender.try_send(Bytes::from(format!("{purged}\n")));
        }
        time.spawn(warm::run(Arc::clone(&self.control), urls, time.clone(), sender, permit));
        let mut response = safe(Response::new(AdminBody::Lines(lines)));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        response
    }

    async fn reload(&self) -> AdminResponse {
        let refused = |message: &str| error(StatusCode::UNPROCESSABLE_ENTITY, message);
        let token = match self.token.read_again() {
            Ok(token) => token,
            Err(error) => return refused(&error.to_string()),
        };
        let changes = match self.control.reload().await {
            Ok(changes) => changes,
            Err(message) => return refused(&message),
        };
        self.token.put(token);
        let shown = |change: &crate::config::Change| json!({ "setting": change.setting, "needs_restart": change.needs_restart });
        json(StatusCode::OK, &json!({ "changes": changes.iter().map(shown).collect::<Vec<_>>() }))
    }
}
