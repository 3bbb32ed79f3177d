//! `--ui`: the report of a run while it goes on.
//!
//! ```text
//! events of the run -> a bounded channel -> the thread of the page -> GET / and GET /events (server-sent events)
//! ```
//!
//! The run waits for nothing here: a second that finds the channel full is missing in the plots until its measurement ends. A
//! connection lives for a minute at most, and `EventSource` opens it again where it was.

use std::{
    convert::Infallible,
    fmt::Write as _,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{Either, Full, channel::Channel};
use stockade_lab::{
    report::html::live::{Change, LiveEvent, LiveFeed, LivePage},
    run::RunObserver,
};
use stockade_model::time::{Live, Runtime, before};
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
};

use super::{Access, HTML, UiError, harden, parameter};
use crate::{
    listen::{self, Bounds, Connections, refusal},
    progress::message,
};

const BOUNDS: Bounds = Bounds { connections_max: 32, connection_time_max: Duration::from_mins(1) };
/// Events that wait for the thread of the page.
const EVENTS_MAX: usize = 1_024;
/// Changes that wait for a reader.
const READER_CHANGES_MAX: usize = 16;
/// How long a finished run waits for its readers to fetch the report.
const LAST_PAGE_WAIT: Duration = Duration::from_secs(3);
type PageBody = Either<Full<Bytes>, Channel<Bytes, Infallible>>;

/// The page of a run in progress. When it is dropped, its readers get the finished report first.
pub struct LiveUi {
    events: mpsc::Sender<LiveEvent>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl LiveUi {
    /// Serves the page of a run at this address, which is named on standard error.
    pub fn start(address: SocketAddr, title: &str) -> Result<Self, UiError> {
        let listener = listen::bind(address).map_err(|error| UiError::Listen { address, error })?;
        let address = listener.local_addr().map_err(UiError::Thread)?;
        let access = Access::of(address);
        message(&format!("page: {}", access.url(address)));
        let (events, receiver) = mpsc::channel(EVENTS_MAX);
        let (stop, stopped) = watch::channel(false);
        let reader = Reader {
            page: Arc::new(Mutex::new(LivePage::new(title))),
            number: watch::Sender::new(0),
            last_pages: watch::Sender::new(0),
            access,
        };
        let runtime = listen::runtime;
        let run = move || {
            let Ok(runtime) = runtime() else { return };
            runtime.block_on(async {
                if let Ok(listener) = TcpListener::from_std(listener) {
                    follow(&listener, receiver, stopped, reader).await;
                }
            });
        };
        let thread = thread::Builder::new().name("ui".to_owned()).spawn(run).map_err(UiError::Thread)?;
        Ok(Self { events, stop, thread: Some(thread) })
    }

    /// Sends the events of the run to the page.
    pub fn observer(&self, title: &str) -> impl RunObserver + use<> {
        let events = self.events.clone();
        LiveFeed::new(title, move |event| {
            // A page that has ended needs no events.
            let _ = match event {
                LiveEvent::Second(..) => events.try_send(event).is_ok(),
                event => events.blocking_send(event).is_ok(),
            };
        })
    }
}

impl Drop for LiveUi {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic was already printed by the panic hook.
            let _ = thread.join();
        }
    }
}

/// Serves the page until the run has ended, and its readers have the report.
async fn follow(
    listener: &TcpListener,
    mut events: mpsc::Receiver<LiveEvent>,
    mut stopped: watch::Receiver<bool>,
    reader: Reader,
) {
    let time = Live::new();
    let respond = {
        let (reader, time) = (reader.clone(), time.clone());
        move |request: Request<_>| {
            let response = reader.respond(&request, &time);
            async move { response }
        }
    };
    let connections = Connections::within(BOUNDS);
    let serving = listen::serve(listener, &connections, &time, respond);
    let following = async {
        let mut readers = 0;
        loop {
            // What was sent before the end comes first.
            let event = tokio::select! {
                biased;
                event = events.recv() => event,
                _ = stopped.wait_for(|stopped| *stopped) => None,
            };
            let Some(event) = event else { break };
            let number = {
                let mut page = reader.page();
                page.on(event);
                page.number()
            };
            // Their streams end with the last change, and then they fetch the report.
            readers = reader.number.receiver_count();
            reader.number.send_replace(number);
        }
        let have_all = async {
            let mut served = reader.last_pages.subscribe();
            let _ = served.wait_for(|served| *served >= readers).await;
            connections.ended().await;
        };
        if reader.page().is_finished() {
            let _ = before(&time, time.now() + LAST_PAGE_WAIT, have_all).await;
        }
    };
    tokio::select! {
        () = serving => {}
        () = following => {}
    }
}

/// Responds to the readers of the page.
#[derive(Clone)]
struct Reader {
    page: Arc<Mutex<LivePage>>,
    /// Of the last change. Each stream of events has a receiver.
    number: watch::Sender<u64>,
    /// How often the finished report was sent.
    last_pages: watch::Sender<usize>,
    access: Access,
}

impl Reader {
    fn page(&self) -> MutexGuard<'_, LivePage> {
        self.page.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn respond<B>(&self, request: &Request<B>, time: &Live) -> Response<PageBody> {
        let mut response = match self.access.refusal(request) {
            Some(refused) => refused.map(Either::Left),
            None => match request.uri().path() {
                "/" => self.whole(parameter(request, "end").is_some()),
                "/events" => self.events(request, time),
                _ => refusal(StatusCode::NOT_FOUND, "the page is at /\n").map(Either::Left),
            },
        };
        harden(response.headers_mut());
        response
    }

    /// The page. `is_last`: a reader asks for it that has the last change.
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

    /// The changes after the one that the reader has.
    fn events<B>(&self, request: &Request<B>, time: &Live) -> Response<PageBody> {
        let last = request.headers().get("last-event-id").and_then(|id| id.to_str().ok());
        let after =
            last.or_else(|| parameter(request, "after")).and_then(|number| number.parse().ok()).unwrap_or(0);
        let (sender, body) = Channel::new(READER_CHANGES_MAX);
        let (reader, changed) = (self.clone(), self.number.subscribe());
        time.spawn(async move { reader.send_changes(sender, changed, after).await });
        let mut response = Response::new(Either::Right(body));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        response
    }

    /// Sends each change until the reader is gone: a full channel waits for it.
    async fn send_changes(
        self,
        mut to: http_body_util::channel::Sender<Bytes, Infallible>,
        mut changed: watch::Receiver<u64>,
        mut after: u64,
    ) {
        // The connection is opened again after this many milliseconds.
        let mut text = "retry: 200\n\n".to_owned();
        loop {
            let changes = self.page().changes_after(after);
            for Change { number, kind, data } in &changes {
                let _ = write!(text, "id: {number}\nevent: {kind}\ndata: {data}\n\n");
                after = *number;
            }
            let is_last = changes.last().is_some_and(|change| change.kind == "end");
            if !text.is_empty() && to.send_data(Bytes::from(std::mem::take(&mut text))).await.is_err() {
                return;
            }
            if is_last || changed.wait_for(|number| *number != after).await.is_err() {
                return;
            }
        }
    }
}
