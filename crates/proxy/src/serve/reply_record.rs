//! Counts and logs a reply when it has ended.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::{
    HeaderMap, HeaderValue, Response, StatusCode, Version,
    header::{HOST, REFERER, USER_AGENT},
};
use stockade_model::{
    outcome::Outcome,
    time::{Runtime, Time},
};

use super::{
    client::RequestClient,
    context::RequestContext,
    reply::Reply,
    reply_body::ReplyBody,
    runtime::{LocalRuntime, system_now},
    stored::BodyUsers,
};
use crate::{
    config::Config,
    log::{AccessLogger, AccessRecord},
    policy::cache_status::CACHE_STATUS,
};
use stockade_http::frontend::{ConnectionInfo, RefusedRequest, ResponseRecord, SentBody};

pub struct ReplyRecord {
    context: Arc<RequestContext>,
    runtime: LocalRuntime,
    started: Time,
    log: Option<LogTarget>,
    status: StatusCode,
    outcome: Outcome,
    /// Of the stored body that is being sent.
    _users: Option<BodyUsers>,
}

struct LogTarget {
    logger: AccessLogger,
    requested_at: SystemTime,
    cache_status: HeaderValue,
}

/// When a request arrived, and the log that records it.
pub struct RequestStart {
    pub runtime: LocalRuntime,
    pub at: Time,
    pub log: Option<(SystemTime, AccessLogger)>,
}

impl ReplyRecord {
    /// The response of `reply`, and its record.
    #[must_use]
    pub fn new(
        mut reply: Reply,
        context: Arc<RequestContext>,
        start: RequestStart,
    ) -> (Response<ReplyBody>, Self) {
        let RequestStart { runtime, at: started, log } = start;
        let (outcome, users) = (reply.cache_status.outcome, reply.users.take());
        let response = reply.into_response();
        let log = log.map(|(requested_at, logger)| {
            let own_status = response.headers().get_all(CACHE_STATUS).iter().next_back();
            let cache_status = own_status.cloned().unwrap_or(HeaderValue::from_static(""));
            LogTarget { logger, requested_at, cache_status }
        });
        let is_http2 = context.version == Version::HTTP_2;
        let record =
            Self { context, runtime, started, log, status: response.status(), outcome, _users: users };
        (if is_http2 { response.map(ReplyBody::in_pieces) } else { response }, record)
    }
}

/// Logs a request that the frontend has refused. `-` stands for the method and the target of a head that cannot be parsed.
pub fn log_refusal(
    logger: &AccessLogger,
    refused: &RefusedRequest<'_>,
    connection: ConnectionInfo,
    config: &Config,
) {
    let none = HeaderMap::new();
    let headers = refused.head.map_or(&none, |head| head.headers);
    let header = |name| headers.get(name).map(HeaderValue::as_bytes);
    let target = refused.head.map_or_else(|| "-".to_owned(), |head| head.uri.to_string());
    logger.record(&AccessRecord {
        time: system_now(),
        peer: RequestClient::new(headers, connection, config).address,
        method: refused.head.map_or("-", |head| head.method.as_str()),
        host: header(HOST).unwrap_or_default(),
        target: &target,
        version: refused.head.map_or(Version::HTTP_11, |head| head.version),
        status: refused.status.as_u16(),
        sent_bytes: 0,
        took: Duration::ZERO,
        outcome: Outcome::Error,
        cache_status: b"",
        route: "",
        origin: None,
        error: Some(refused.reason),
        user_agent: header(USER_AGENT),
        referer: header(REFERER),
        is_truncated: false,
    });
}

impl ResponseRecord for ReplyRecord {
    fn end(&mut self, sent: SentBody) {
        let Self { context, runtime, started, status, outcome, log, .. } = self;
        let (now, route) = (runtime.now(), &context.route);
        let took = now - *started;
        route.counts.note(*outcome, took);
        if let Some(keys) = &route.keys {
            keys.note_request(&context.key, *outcome, now);
        }
        let Some(LogTarget { logger, requested_at, cache_status }) = log else { return };
        let (origin, error) = context.take_result();
        let header = |name| context.headers.get(name).map(HeaderValue::as_bytes);
        logger.record(&AccessRecord {
            time: *requested_at,
            peer: context.client.address,
            method: context.method.as_str(),
            host: context.key.authority().as_bytes(),
            target: context.key.path_and_query(),
            version: context.version,
            status: status.as_u16(),
            sent_bytes: sent.bytes,
            took,
            outcome: *outcome,
            cache_status: cache_status.as_bytes(),
            route: &context.route.config.name,
            origin,
            error: error.as_deref(),
            user_agent: header(USER_AGENT),
            referer: header(REFERER),
            is_truncated: !sent.is_complete,
        });
    }
}
