//! The response to one request, from the check of the head to the last byte.

use std::{
    convert::Infallible,
    error::Error as StdError,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE},
};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;

use super::{
    body::ClientBody,
    counts::increment,
    handler::{Handler, HandlerResponse},
    head::{self, Rejection},
    state::{ConnectionContext, RequestGuard},
};

pin_project! {
    /// The handler's body, or the text of a rejection.
    #[derive(Debug)]
    pub(super) struct ResponseBody<B> {
        #[pin]
        body: Option<B>,
        text: Option<Bytes>,
        guard: RequestGuard,
    }
}

/// Resolves to the response. Small while it is pending: a connection moves it with each request.
pub(super) enum ResponseFuture<B> {
    Ready(Option<Response<ResponseBody<B>>>),
    Pending(Option<PendingResponse<B>>),
}

pub(super) struct PendingResponse<B> {
    response: Pin<Box<dyn Future<Output = Response<B>> + Send>>,
    is_head: bool,
    guard: RequestGuard,
}

// The pinned future is in a box.
impl<B> Unpin for ResponseFuture<B> {}

impl<B: Body> Future for ResponseFuture<B> {
    type Output = Result<Response<ResponseBody<B>>, Infallible>;

    /// # Panics
    /// If it is polled after it has resolved.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const RESOLVED: &str = "the future has not resolved yet";
        Poll::Ready(Ok(match self.get_mut() {
            Self::Ready(response) => response.take().expect(RESOLVED),
            Self::Pending(pending) => {
                let response = ready!(pending.as_mut().expect(RESOLVED).response.as_mut().poll(cx));
                let PendingResponse { is_head, guard, .. } = pending.take().expect(RESOLVED);
                prepare(response, is_head, guard)
            }
        }))
    }
}

/// Responds to the request that is the `number`th of its connection.
pub(super) fn respond<H: Handler>(
    connection: &ConnectionContext<H>,
    request: Request<Incoming>,
    number: u64,
    guard: RequestGuard,
) -> ResponseFuture<H::Body> {
    let thread = &connection.state.thread;
    let scanned = if guard.stream.is_some() { Ok(()) } else { connection.state.check_scanned(number) };
    let checked = scanned.and_then(|()| head::check(&request, thread.settings.headers_max));
    if let Err(rejection) = checked {
        increment(&thread.counters.malformed);
        return ResponseFuture::Ready(Some(reject(rejection, request.version(), guard)));
    }
    let is_head = *request.method() == Method::HEAD;
    let request = request.map(|incoming| ClientBody::new(incoming, thread));
    match connection.handler.handle(request, connection.info) {
        HandlerResponse::Ready(response) => ResponseFuture::Ready(Some(prepare(response, is_head, guard))),
        HandlerResponse::Pending(response) => {
            ResponseFuture::Pending(Some(PendingResponse { response, is_head, guard }))
        }
    }
}

/// Adds what the connection needs to a response of the handler.
fn prepare<B: Body>(
    mut response: Response<B>,
    is_head: bool,
    mut guard: RequestGuard,
) -> Response<ResponseBody<B>> {
    if response.status().is_informational() {
        // The client asked for no other protocol, and no final response follows.
        *response.status_mut() = StatusCode::BAD_GATEWAY;
    }
    if guard.stream.is_none() && guard.connection.is_in_body() {
        // The handler did not wait for the request body; the rest of it is not awaited either.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if is_head && guard.stream.is_some() {
        // hyper omits the body of a response to HEAD in HTTP/1 only.
        let length = response.body().size_hint().exact();
        if let Some(length) = length.filter(|_| !response.headers().contains_key(CONTENT_LENGTH)) {
            response.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
        guard.is_complete = true;
        return response.map(|_| ResponseBody { body: None, text: None, guard });
    }
    guard.is_complete = response.body().is_end_stream();
    response.map(|body| ResponseBody { body: Some(body), text: None, guard })
}

/// States the reason, and closes an HTTP/1 connection.
fn reject<B>(rejection: Rejection, version: Version, mut guard: RequestGuard) -> Response<ResponseBody<B>> {
    let Rejection { status, reason } = rejection;
    guard.is_complete = guard.stream.is_none();
    let text = Bytes::from(format!("{status}: {reason}\n"));
    let mut response = Response::new(ResponseBody { body: None, text: Some(text), guard });
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

impl<B> Body for ResponseBody<B>
where
    B: Body<Data: From<Bytes>, Error: Into<Box<dyn StdError + Send + Sync>>>,
{
    type Data = B::Data;
    type Error = Box<dyn StdError + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, Self::Error>>> {
        let this = self.project();
        let Some(mut body) = this.body.as_pin_mut() else {
            this.guard.is_complete = true;
            return Poll::Ready(this.text.take().map(|text| Ok(Frame::data(text.into()))));
        };
        if let Some(stream) = &this.guard.stream {
            stream.record_poll();
        }
        let polled = body.as_mut().poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(_))) => {
                this.guard.is_complete = body.is_end_stream();
                if let Some(stream) = &this.guard.stream {
                    stream.record_frame(&this.guard.connection.thread);
                }
            }
            Poll::Ready(None) => this.guard.is_complete = true,
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled.map_err(Into::into)
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
