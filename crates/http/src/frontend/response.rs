//! The response to one request, from the check of the head to the last byte.

use std::{
    convert::Infallible,
    error::Error as StdError,
    future::Future,
    io::IoSlice,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE},
};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;

use super::{
    body::ClientBody,
    handler::{Handler, HandlerResponse, PendingHandler, RefusedRequest, ResponseRecord, SentBody},
    head::{self, Rejection},
    request_memory::request_bytes,
    state::{ConnectionContext, ConnectionInfo, RequestGuard},
};

const TOO_MANY_REQUESTS: Rejection =
    Rejection::new(StatusCode::SERVICE_UNAVAILABLE, "too many requests of this client are in progress");

pin_project! {
    /// The handler's body, or the text of a rejection.
    pub(super) struct ResponseBody<B, R: ResponseRecord> {
        #[pin]
        body: Option<B>,
        text: Option<Bytes>,
        end: Arc<ResponseEnd<R>>,
    }
}

/// A frame of a response. hyper and h2 hold it until its bytes are written to the connection.
pub(super) struct ResponseData<D: Buf, R: ResponseRecord> {
    data: D,
    end: Arc<ResponseEnd<R>>,
}

/// The end of a response: its body and each of its frames hold it. So a response that waits in a buffer for a slow client
/// is in flight.
pub(super) struct ResponseEnd<R: ResponseRecord> {
    guard: RequestGuard,
    /// `None` for a rejection.
    record: Option<R>,
    /// Bytes of all frames so far, without those that were dropped before they were written.
    written_bytes: AtomicU64,
    /// No frame follows.
    is_last_frame_taken: AtomicBool,
    /// A frame was dropped before it was written.
    is_cut: AtomicBool,
}

/// Resolves to the response. Small while it is pending: a connection moves it with each request.
pub(super) enum ResponseFuture<B, R: ResponseRecord> {
    Ready(Option<Response<ResponseBody<B, R>>>),
    Pending(Option<PendingResponse<B, R>>),
}

pub(super) struct PendingResponse<B, R> {
    response: PendingHandler<B, R>,
    is_head: bool,
    guard: RequestGuard,
}

// The pinned future is in a box.
impl<B, R: ResponseRecord> Unpin for ResponseFuture<B, R> {}

impl<B: Body, R: ResponseRecord> Future for ResponseFuture<B, R> {
    type Output = Result<Response<ResponseBody<B, R>>, Infallible>;

    /// # Panics
    /// If it is polled after it has resolved.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const RESOLVED: &str = "the future has not resolved yet";
        Poll::Ready(Ok(match self.get_mut() {
            Self::Ready(response) => response.take().expect(RESOLVED),
            Self::Pending(pending) => {
                let (response, record) = ready!(pending.as_mut().expect(RESOLVED).response.as_mut().poll(cx));
                let PendingResponse { is_head, guard, .. } = pending.take().expect(RESOLVED);
                prepare(response, record, is_head, guard)
            }
        }))
    }
}

/// Responds to the request that is the `number`th of its connection.
pub(super) fn respond<H: Handler>(
    connection: &ConnectionContext<H>,
    request: Request<Incoming>,
    number: u64,
    mut guard: RequestGuard,
) -> ResponseFuture<H::Body, H::Record> {
    let thread = &connection.state.thread;
    let accepted = if guard.stream.is_some() { Ok(()) } else { connection.state.check_accepted(number) };
    let ConnectionInfo { remote, is_tls, .. } = connection.info;
    let is_trusted_proxy = || thread.settings.trusted_proxies.contains(remote.ip());
    let checked = accepted
        .and_then(|()| head::check(&request, thread.settings.headers_max))
        .and_then(|()| head::check_scheme(&request, is_tls, is_trusted_proxy));
    let checked = checked.and_then(|()| {
        let bytes = request_bytes(&request, guard.stream.is_some());
        if bytes > 0 {
            guard.charge = Some(connection.state.try_charge(bytes).ok_or(TOO_MANY_REQUESTS)?);
        }
        Ok(())
    });
    if let Err(rejection) = checked {
        let counter = match rejection.status {
            StatusCode::SERVICE_UNAVAILABLE => &thread.counters.requests_beyond_memory,
            _ => &thread.counters.requests_malformed,
        };
        counter.increment();
        let Rejection { status, reason } = rejection;
        let refused = RefusedRequest { head: Some((&request).into()), status, reason };
        connection.handler.note_refusal(&refused, connection.info);
        return ResponseFuture::Ready(Some(reject(rejection, request.version(), guard)));
    }
    let is_head = *request.method() == Method::HEAD;
    let request =
        request.map(|incoming| ClientBody::new(incoming, &connection.state, guard.stream.is_none()));
    match connection.handler.handle(request, connection.info) {
        HandlerResponse::Ready(response, record) => {
            ResponseFuture::Ready(Some(prepare(response, record, is_head, guard)))
        }
        HandlerResponse::Pending(response) => {
            ResponseFuture::Pending(Some(PendingResponse { response, is_head, guard }))
        }
    }
}

/// Adds what the connection needs to a response of the handler.
fn prepare<B: Body, R: ResponseRecord>(
    mut response: Response<B>,
    record: R,
    is_head: bool,
    guard: RequestGuard,
) -> Response<ResponseBody<B, R>> {
    if response.status().is_informational() {
        // The client asked for no other protocol, and no final response follows.
        *response.status_mut() = StatusCode::BAD_GATEWAY;
    }
    let is_http2 = guard.stream.is_some();
    let announces_close = guard.connection.thread.announces_close.load(Relaxed);
    if !is_http2 && (announces_close || guard.connection.is_in_body()) {
        // If the handler did not wait for the request body, the rest of it is not awaited either.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    // hyper omits the body of a response to HEAD in HTTP/1 only.
    let omits_body = is_head && is_http2;
    if omits_body {
        // An origin's response to HEAD has an empty body whatever the length of the content, which may be unknown.
        let length = response.body().size_hint().exact().filter(|length| *length > 0);
        if let Some(length) = length.filter(|_| !response.headers().contains_key(CONTENT_LENGTH)) {
            response.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
    }
    let has_body = !(is_head || response.body().is_end_stream());
    let end = ResponseEnd::new(guard, Some(record), has_body);
    response.map(|body| ResponseBody { body: (!omits_body).then_some(body), text: None, end })
}

/// States the reason, and closes an HTTP/1 connection.
fn reject<B, R: ResponseRecord>(
    rejection: Rejection,
    version: Version,
    guard: RequestGuard,
) -> Response<ResponseBody<B, R>> {
    let Rejection { status, reason } = rejection;
    let text = Bytes::from(format!("{status}: {reason}\n"));
    let end = ResponseEnd::new(guard, None, true);
    let mut response = Response::new(ResponseBody { body: None, text: Some(text), end });
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    if version < Version::HTTP_2 {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
    }
    response
}

impl<B, R> Body for ResponseBody<B, R>
where
    B: Body<Data: From<Bytes>, Error: Into<Box<dyn StdError + Send + Sync>>>,
    R: ResponseRecord,
{
    type Data = ResponseData<B::Data, R>;
    type Error = Box<dyn StdError + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        let end = this.end;
        let Some(mut body) = this.body.as_pin_mut() else {
            end.take_last_frame();
            let text = this.text.take().map(|text| Frame::data(end.frame(text.into())));
            return Poll::Ready(text.map(Ok));
        };
        if let Some(stream) = &end.guard.stream {
            stream.record_poll();
        }
        let polled = ready!(body.as_mut().poll_frame(cx));
        match &polled {
            Some(Ok(_)) => {
                if let Some(stream) = &end.guard.stream {
                    stream.record_frame(&end.guard.connection.thread);
                }
                if body.is_end_stream() {
                    end.take_last_frame();
                }
            }
            None => end.take_last_frame(),
            Some(Err(_)) => {}
        }
        let frame = polled.map(|frame| Ok(frame.map_err(Into::into)?.map_data(|data| end.frame(data))));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.text.is_none() && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.body, &self.text) {
            (Some(body), _) => body.size_hint(),
            (None, text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
        }
    }
}

impl<R: ResponseRecord> ResponseEnd<R> {
    fn new(guard: RequestGuard, record: Option<R>, has_body: bool) -> Arc<Self> {
        Arc::new(Self {
            guard,
            record,
            written_bytes: AtomicU64::new(0),
            is_last_frame_taken: AtomicBool::new(!has_body),
            is_cut: AtomicBool::new(false),
        })
    }

    fn frame<D: Buf>(self: &Arc<Self>, data: D) -> ResponseData<D, R> {
        self.written_bytes.fetch_add(data.remaining() as u64, Relaxed);
        ResponseData { data, end: Arc::clone(self) }
    }

    fn take_last_frame(&self) {
        if !self.is_last_frame_taken.swap(true, Relaxed)
            && let Some(stream) = &self.guard.stream
        {
            self.guard.connection.push_ending_stream(stream);
        }
    }
}

impl<R: ResponseRecord> Drop for ResponseEnd<R> {
    fn drop(&mut self) {
        let is_complete = *self.is_last_frame_taken.get_mut() && !*self.is_cut.get_mut();
        if let Some(record) = &mut self.record {
            record.end(SentBody { bytes: *self.written_bytes.get_mut(), is_complete });
        }
        self.guard.is_complete = is_complete;
    }
}

impl<D: Buf, R: ResponseRecord> Drop for ResponseData<D, R> {
    fn drop(&mut self) {
        let unwritten = self.data.remaining() as u64;
        if unwritten > 0 {
            self.end.written_bytes.fetch_sub(unwritten, Relaxed);
            self.end.is_cut.store(true, Relaxed);
        }
    }
}

impl<D: Buf, R: ResponseRecord> Buf for ResponseData<D, R> {
    fn remaining(&self) -> usize {
        self.data.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.data.chunk()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.data.chunks_vectored(slices)
    }

    fn advance(&mut self, bytes: usize) {
        self.data.advance(bytes);
    }
}
