//! Tracks a reply until its body ends or is dropped, then counts and logs it.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::SystemTime,
};

use bytes::Buf;
use http::{
    HeaderValue, Method, Response, StatusCode,
    header::{REFERER, USER_AGENT},
};
use http_body::{Frame, SizeHint};
use stockade_model::{
    outcome::Outcome,
    time::{Runtime, Time},
};

use super::{
    context::RequestContext,
    reply_body::{ChunkBuf, ReplyBody},
    runtime::LocalRuntime,
};
use crate::{
    log::{AccessLogger, AccessRecord},
    policy::cache_status::CACHE_STATUS,
};

#[derive(Debug)]
pub struct TrackedBody {
    body: ReplyBody,
    tracker: ReplyTracker,
}

struct ReplyTracker {
    context: Arc<RequestContext>,
    runtime: LocalRuntime,
    started: Time,
    log: Option<LogTarget>,
    status: StatusCode,
    outcome: Outcome,
    bytes: u64,
    is_complete: bool,
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

impl TrackedBody {
    #[must_use]
    pub fn new(
        response: Response<ReplyBody>,
        context: Arc<RequestContext>,
        outcome: Outcome,
        start: RequestStart,
    ) -> Response<Self> {
        let status = response.status();
        let log = start.log.map(|(requested_at, logger)| {
            let own_status = response.headers().get_all(CACHE_STATUS).iter().next_back();
            let cache_status = own_status.cloned().unwrap_or(HeaderValue::from_static(""));
            LogTarget { logger, requested_at, cache_status }
        });
        // The body of a reply to HEAD is not sent.
        let is_complete = context.method == Method::HEAD;
        let (runtime, started) = (start.runtime, start.at);
        let tracker = ReplyTracker { context, runtime, started, log, status, outcome, bytes: 0, is_complete };
        response.map(|body| Self { body, tracker })
    }
}

impl http_body::Body for TrackedBody {
    type Data = ChunkBuf;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<ChunkBuf>>>> {
        let Self { body, tracker } = self.get_mut();
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => tracker.bytes += frame.data_ref().map_or(0, |data| data.remaining() as u64),
            Some(Err(_)) => {}
            None => tracker.is_complete = true,
        }
        tracker.is_complete |= body.is_end_stream();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        self.tracker.is_complete |= http_body::Body::is_end_stream(&self.body);
    }
}

impl Drop for ReplyTracker {
    fn drop(&mut self) {
        let Self { context, runtime, started, status, outcome, bytes, is_complete, .. } = self;
        let took = runtime.now() - *started;
        context.route.counts.note(*outcome, status.as_u16(), *bytes, took);
        let Some(LogTarget { logger, requested_at, cache_status }) = &self.log else { return };
        let header = |name| context.headers.get(name).map(HeaderValue::as_bytes);
        logger.record(&AccessRecord {
            time: *requested_at,
            peer: context.peer.remote,
            method: context.method.as_str(),
            host: context.key.authority().as_bytes(),
            target: context.key.path_and_query(),
            version: context.version,
            status: status.as_u16(),
            sent_bytes: *bytes,
            took,
            outcome: *outcome,
            cache_status: cache_status.as_bytes(),
            route: &context.route.config.name,
            origin: context.origin_result(),
            user_agent: header(USER_AGENT),
            referer: header(REFERER),
            is_truncated: !*is_complete,
        });
    }
}

impl std::fmt::Debug for ReplyTracker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplyTracker").field("status", &self.status).finish_non_exhaustive()
    }
}
