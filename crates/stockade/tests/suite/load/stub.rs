//! Servers that keep what they are asked.

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

/// A request as it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// From the method to the empty line.
    pub head: String,
    pub body: String,
}

/// What it does with a request: the bytes of an answer. None at all: it never answers.
type Answers = Arc<dyn Fn(&Request) -> Vec<u8> + Send + Sync>;

/// A server with HTTP/1.1, until the test ends.
pub struct Stub {
    /// Of one that listens to TCP.
    pub address: SocketAddr,
    asked: Receiver<Request>,
}

impl Stub {
    /// Answers every request like this.
    pub fn new(answers: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        let (sender, asked) = mpsc::channel();
        let answers: Answers = Arc::new(answers);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (answers, asked) = (Arc::clone(&answers), sender.clone());
                let reads = connection.try_clone().expect("a second handle");
                thread::spawn(move || serve(reads, connection, &answers, &asked));
            }
        });
        Self { address, asked }
    }

    /// The same at a path.
    pub fn at(path: &Path, answers: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = UnixListener::bind(path).expect("a path that nobody has");
        let (sender, asked) = mpsc::channel();
        let answers: Answers = Arc::new(answers);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (answers, asked) = (Arc::clone(&answers), sender.clone());
                let reads = connection.try_clone().expect("a second handle");
                thread::spawn(move || serve(reads, connection, &answers, &asked));
            }
        });
        Self { address: ([0, 0, 0, 0], 0).into(), asked }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The next request, waited for.
    #[track_caller]
    pub fn next(&self) -> Request {
        self.asked.recv_timeout(PATIENCE).expect("a request")
    }

    /// All that it was asked since it was last looked at. What has been answered is among it.
    pub fn all(&self) -> Vec<Request> {
        self.asked.try_iter().collect()
    }
}

impl Request {
    /// The second word of its first line.
    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// A header's values.
    pub fn header(&self, name: &str) -> Vec<&str> {
        let pairs = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        pairs.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }
}

fn serve(reads: impl Read, mut writes: impl Write, answers: &Answers, asked: &Sender<Request>) {
    let mut reads = BufReader::new(reads);
    while let Some(request) = request(&mut reads) {
        let answer = answers(&request);
        // A test that is over does not look any more.
        let _ = asked.send(request);
        if writes.write_all(&answer).is_err() {
            return;
        }
    }
}

/// The next one; none: no more come.
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

/// An answer with this status line, these headers and this body.
pub fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// 200 and a body.
pub fn ok(body: &str) -> Vec<u8> {
    answer("200 OK", "", body)
}
