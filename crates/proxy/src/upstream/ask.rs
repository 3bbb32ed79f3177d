//! A request on its way: it can be sent again as long as nobody has begun to read its body.

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
    clock::Clock,
    error::UpstreamError,
    settings::{HostHeader, OriginUrl},
};

type BoxError = Box<dyn Error + Send + Sync>;

/// What is asked.
pub(super) struct Ask {
    head: Parts,
    /// None: it has no body.
    upload: Option<Arc<Upload>>,
    size: SizeHint,
}

/// The body of a request, and how it is doing.
pub(super) struct Upload {
    /// Until somebody begins to read it.
    body: Mutex<Option<UnsyncBoxBody<Bytes, BoxError>>>,
    has_begun: AtomicBool,
    has_ended: AtomicBool,
    /// The last word was ours: nothing comes from the client.
    is_clients_turn: AtomicBool,
    /// When something came from the client last.
    moved_at: AtomicU64,
    failed: OnceLock<Arc<dyn Error + Send + Sync>>,
    clock: Clock,
}

/// The body as a connection reads it.
pub(super) struct Outgoing {
    upload: Option<Arc<Upload>>,
    /// Once it is read.
    body: Option<UnsyncBoxBody<Bytes, BoxError>>,
    size: SizeHint,
}

impl Ask {
    pub(super) fn new<B>(request: Request<B>, clock: &Clock) -> Result<Self, UpstreamError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (head, body) = request.into_parts();
        if head.method == Method::CONNECT {
            return Err(UpstreamError::Unsendable { reason: "CONNECT is for tunnels".into() });
        }
        let size = body.size_hint();
        let upload = (!body.is_end_stream()).then(|| {
            Arc::new(Upload {
                body: Mutex::new(Some(body.map_err(Into::into).boxed_unsync())),
                has_begun: AtomicBool::new(false),
                has_ended: AtomicBool::new(false),
                is_clients_turn: AtomicBool::new(false),
                moved_at: AtomicU64::new(clock.now().as_nanos()),
                failed: OnceLock::new(),
                clock: clock.clone(),
            })
        });
        Ok(Self { head, upload, size })
    }

    /// The request as this place wants it.
    pub(super) fn request(
        &self,
        url: &OriginUrl,
        host: HostHeader,
        version: Version,
    ) -> Result<Request<Outgoing>, UpstreamError> {
        let Parts { method, uri, headers, .. } = &self.head;
        let unsendable = |reason: &str| UpstreamError::Unsendable { reason: reason.into() };
        let target = url
            .target(uri.path_and_query())
            .ok_or_else(|| unsendable("its path is none below the origin's"))?;
        let host = self.host(url, host).ok_or_else(|| unsendable("its host is none"))?;
        let mut request = Request::new(self.outgoing());
        *request.method_mut() = method.clone();
        *request.version_mut() = version;
        *request.headers_mut() = headers.clone();
        if version == Version::HTTP_2 {
            request.headers_mut().remove(HOST);
            let authority =
                Authority::try_from(host.as_bytes()).map_err(|_| unsendable("its host is none"))?;
            let scheme = if url.is_encrypted { "https" } else { "http" };
            let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query(target).build();
            *request.uri_mut() = uri.map_err(|error| unsendable(&error.to_string()))?;
        } else {
            request.headers_mut().insert(HOST, host);
            *request.uri_mut() = target.into();
        }
        Ok(request)
    }

    fn host(&self, url: &OriginUrl, wanted: HostHeader) -> Option<HeaderValue> {
        let clients = || {
            let authority = self.head.uri.authority();
            let of_uri = authority.and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
            of_uri.or_else(|| self.head.headers.get(HOST).cloned())
        };
        match wanted {
            HostHeader::Client => clients().or_else(|| url.host_header()),
            HostHeader::Origin => url.host_header(),
        }
    }

    fn outgoing(&self) -> Outgoing {
        Outgoing { upload: self.upload.clone(), body: None, size: self.size }
    }

    /// Whether it may be sent once more although somebody may have begun to work on it.
    pub(super) fn may_be_repeated(&self) -> bool {
        self.head.method.is_idempotent() && self.is_whole()
    }

    /// Whether nothing of its body is gone.
    pub(super) fn is_whole(&self) -> bool {
        self.upload.as_ref().is_none_or(|upload| !upload.has_begun.load(Relaxed))
    }

    pub(super) fn is_head(&self) -> bool {
        self.head.method == Method::HEAD
    }

    /// What is wrong with the client's part, if that is what is wrong.
    pub(super) fn failure(&self) -> Option<UpstreamError> {
        let error = self.upload.as_ref()?.failed.get()?;
        Some(UpstreamError::RequestBody { error: Arc::clone(error) })
    }

    /// Until when to wait for the head of an answer to a request that began at `sent`, with the last byte taken from us
    /// at `written`; and what it is when that has passed.
    pub(super) fn deadline(
        &self,
        sent: Time,
        written: Time,
        head: Duration,
        idle: Duration,
    ) -> (Time, UpstreamError) {
        let late = UpstreamError::HeadTimeout { after: head };
        let Some(upload) = &self.upload else { return (sent.max(written) + head, late) };
        let moved = Time::from_nanos(upload.moved_at.load(Relaxed)).max(sent).max(written);
        if upload.has_ended.load(Relaxed) {
            return (moved + head, late);
        }
        if upload.is_clients_turn.load(Relaxed) {
            return (moved + idle, UpstreamError::RequestStalled { after: idle });
        }
        (moved + idle, UpstreamError::IdleTimeout { after: idle })
    }
}

impl Upload {
    fn body(&self) -> MutexGuard<'_, Option<UnsyncBoxBody<Bytes, BoxError>>> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moved(&self) {
        self.moved_at.store(self.clock.now().as_nanos(), Relaxed);
    }
}

impl Outgoing {
    /// Some of it has been taken from us.
    pub(super) fn moved(&self) {
        self.upload.iter().for_each(|upload| upload.moved());
    }
}

impl Body for Outgoing {
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
                upload.has_begun.store(true, Relaxed);
                match upload.body().take() {
                    Some(body) => this.body.insert(body),
                    None => return Poll::Ready(Some(Err("it is gone".into()))),
                }
            }
        };
        let polled = Pin::new(body).poll_frame(cx);
        upload.is_clients_turn.store(polled.is_pending(), Relaxed);
        let Poll::Ready(frame) = polled else { return Poll::Pending };
        upload.moved();
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
                let told = error.to_string();
                let _ = upload.failed.set(error.into());
                told.into()
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
