//! `--ui`: the report of a run while it goes on.
//!
//! ```text
//! events of the run -> a bounded channel -> the thread of the page -> GET / and GET /events (server-sent events)
//! ```
//!
//! No measurement waits for the page: a second that finds the channel full is missing in the plots until its measurement ends. Between
//! measurements the run waits until the channel has room. A connection lives for a minute at most, and `EventSource` opens it again
//! where it was.

use std::{
    convert::Infallible,
    fmt::Write as _,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, stream};
use http::{HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{Either, Full, StreamBody};
use hyper::body::Frame;
use stockade_http::server::{self, Connections, ServerThread};
use stockade_model::time::{Live, Runtime as _, before};
use stockade_record::{
    progress::RunObserver,
    report::html::live::{Change, LiveEvent, LiveFeed, LivePage},
};
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
};

use super::{Access, HTML, LIMITS, UiError, harden, parameter};
use crate::{
    progress::message,
    telemetry::{lower_priority, unix_nanos_now},
};

/// Events that wait for the thread of the page.
const EVENTS_MAX: usize = 1_024;
/// How long a finished run waits for browsers to fetch the report.
const LAST_PAGE_WAIT: Duration = Duration::from_secs(10);

type Events = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;
type PageBody = Either<Full<Bytes>, StreamBody<Events>>;

/// The page of a run in progress. When it is dropped, the browsers that follow it get the finished report first.
pub struct LiveUi {
    events: mpsc::Sender<LiveEvent>,
    _thread: ServerThread,
}

impl LiveUi {
    /// Serves the page of a run at this address, which is named on standard error.
    pub fn start(address: SocketAddr, title: &str) -> Result<Self, UiError> {
        let listener = server::bind(address).map_err(|error| UiError::Listen { address, error })?;
        let address = listener.local_addr().map_err(UiError::Serve)?;
        let access = Access::of(address);
        message(&format!("page: {}", access.url(address)));
        let (events, receiver) = mpsc::channel(EVENTS_MAX);
        // Later than each change of an earlier run.
        let page = LivePage::new(title, unix_nanos_now() / 1_000_000);
        let server = PageServer {
            number: watch::Sender::new(page.number()),
            page: Arc::new(Mutex::new(page)),
            last_pages: watch::Sender::new(0),
            access,
        };
        let thread = ServerThread::run("ui", move |stopped| {
            lower_priority();
            let listener = TcpListener::from_std(listener)?;
            Ok::<_, io::Error>(async move { follow(&listener, receiver, stopped, server).await })
        });
        Ok(Self { events, _thread: thread.map_err(UiError::Serve)? })
    }

    /// Sends the events of the run to the page.
    pub fn observer(&self) -> impl RunObserver + use<> {
        let events = self.events.clone();
        LiveFeed::new(move |event| {
            // A page that has ended needs no events.
            let _ = match event {
                LiveEvent::Second(..) => events.try_send(event).is_ok(),
                event => events.blocking_send(event).is_ok(),
            };
        })
    }
}

/// Serves the page until the run has ended, and the browsers that follow it have the report.
async fn follow(
    listener: &TcpListener,
    mut events: mpsc::Receiver<LiveEvent>,
    mut stopped: watch::Receiver<bool>,
    server: PageServer,
) {
    let time = Live::new();
    let respond = {
        let server = server.clone();
        move |request: Request<_>| {
            let response = server.respond(&request);
            async move { response }
        }
    };
    let connections = Connections::within(LIMITS);
    let serving = server::serve(listener, &connections, &time, respond);
    let following = async {
        let mut streams = 0;
        loop {
            // Events that were sent before the end come first.
            let event = tokio::select! {
                biased;
                event = events.recv() => event,
                _ = stopped.wait_for(|stopped| *stopped) => None,
            };
            let Some(event) = event else { break };
            let number = {
                let mut page = server.page();
                page.on(event);
                page.number()
            };
            // Each stream ends with the last change, and then its browser fetches the report.
            streams = server.number.receiver_count();
            server.number.send_replace(number);
        }
        let have_all = async {
            let mut served = server.last_pages.subscribe();
            let _ = served.wait_for(|served| *served >= streams).await;
            connections.ended().await;
        };
        if server.page().is_finished() {
            let _ = before(&time, time.now() + LAST_PAGE_WAIT, have_all).await;
        }
    };
    tokio::select! {
        () = serving => {}
        () = following => {}
    }
}

/// Responds with the page and its changes.
#[derive(Clone)]
struct PageServer {
    page: Arc<Mutex<LivePage>>,
    /// Of the last change. Each stream of events has a receiver.
    number: watch::Sender<u64>,
    /// How often the finished report was sent.
    last_pages: watch::Sender<usize>,
    access: Access,
}

impl PageServer {
    fn page(&self) -> MutexGuard<'_, LivePage> {
        self.page.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn respond<B>(&self, request: &Request<B>) -> Response<PageBody> {
        let mut response = match self.access.refusal(request) {
            Some(refused) => refused.map(Either::Left),
            None => match request.uri().path() {
                "/" => self.whole(parameter(request, "end").is_some()),
                "/events" => self.events(request),
                _ => server::text(StatusCode::NOT_FOUND, "the page is at /\n").map(Either::Left),
            },
        };
        harden(response.headers_mut());
        response
    }

    /// The page. `is_last`: the browser has the last change.
    fn whole(&self, is_last: bool) -> Response<PageBody> {
        let mut page = self.page();
        let html = page.html();
        if is_last && page.is_finished() {
            self.last_pages.send_modify(|served| *served += 1);
        }
        let mut response = Response::new(Either::Left(Full::new(Bytes::from_owner(Arc::<[u8]>::from(html)))));
        response.headers_mut().insert(CONTENT_TYPE, HTML);
        response
    }

    /// The changes after the one that the browser has.
    fn events<B>(&self, request: &Request<B>) -> Response<PageBody> {
        let last = request.headers().get("last-event-id").and_then(|id| id.to_str().ok());
        let after =
            last.or_else(|| parameter(request, "after")).and_then(|number| number.parse().ok()).unwrap_or(0);
        let changes =
            Changes { server: self.clone(), changed: self.number.subscribe(), after, is_first: true };
        let frames = stream::unfold(Some(changes), |changes| async {
            let (text, changes) = changes?.next().await?;
            Some((Ok(Frame::data(Bytes::from(text))), changes))
        });
        let mut response = Response::new(Either::Right(StreamBody::new(Box::pin(frames) as Events)));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        response
    }
}

/// The changes that a stream has still to send. It ends with its connection.
struct Changes {
    server: PageServer,
    changed: watch::Receiver<u64>,
    after: u64,
    is_first: bool,
}

impl Changes {
    /// The next changes as server-sent events, and the stream after them; `None` after the last change. They are read when the
    /// connection takes them: a slow one has nothing waiting.
    async fn next(mut self) -> Option<(String, Option<Self>)> {
        // The connection is opened again after this many milliseconds.
        let mut text = if self.is_first { "retry: 200\n\n".to_owned() } else { String::new() };
        self.is_first = false;
        let mut is_last = false;
        loop {
            for Change { number, kind, data } in self.server.page().changes_after(self.after) {
                let _ = write!(text, "id: {number}\nevent: {kind}\ndata: {data}\n\n");
                self.after = number;
                is_last = kind == "end";
            }
            if !text.is_empty() {
                return Some((text, (!is_last).then_some(self)));
            }
            let after = self.after;
            self.changed.wait_for(|number| *number != after).await.ok()?;
        }
    }
}
