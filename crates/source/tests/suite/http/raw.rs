//! A server that sends arbitrary bytes.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

/// Runs until the end of the test program.
pub struct Raw {
    port: u16,
    open: Arc<Open>,
}

/// The number of connections: current, peak and total.
#[derive(Default)]
struct Open {
    now: AtomicUsize,
    most: AtomicUsize,
    ever: AtomicUsize,
}

impl Raw {
    /// `answer` receives the target of each request and sends the response. False closes the connection.
    pub fn start(answer: impl Fn(&str, &mut TcpStream) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (answer, open) = (Arc::new(answer), Arc::new(Open::default()));
        let raw = Self { port, open: Arc::clone(&open) };
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, open) = (Arc::clone(&answer), Arc::clone(&open));
                open.ever.fetch_add(1, SeqCst);
                open.most.fetch_max(open.now.fetch_add(1, SeqCst) + 1, SeqCst);
                thread::spawn(move || {
                    serve(&mut stream.unwrap(), &*answer);
                    open.now.fetch_sub(1, SeqCst);
                });
            }
        });
        raw
    }

    /// Responds to each request with these bytes and closes the connection.
    pub fn answering(bytes: &'static str) -> Self {
        Self::start(move |_, stream| {
            stream.write_all(bytes.as_bytes()).unwrap();
            false
        })
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The peak of open connections.
    pub fn connections_max(&self) -> usize {
        self.open.most.load(SeqCst)
    }

    /// The total number of connections.
    pub fn connections(&self) -> usize {
        self.open.ever.load(SeqCst)
    }
}

fn serve(stream: &mut TcpStream, answer: &dyn Fn(&str, &mut TcpStream) -> bool) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    while let Some(Ok(first)) = lines.next() {
        let target = first.split(' ').nth(1).unwrap_or_default().to_owned();
        if lines.by_ref().map_while(Result::ok).all(|line| !line.is_empty()) {
            return;
        }
        if !answer(&target, stream) {
            return;
        }
    }
}

/// A response with a body.
pub fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}
