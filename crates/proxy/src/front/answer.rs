//! One request: whether it may be answered, by whom, and the answer until it has left.

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
    Answering, ClientBody, Handler,
    counts::bump,
    head::{self, Refusal},
    session::{Session, Visit},
};

pin_project! {
    /// An answer's body, whose visit is over when it is.
    #[derive(Debug)]
    pub(super) struct Answer<B> {
        #[pin]
        body: Option<B>,
        text: Option<Bytes>,
        visit: Visit,
    }
}

/// The answer to a request, when it comes. Small if it is a while: a connection moves it with each request.
pub(super) enum Answered<B> {
    Now(Option<Response<Answer<B>>>),
    Later(Option<Later<B>>),
}

/// An answer that somebody is at work on.
pub(super) struct Later<B> {
    answer: Pin<Box<dyn Future<Output = Response<B>> + Send>>,
    is_head: bool,
    visit: Visit,
}

// Whatever is pinned is in a box.
impl<B> Unpin for Answered<B> {}

impl<B: Body> Future for Answered<B> {
    type Output = Result<Response<Answer<B>>, Infallible>;

    /// # Panics
    /// If it is polled again after its end.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const OVER: &str = "it has been answered";
        Poll::Ready(Ok(match self.get_mut() {
            Self::Now(response) => response.take().expect(OVER),
            Self::Later(answering) => {
                let response = ready!(answering.as_mut().expect(OVER).answer.as_mut().poll(cx));
                let Later { is_head, visit, .. } = answering.take().expect(OVER);
                send(response, is_head, visit)
            }
        }))
    }
}

/// Answers the request that is the `number`th of its connection.
pub(super) fn answer<H: Handler>(
    session: &Session<H>,
    request: Request<Incoming>,
    number: u64,
    visit: Visit,
) -> Answered<H::Body> {
    let thread = &session.progress.thread;
    let believed = if visit.stream.is_some() { Ok(()) } else { session.progress.judge(number) };
    let checked = believed.and_then(|()| head::check(&request, thread.settings.headers_max));
    if let Err(refusal) = checked {
        bump(&thread.tallies.malformed);
        return Answered::Now(Some(refuse(refusal, request.version(), visit)));
    }
    let is_head = *request.method() == Method::HEAD;
    let request = request.map(|incoming| ClientBody::new(incoming, thread));
    match session.handler.answer(request, session.peer) {
        Answering::Now(response) => Answered::Now(Some(send(response, is_head, visit))),
        Answering::Later(answer) => Answered::Later(Some(Later { answer, is_head, visit })),
    }
}

fn send<B: Body>(mut response: Response<B>, is_head: bool, mut visit: Visit) -> Response<Answer<B>> {
    if response.status().is_informational() {
        // Nobody asked for another protocol, and there is nothing after it that would be the answer.
        *response.status_mut() = StatusCode::BAD_GATEWAY;
    }
    if visit.stream.is_none() && visit.progress.is_in_body() {
        // An answer that did not wait for its request: what is left of that is not waited for either.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if is_head && visit.stream.is_some() {
        // hyper knows this of HTTP/1 only.
        let length = response.body().size_hint().exact();
        if let Some(length) = length.filter(|_| !response.headers().contains_key(CONTENT_LENGTH)) {
            response.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
        visit.is_finished = true;
        return response.map(|_| Answer { body: None, text: None, visit });
    }
    visit.is_finished = response.body().is_end_stream();
    response.map(|body| Answer { body: Some(body), text: None, visit })
}

/// Says why, and that nothing more of this connection is listened to.
fn refuse<B>(refusal: Refusal, version: Version, mut visit: Visit) -> Response<Answer<B>> {
    let Refusal { status, reason } = refusal;
    visit.is_finished = visit.stream.is_none();
    let text = Bytes::from(format!("{status}: {reason}\n"));
    let mut response = Response::new(Answer { body: None, text: Some(text), visit });
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

impl<B> Body for Answer<B>
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
            this.visit.is_finished = true;
            return Poll::Ready(this.text.take().map(|text| Ok(Frame::data(text.into()))));
        };
        if let Some(stream) = &this.visit.stream {
            stream.wants_more();
        }
        let polled = body.as_mut().poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(_))) => {
                this.visit.is_finished = body.is_end_stream();
                if let Some(stream) = &this.visit.stream {
                    stream.hand_over(&this.visit.progress.thread);
                }
            }
            Poll::Ready(None) => this.visit.is_finished = true,
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
