//! An answer on its way to its client: when it is over, however it ends, it is counted and logged.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::SystemTime,
};

use bytes::Buf;
use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode,
    header::{REFERER, USER_AGENT},
};
use http_body::{Frame, SizeHint};
use stockade_model::{
    outcome::Outcome,
    time::{Runtime, Time},
};

use super::{
    asked::Asked,
    body::{Body, Parcel},
    clock::PerCore,
};
use crate::{
    log::{Entry, Logger},
    policy::cache_status::CACHE_STATUS,
};

/// The body of an answer, and what is told of it when it has gone.
#[derive(Debug)]
pub struct Sent {
    body: Body,
    story: Story,
}

/// What is told of an answer.
struct Story {
    asked: Arc<Asked>,
    clock: PerCore,
    came: Time,
    /// When it came, for the log; `None`: there is none.
    logged: Option<(SystemTime, Logger, HeaderValue)>,
    status: StatusCode,
    outcome: Outcome,
    bytes: u64,
    is_whole: bool,
}

/// When a request came, and where that is told.
pub struct Came {
    /// The clock of the cache.
    pub clock: PerCore,
    /// By that clock.
    pub at: Time,
    /// Where requests are recorded.
    pub log: Option<(SystemTime, Logger)>,
}

impl Sent {
    /// An answer to a request, which had this outcome.
    #[must_use]
    pub fn new(response: Response<Body>, asked: Arc<Asked>, outcome: Outcome, came: Came) -> Response<Self> {
        let status = response.status();
        let told = |headers: &HeaderMap| {
            let own = headers.get_all(CACHE_STATUS).iter().next_back();
            own.cloned().unwrap_or(HeaderValue::from_static(""))
        };
        let logged = came.log.map(|(time, logger)| (time, logger, told(response.headers())));
        // The body of an answer to HEAD is not sent.
        let is_whole = asked.method == Method::HEAD;
        let (clock, came) = (came.clock, came.at);
        let story = Story { asked, clock, came, logged, status, outcome, bytes: 0, is_whole };
        response.map(|body| Self { body, story })
    }
}

impl http_body::Body for Sent {
    type Data = Parcel;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Parcel>>>> {
        let Self { body, story } = self.get_mut();
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => story.bytes += frame.data_ref().map_or(0, |data| data.remaining() as u64),
            Some(Err(_)) => {}
            None => story.is_whole = true,
        }
        story.is_whole |= body.is_end_stream();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.story.is_whole |= http_body::Body::is_end_stream(&self.body);
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        let Self { asked, clock, came, status, outcome, bytes, is_whole, .. } = self;
        let took = clock.now() - *came;
        asked.route.counts.note(*outcome, status.as_u16(), *bytes, took);
        let Some((time, logger, cache_status)) = &self.logged else { return };
        let header = |name| asked.headers.get(name).map(HeaderValue::as_bytes);
        logger.record(&Entry {
            time: *time,
            peer: asked.peer.address,
            method: asked.method.as_str(),
            host: asked.key.authority().as_bytes(),
            target: asked.key.path_and_query(),
            version: asked.version,
            status: status.as_u16(),
            sent_bytes: *bytes,
            took,
            outcome: *outcome,
            cache_status: cache_status.as_bytes(),
            route: &asked.route.config.name,
            origin: asked.origin_answer(),
            user_agent: header(USER_AGENT),
            referer: header(REFERER),
            is_cut: !*is_whole,
        });
    }
}

impl std::fmt::Debug for Story {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Story").field("status", &self.status).finish_non_exhaustive()
    }
}
