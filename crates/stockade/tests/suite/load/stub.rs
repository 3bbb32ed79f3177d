//! Servers that record their requests.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener},
    os::unix::net::UnixListener,
    path::Path,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread,
};

use crate::running::PATIENCE;

/// A received request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The request line, the headers and the empty line.
    pub head: String,
    pub body: String,
}

/// The bytes of the response to a request. Empty: the server never responds.
type Answers = Arc<dyn Fn(&Request) -> Vec<u8> + Send + Sync>;

/// An HTTP/1.1 server that runs until the test ends.
pub struct Stub {
    /// Unspecified (0.0.0.0:0) for a Unix socket.
    pub address: SocketAddr,
    requests: Receiver<Request>,
}

impl Stub {
    /// Listens on a free TCP port.
    pub fn new(answers: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        let (sender, requests) = mpsc::channel();
        let answers: Answers = Arc::new(answers);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (answers, sender) = (Arc::clone(&answers), sender.clone());
                let reads = connection.try_clone().expect("a second handle");
                thread::spawn(move || serve(reads, connection, &answers, &sender));
            }
        });
        Self { address, requests }
    }

    /// Listens on a Unix socket at this path.
    pub fn at(path: &Path, answers: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = UnixListener::bind(path).expect("an unused path");
        let (sender, requests) = mpsc::channel();
        let answers: Answers = Arc::new(answers);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (answers, sender) = (Arc::clone(&answers), sender.clone());
                let reads = connection.try_clone().expect("a second handle");
                thread::spawn(move || serve(reads, connection, &answers, &sender));
            }
        });
        Self { address: ([0, 0, 0, 0], 0).into(), requests }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Waits for the next request.
    #[track_caller]
    pub fn next(&self) -> Request {
        self.requests.recv_timeout(PATIENCE).expect("a request")
    }

    /// The requests since the last call. A request is in the list before its response is sent.
    pub fn all(&self) -> Vec<Request> {
        self.requests.try_iter().collect()
    }
}

impl Request {
    /// The target in the request line.
    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// A header's values.
    pub fn header(&self, name: &str) -> Vec<&str> {
        let pairs = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        pairs.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }
}

fn serve(reads: impl Read, mut writes: impl Write, answers: &Answers, sender: &Sender<Request>) {
    let mut reads = BufReader::new(reads);
    while let Some(request) = request(&mut reads) {
        let answer = answers(&request);
        // The receiver is gone once the test has ended.
        let _ = sender.send(request);
        if writes.write_all(&answer).is_err() {
            return;
        }
    }
}

/// The next request; `None` at the end of the connection.
fn request(reads: &mut impl BufRead) -> Option<Request> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reads.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let mut request = Request { head, body: String::new() };
    let length =
        request.header("content-length").first().map_or(0, |length| length.parse().expect("a number"));
    reads.take(length).read_to_string(&mut request.body).ok()?;
    Some(request)
}

/// A response with this status line, these headers and this body.
pub fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// A response with status 200.
pub fn ok(body: &str) -> Vec<u8> {
    answer("200 OK", "", body)
}
