//! A connection of hyper whose reads the scanner follows, as those of a client are ([`InspectedStream`]).
//!
//! [`InspectedStream`]: super::super::stream::InspectedStream

use std::{
    cell::RefCell,
    convert::Infallible,
    future::Future,
    io,
    pin::{Pin, pin},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header::CONNECTION};
use http_body::Body;
use http_body_util::{BodyExt, Empty};
use hyper::{
    body::Incoming,
    rt::{Read, ReadBufCursor, Write},
    server::conn::http1,
    service::service_fn,
};

use super::{HEAD_BYTES_MAX, INPUT_BYTES_MAX, Requests};
use crate::frontend::{head, scan::FramingScanner};

/// A request that hyper has parsed and the scanner has accepted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Message {
    /// How many bytes hyper had read.
    head_end: usize,
    /// Likewise; `None`: the body is incomplete or malformed.
    end: Option<usize>,
    body: Vec<u8>,
}

/// The states of hyper and of the scanner on the same bytes.
#[derive(Debug, Default)]
struct HyperConnection {
    /// Bytes that hyper has read.
    read: usize,
    /// Heads that the scanner has accepted.
    heads_accepted: usize,
    /// True if the scanner rejects the bytes.
    is_rejecting: bool,
    heads_parsed: usize,
    messages: Vec<Message>,
}

/// Compares the requests that pass with those of the whole input.
pub(super) fn check(bytes: &[u8], step: usize, expected: &Requests) {
    let (exact, is_open) = serve(bytes, 1);
    for (at, message) in exact.messages.iter().enumerate() {
        assert_eq!(Some(&message.head_end), expected.head_ends.get(at), "the end of head {at}");
        // hyper may read a byte of the next head before the body's reader learns of the end.
        match (message.end, expected.ends.get(at)) {
            (None, _) => {}
            (Some(read), Some(end)) => assert!((*end..=end + 1).contains(&read), "the end of message {at}"),
            (Some(_), None) => panic!("message {at} is incomplete for the scanner"),
        }
        assert!(
            message.end.is_some() || !is_open || expected.ends.get(at).is_none(),
            "message {at} has no end"
        );
        let body = &expected.bodies[at];
        assert!(body.starts_with(&message.body), "the body of message {at}: {message:?}");
        assert!(message.end.is_none() || *body == message.body, "the body of message {at}: {message:?}");
    }
    if is_open {
        assert_eq!(exact.messages.len(), expected.head_ends.len(), "hyper waits for a head that has arrived");
    }
    for step in [step, INPUT_BYTES_MAX] {
        let (other, _) = serve(bytes, step);
        let bodies = |connection: &HyperConnection| -> Vec<_> {
            let complete = connection.messages.iter().filter(|message| message.end.is_some());
            complete.map(|message| message.body.clone()).collect()
        };
        assert_eq!(bodies(&other), bodies(&exact), "in reads of {step} bytes");
    }
}

/// Serves a client that sends these bytes, and no end. True: the connection is still open.
fn serve(bytes: &[u8], step: usize) -> (HyperConnection, bool) {
    let connection = Rc::new(RefCell::new(HyperConnection::default()));
    let scanner = FramingScanner::new(HEAD_BYTES_MAX);
    let input =
        Input { bytes: bytes.to_vec(), step, scanner, fault: None, connection: Rc::clone(&connection) };
    let service = service_fn(|request| respond(request, Rc::clone(&connection)));
    let mut builder = http1::Builder::new();
    builder.half_close(false).header_read_timeout(None).max_header_size(HEAD_BYTES_MAX).max_buf_size(65_536);
    let is_open = {
        let mut served = pin!(builder.serve_connection(input, service));
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut is_open = true;
        while is_open && woken.0.swap(false, Relaxed) {
            is_open = served.as_mut().poll(&mut Context::from_waker(&waker)).is_pending();
        }
        is_open
    };
    let connection = std::mem::take(&mut *connection.borrow_mut());
    (connection, is_open)
}

/// hyper calls this as soon as it has parsed a head.
fn respond(
    request: Request<Incoming>,
    connection: Rc<RefCell<HyperConnection>>,
) -> impl Future<Output = Result<Response<Empty<Bytes>>, Infallible>> {
    let number = {
        let mut connection = connection.borrow_mut();
        let number = connection.heads_parsed;
        connection.heads_parsed += 1;
        let is_accepted = number < connection.heads_accepted;
        assert!(
            is_accepted || connection.is_rejecting,
            "hyper has parsed a head that the scanner has not read"
        );
        let head_end = connection.read;
        connection.messages.extend(is_accepted.then(|| Message { head_end, ..Message::default() }));
        is_accepted.then_some(number)
    };
    read_body(request, number, connection)
}

/// Rejects a request without a number.
async fn read_body(
    request: Request<Incoming>,
    number: Option<usize>,
    connection: Rc<RefCell<HyperConnection>>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let mut response = Response::new(Empty::new());
    let Some(number) = number else {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        return Ok(response);
    };
    check_head(&request);
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Ok(response) };
        if let Some(data) = frame.data_ref() {
            connection.borrow_mut().messages[number].body.extend_from_slice(data);
        }
    }
    let mut connection = connection.borrow_mut();
    let read = connection.read;
    connection.messages[number].end = Some(read);
    Ok(response)
}

/// A head that passes has one host and at most one length, and a target that is a path or `*`.
fn check_head<B: Body>(request: &Request<B>) {
    if head::check(request, 100).is_err() {
        return;
    }
    let count = |name: &str| request.headers().get_all(name).iter().count();
    assert!(
        count("host") <= 1 && count("content-length") + count("transfer-encoding") <= 1,
        "{:?}",
        request.headers()
    );
    let path = request.uri().path();
    assert!(path.starts_with('/') || path == "*", "{path}");
    let host = request.headers().get("host").map(|host| host.to_str().expect("a host is ASCII"));
    let is_plain = |host: &str| {
        !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || "/@?#\\%,".contains(c))
    };
    assert!(host.is_none_or(is_plain), "{host:?}");
}

/// Bytes of a client in reads of `step`, which the scanner sees first.
struct Input {
    bytes: Vec<u8>,
    step: usize,
    scanner: FramingScanner,
    /// A malformed body.
    fault: Option<&'static str>,
    connection: Rc<RefCell<HyperConnection>>,
}

impl Read for Input {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(reason) = this.fault {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, reason)));
        }
        let mut connection = this.connection.borrow_mut();
        let left = &this.bytes[connection.read..];
        let mut part = &left[..left.len().min(this.step).min(buffer.remaining())];
        if part.is_empty() {
            return Poll::Pending;
        }
        let scanned = this.scanner.feed(part);
        connection.heads_accepted = usize::try_from(this.scanner.heads_accepted()).expect("a small number");
        connection.is_rejecting = this.scanner.rejection().is_some();
        if let Err((valid, rejection)) = scanned {
            this.fault = Some(rejection.reason);
            part = &part[..valid];
            if part.is_empty() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, rejection.reason)));
            }
        }
        buffer.put_slice(part);
        connection.read += part.len();
        Poll::Ready(Ok(()))
    }
}

/// Discards the responses.
impl Write for Input {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Notes that hyper wants to be polled again.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}
