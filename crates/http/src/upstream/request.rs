//! A request that can be sent again, as long as what was read of its body is kept.

use std::{
    error::Error,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Uri, Version,
    header::{CONTENT_LENGTH, HOST},
    request::Parts,
    uri::Authority,
};
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

/// As much of a body is kept until the response, to be sent again.
const KEPT_BYTES_MAX: usize = 64 << 10;

pub(super) struct UploadState {
    content: Mutex<UploadContent>,
    /// True if the connection of this attempt has taken the last byte.
    is_fully_taken: AtomicBool,
    /// The last poll was pending: the client has to send more.
    is_waiting_for_client: AtomicBool,
    /// Last time that the client sent something, in nanoseconds.
    progress_at: AtomicU64,
    failed: OnceLock<Arc<dyn Error + Send + Sync>>,
    clock: UpstreamClock,
}

struct UploadContent {
    body: UnsyncBoxBody<Bytes, BoxError>,
    /// Frames that were read.
    frames: usize,
    /// True if the body was read to its end.
    has_ended: bool,
    /// All of these frames. `None`: they are longer than [`KEPT_BYTES_MAX`], have trailers, or are not needed any more.
    kept: Option<Vec<Bytes>>,
    kept_bytes: usize,
    /// The number of the connection that reads.
    attempt: u32,
}

/// The body as a connection reads it.
pub(super) struct OutgoingBody {
    upload: Option<Arc<UploadState>>,
    attempt: u32,
    /// Frames that this connection has read.
    frames: usize,
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
                content: Mutex::new(UploadContent {
                    body: body.map_err(Into::into).boxed_unsync(),
                    frames: 0,
                    has_ended: false,
                    kept: Some(Vec::new()),
                    kept_bytes: 0,
                    attempt: 0,
                }),
                is_fully_taken: AtomicBool::new(false),
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
            // Without a length some servers wait for content, or answer 411 (RFC 9110, 8.6).
            let anticipates_content = matches!(*method, Method::POST | Method::PUT | Method::PATCH);
            if self.upload.is_none() && anticipates_content {
                request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(0));
            }
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

    /// The body from its beginning. Those of earlier connections end.
    fn outgoing(&self) -> OutgoingBody {
        let attempt = self.upload.as_ref().map_or(0, |upload| upload.begin_attempt());
        OutgoingBody { upload: self.upload.clone(), attempt, frames: 0, size: self.size }
    }

    /// True if it may be sent again although the origin may have processed it (RFC 9110, 9.2.2).
    pub(super) fn is_repeatable(&self) -> bool {
        self.head.method.is_idempotent() && self.is_whole()
    }

    /// True if its body has not been read, or all that was read is kept.
    pub(super) fn is_whole(&self) -> bool {
        self.upload.as_ref().is_none_or(|upload| upload.content().kept.is_some())
    }

    /// True if its body, if it has one, may be short enough to be kept until the response.
    pub(super) fn fits_kept(&self) -> bool {
        self.upload.is_none() || self.size.lower() <= KEPT_BYTES_MAX as u64
    }

    /// It is not sent again.
    pub(super) fn drop_kept(&self) {
        let kept = self.upload.as_ref().map(|upload| upload.content().kept.take());
        drop(kept);
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

    /// The deadline for the response head of a request sent at `sent` whose bytes the origin last took at `written`; and
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
        if upload.is_fully_taken() {
            return (moved + head, late);
        }
        if upload.is_waiting_for_client.load(Relaxed) {
            return (moved + idle, UpstreamError::RequestStalled { after: idle });
        }
        (moved + idle, UpstreamError::IdleTimeout { after: idle })
    }
}

impl UploadState {
    fn content(&self) -> MutexGuard<'_, UploadContent> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_attempt(&self) -> u32 {
        let mut content = self.content();
        content.attempt += 1;
        self.is_fully_taken.store(false, Relaxed);
        content.attempt
    }

    /// True if the connection of this attempt has taken the last byte of the body.
    pub(super) fn is_fully_taken(&self) -> bool {
        self.is_fully_taken.load(Relaxed)
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
        let mut content = upload.content();
        if content.attempt != this.attempt {
            return Poll::Ready(Some(Err("the request is sent on another connection".into())));
        }
        let polled = content.poll_frame(this.frames, cx);
        upload.is_waiting_for_client.store(polled.is_pending(), Relaxed);
        let Poll::Ready(frame) = polled else { return Poll::Pending };
        upload.record_progress();
        this.frames += usize::from(frame.is_some());
        if content.has_ended && this.frames >= content.frames {
            upload.is_fully_taken.store(true, Relaxed);
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
        self.upload.as_ref().is_none_or(|upload| {
            let content = upload.content();
            content.has_ended && self.frames >= content.frames
        })
    }

    /// Of the whole body.
    fn size_hint(&self) -> SizeHint {
        self.size
    }
}

impl UploadContent {
    /// The frame at this index: kept, or the next one of the body.
    fn poll_frame(
        &mut self,
        index: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if index < self.frames {
            let kept = self.kept.as_ref().and_then(|kept| kept.get(index).cloned());
            let frame = kept.map(Frame::data).ok_or_else(|| "the body has already been read".into());
            return Poll::Ready(Some(frame));
        }
        if self.has_ended {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                self.frames += 1;
                self.keep(frame);
                self.has_ended = self.body.is_end_stream();
            }
            Some(Err(_)) => self.kept = None,
            None => self.has_ended = true,
        }
        Poll::Ready(frame)
    }

    /// Keeps the bytes of a frame, which the connection shares.
    fn keep(&mut self, frame: &Frame<Bytes>) {
        let Some(kept) = &mut self.kept else { return };
        match frame.data_ref().filter(|data| self.kept_bytes + data.len() <= KEPT_BYTES_MAX) {
            Some(data) => {
                self.kept_bytes += data.len();
                kept.push(data.clone());
            }
            None => self.kept = None,
        }
    }
}
