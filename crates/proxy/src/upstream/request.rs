//! A request that can be sent again as long as its body is unread.

use std::{
    error::Error,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Uri, Version, header::HOST, request::Parts, uri::Authority};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use stockade_model::time::{Runtime, Time};

use super::{
    clock::UpstreamClock,
    error::UpstreamError,
    settings::{HostHeader, OriginUrl},
};

type BoxError = Box<dyn Error + Send + Sync>;

pub(super) struct RetryableRequest {
    head: Parts,
    /// `None`: no body.
    upload: Option<Arc<UploadState>>,
    size: SizeHint,
}

pub(super) struct UploadState {
    /// `None` once a connection reads it.
    body: Mutex<Option<UnsyncBoxBody<Bytes, BoxError>>>,
    has_started: AtomicBool,
    has_ended: AtomicBool,
    /// The last poll was pending: the client has to send more.
    is_waiting_for_client: AtomicBool,
    /// Last time that the client sent something, in nanoseconds.
    progress_at: AtomicU64,
    failed: OnceLock<Arc<dyn Error + Send + Sync>>,
    clock: UpstreamClock,
}

/// The body as a connection reads it.
pub(super) struct OutgoingBody {
    upload: Option<Arc<UploadState>>,
    /// `None` until it is first polled.
    body: Option<UnsyncBoxBody<Bytes, BoxError>>,
    size: SizeHint,
}

impl RetryableRequest {
    pub(super) fn new<B>(request: Request<B>, clock: &UpstreamClock) -> Result<Self, UpstreamError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (head, body) = request.into_parts();
        if head.method == Method::CONNECT {
            return Err(UpstreamError::Unsendable { reason: "CONNECT is not supported".into() });
        }
        let size = body.size_hint();
        let upload = (!body.is_end_stream()).then(|| {
            Arc::new(UploadState {
                body: Mutex::new(Some(body.map_err(Into::into).boxed_unsync())),
                has_started: AtomicBool::new(false),
                has_ended: AtomicBool::new(false),
                is_waiting_for_client: AtomicBool::new(false),
                progress_at: AtomicU64::new(clock.now().as_nanos()),
                failed: OnceLock::new(),
                clock: clock.clone(),
            })
        });
        Ok(Self { head, upload, size })
    }

    /// The request for one endpoint.
    pub(super) fn request(
        &self,
        url: &OriginUrl,
        host: HostHeader,
        version: Version,
    ) -> Result<Request<OutgoingBody>, UpstreamError> {
        let Parts { method, uri, headers, .. } = &self.head;
        let unsendable = |reason: &str| UpstreamError::Unsendable { reason: reason.into() };
        let target = url
            .target(uri.path_and_query())
            .ok_or_else(|| unsendable("its path is invalid below the origin's"))?;
        let host = self.host(url, host).ok_or_else(|| unsendable("its host is invalid"))?;
        let mut request = Request::new(self.outgoing());
        *request.method_mut() = method.clone();
        *request.version_mut() = version;
        *request.headers_mut() = headers.clone();
        if version == Version::HTTP_2 {
            request.headers_mut().remove(HOST);
            let authority =
                Authority::try_from(host.as_bytes()).map_err(|_| unsendable("its host is invalid"))?;
            let scheme = if url.is_encrypted { "https" } else { "http" };
            let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query(target).build();
            *request.uri_mut() = uri.map_err(|error| unsendable(&error.to_string()))?;
        } else {
            request.headers_mut().insert(HOST, host);
            *request.uri_mut() = target.into();
        }
        Ok(request)
    }

    fn host(&self, url: &OriginUrl, policy: HostHeader) -> Option<HeaderValue> {
        let clients = || {
            let authority = self.head.uri.authority();
            let of_uri = authority.and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
            of_uri.or_else(|| self.head.headers.get(HOST).cloned())
        };
        match policy {
            HostHeader::Client => clients().or_else(|| url.host_header()),
            HostHeader::Origin => url.host_header(),
        }
    }

    fn outgoing(&self) -> OutgoingBody {
        OutgoingBody { upload: self.upload.clone(), body: None, size: self.size }
    }

    /// True if it may be sent again although the origin may have processed it.
    pub(super) fn is_repeatable(&self) -> bool {
        self.head.method.is_idempotent() && self.is_whole()
    }

    /// True if none of its body has been sent.
    pub(super) fn is_whole(&self) -> bool {
        self.upload.as_ref().is_none_or(|upload| !upload.has_started.load(Relaxed))
    }

    pub(super) fn is_head(&self) -> bool {
        self.head.method == Method::HEAD
    }

    /// True if the method gives content no meaning, and there is some (RFC 9110, 9.3; RFC 5789). An origin may leave it unread, and
    /// then takes it for the next request on the connection: one that the client wrote, whose response another client gets.
    pub(super) fn has_ignored_content(&self) -> bool {
        let has_meaning = matches!(self.head.method, Method::POST | Method::PUT | Method::PATCH);
        self.upload.is_some() && !has_meaning
    }

    /// `None`: no body.
    pub(super) fn upload(&self) -> Option<&Arc<UploadState>> {
        self.upload.as_ref()
    }

    /// The error of the client's body, if that is the cause.
    pub(super) fn failure(&self) -> Option<UpstreamError> {
        let error = self.upload.as_ref()?.failed.get()?;
        Some(UpstreamError::RequestBody { error: Arc::clone(error) })
    }

    /// The deadline for the response head of a request sent at `sent`, of which the origin last took bytes at `written`; and
    /// the error after it.
    pub(super) fn deadline(
        &self,
        sent: Time,
        written: Time,
        head: Duration,
        idle: Duration,
    ) -> (Time, UpstreamError) {
        let late = UpstreamError::HeadTimeout { after: head };
        let Some(upload) = &self.upload else { return (sent.max(written) + head, late) };
        let moved = Time::from_nanos(upload.progress_at.load(Relaxed)).max(sent).max(written);
        if upload.has_ended() {
            return (moved + head, late);
        }
        if upload.is_waiting_for_client.load(Relaxed) {
            return (moved + idle, UpstreamError::RequestStalled { after: idle });
        }
        (moved + idle, UpstreamError::IdleTimeout { after: idle })
    }
}

impl UploadState {
    fn body(&self) -> MutexGuard<'_, Option<UnsyncBoxBody<Bytes, BoxError>>> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a connection has taken the last byte of the body.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Relaxed)
    }

    fn record_progress(&self) {
        self.progress_at.store(self.clock.now().as_nanos(), Relaxed);
    }
}

impl OutgoingBody {
    pub(super) fn record_progress(&self) {
        self.upload.iter().for_each(|upload| upload.record_progress());
    }
}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let Some(upload) = &this.upload else { return Poll::Ready(None) };
        let body = match &mut this.body {
            Some(body) => body,
            None => {
                upload.has_started.store(true, Relaxed);
                match upload.body().take() {
                    Some(body) => this.body.insert(body),
                    None => return Poll::Ready(Some(Err("the body has already been read".into()))),
                }
            }
        };
        let polled = Pin::new(body).poll_frame(cx);
        upload.is_waiting_for_client.store(polled.is_pending(), Relaxed);
        let Poll::Ready(frame) = polled else { return Poll::Pending };
        upload.record_progress();
        let has_ended = match &frame {
            None => true,
            Some(Ok(_)) => this.body.as_ref().is_some_and(Body::is_end_stream),
            Some(Err(_)) => false,
        };
        if has_ended {
            upload.has_ended.store(true, Relaxed);
        }
        Poll::Ready(frame.map(|frame| {
            frame.map_err(|error| {
                let message = error.to_string();
                let _ = upload.failed.set(error.into());
                message.into()
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        match (&self.upload, &self.body) {
            (None, _) => true,
            (_, Some(body)) => body.is_end_stream(),
            _ => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| self.size, Body::size_hint)
    }
}
