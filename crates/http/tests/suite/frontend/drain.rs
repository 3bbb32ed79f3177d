//! Drain and drop of a frontend.

use std::{
    io::Read,
    net::TcpStream,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, header::CONTENT_LENGTH};
use http_body_util::Full;
use stockade_http::frontend::{
    ClientBody, ConnectionInfo, DrainSummary, Frontend, FrontendSettings, Handler, HandlerResponse,
    ResponseRecord, SentBody,
};
use tokio::{runtime::Handle, sync::Semaphore};

use crate::frontend::support::{
    SHORT, TestHandler, connect, read_response, read_to_close, send, start, wait_for_stats,
};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const GET_HELD: &[u8] = b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n";
const GET_NEVER: &[u8] = b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn drain_closes_idle_and_finishes_busy_connections() {
    let (frontend, handler) = start(FrontendSettings::default());
    let address = frontend.addresses()[0];
    let (mut idle, mut silent, mut busy) = (connect(address), connect(address), connect(address));
    send(&mut idle, GET);
    assert_eq!(read_response(&mut idle).1, "hello");
    send(&mut busy, GET_HELD);
    wait_for_stats(&frontend, |stats| {
        (stats.requests_received, stats.requests_in_flight, stats.connections) == (2, 1, 3)
    });
    let drained = thread::spawn(|| frontend.drain());
    assert_eq!(read_to_close(&mut idle), "");
    assert_eq!(read_to_close(&mut silent), "");
    // The listener is closed.
    assert!(TcpStream::connect(address).is_err());
    handler.release(1);
    let (head, body) = read_response(&mut busy);
    assert!(head.contains("connection: close") && body == "held", "{head}");
    assert_eq!(read_to_close(&mut busy), "");
    assert_eq!(drained.join().expect("the thread does not panic"), DrainSummary { finished: 1, aborted: 0 });
}

#[test]
fn announced_close_accepts_connections_and_ends_each_with_its_response() {
    let (frontend, handler) = start(FrontendSettings::default());
    let address = frontend.addresses()[0];
    let (mut kept, mut busy) = (connect(address), connect(address));
    send(&mut kept, GET);
    let (head, _) = read_response(&mut kept);
    assert!(!head.contains("connection: close"), "{head}");
    send(&mut busy, GET_HELD);
    wait_for_stats(&frontend, |stats| stats.requests_in_flight == 1);
    frontend.announce_close();
    send(&mut kept, GET);
    let mut new = connect(address);
    send(&mut new, GET);
    handler.release(1);
    for tcp in [&mut kept, &mut busy, &mut new] {
        let (head, _) = read_response(tcp);
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("connection: close"), "{head}");
        assert_eq!(read_to_close(tcp), "");
    }
    assert_eq!(frontend.drain(), DrainSummary { finished: 0, aborted: 0 });
}

#[test]
fn drain_aborts_requests_after_its_timeout() {
    let (frontend, _) = start(FrontendSettings { drain_timeout: SHORT, ..FrontendSettings::default() });
    let mut busy = connect(frontend.addresses()[0]);
    send(&mut busy, GET_NEVER);
    wait_for_stats(&frontend, |stats| stats.requests_in_flight == 1);
    assert_eq!(frontend.drain(), DrainSummary { finished: 0, aborted: 1 });
    assert_eq!(read_to_close(&mut busy), "");
}

/// The kernel has completed these connections; the frontend has not accepted them.
#[test]
fn drain_serves_queued_connections() {
    let (frontend, handler) = start(FrontendSettings::default());
    let address = frontend.addresses()[0];
    let mut clients: Vec<_> = (0..50)
        .map(|_| {
            let mut tcp = connect(address);
            send(&mut tcp, GET);
            tcp
        })
        .collect();
    let summary = frontend.drain();
    assert_eq!(summary.aborted, 0);
    for tcp in &mut clients {
        assert_eq!(read_response(tcp).1, "hello");
    }
    assert_eq!(handler.requests().len(), 50);
}

#[test]
fn drop_aborts_requests_at_once() {
    let (frontend, _) =
        start(FrontendSettings { drain_timeout: Duration::from_hours(1), ..FrontendSettings::default() });
    let mut busy = connect(frontend.addresses()[0]);
    send(&mut busy, GET_NEVER);
    wait_for_stats(&frontend, |stats| stats.requests_in_flight == 1);
    drop(frontend);
    assert_eq!(read_to_close(&mut busy), "");
}

#[test]
fn a_port_is_exclusive_until_the_frontend_stops() {
    let threads = 3.try_into().expect("three is not zero");
    let (frontend, _) = start(FrontendSettings { threads, ..FrontendSettings::default() });
    let address = frontend.addresses()[0];
    let second = FrontendSettings { listen: vec![address], ..FrontendSettings::default() };
    let error = Frontend::start(second.clone(), &TestHandler::new()).err().map(|error| error.to_string());
    assert!(error.as_ref().is_some_and(|text| text.ends_with("another program listens there")), "{error:?}");
    assert_eq!(frontend.drain(), DrainSummary { finished: 0, aborted: 0 });
    let (frontend, _) = start(second);
    let mut tcp = connect(address);
    send(&mut tcp, GET);
    assert_eq!(read_response(&mut tcp).1, "hello");
    drop(frontend);
    assert_eq!(tcp.read(&mut [0]).ok(), Some(0));
}

/// Responds with the name of its thread. `/held` waits for a task of the first thread that had a request.
#[derive(Clone)]
struct TaskOfFirstThread {
    first: Arc<Mutex<Option<Handle>>>,
    gate: Arc<Semaphore>,
}

struct NoRecord;

impl ResponseRecord for NoRecord {
    fn end(&mut self, _: SentBody) {}
}

impl Handler for TaskOfFirstThread {
    type Body = Full<Bytes>;
    type Record = NoRecord;

    fn handle(
        &self,
        request: Request<ClientBody>,
        _: ConnectionInfo,
    ) -> HandlerResponse<Full<Bytes>, NoRecord> {
        let first =
            self.first.lock().expect("no test panics with it").get_or_insert_with(Handle::current).clone();
        let gate = Arc::clone(&self.gate);
        HandlerResponse::Pending(Box::pin(async move {
            let text = if request.uri().path() == "/held" {
                let task = first.spawn(async move { gate.acquire_owned().await.map(drop).is_ok() });
                task.await.map_or_else(|error| error.to_string(), |_| "held".to_owned())
            } else {
                thread::current().name().unwrap_or_default().to_owned()
            };
            let response = Response::builder().header(CONTENT_LENGTH, text.len());
            (response.body(Full::from(text)).expect("a valid response"), NoRecord)
        }))
    }
}

/// Threads share loads and connections to origins.
#[test]
fn drain_keeps_tasks_of_threads_without_requests() {
    let handler = TaskOfFirstThread { first: Arc::default(), gate: Arc::new(Semaphore::new(0)) };
    let threads = 2.try_into().expect("two is not zero");
    let settings = FrontendSettings { threads, ..FrontendSettings::default() };
    let frontend = Frontend::start(settings, &handler).expect("a free port of the loopback");
    let address = frontend.addresses()[0];
    let mut of_first = connect(address);
    send(&mut of_first, GET);
    let first_thread = read_response(&mut of_first).1;
    let mut others = Vec::new();
    let mut of_second = loop {
        let mut tcp = connect(address);
        send(&mut tcp, GET);
        if read_response(&mut tcp).1 != first_thread {
            break tcp;
        }
        others.push(tcp);
    };
    drop(others);
    // A client may have its response before the request is counted as ended.
    wait_for_stats(&frontend, |stats| stats.requests_in_flight == 0);
    send(&mut of_second, GET_HELD);
    wait_for_stats(&frontend, |stats| stats.requests_in_flight == 1);
    let drained = thread::spawn(|| frontend.drain());
    // The first thread has nothing left to do.
    assert_eq!(read_to_close(&mut of_first), "");
    // Without its runtime, the task would end without a permit, and the response would be its error.
    of_second.set_read_timeout(Some(SHORT)).expect("it is not zero");
    assert!(of_second.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
    of_second.set_read_timeout(None).expect("no timeout");
    handler.gate.add_permits(1);
    assert_eq!(read_response(&mut of_second).1, "held");
    assert_eq!(drained.join().expect("the thread does not panic"), DrainSummary { finished: 1, aborted: 0 });
}
