//! Hostile clients: the resident memory of the proxy stays bounded.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

use super::{config_without_log, start_proxy};
use crate::{
    running::{PATIENCE, Running},
    support::Sandbox,
};

const MIB: usize = 1 << 20;

/// The resident memory of a process in bytes.
fn resident(proxy: &Running) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", proxy.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its resident memory");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("kB") * 1_024
}

/// A connection that sends one request after the other.
struct Client {
    sent: TcpStream,
    received: BufReader<TcpStream>,
}

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let sent = TcpStream::connect_timeout(&address, PATIENCE).expect("the address is open");
        sent.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
        let received = BufReader::new(sent.try_clone().expect("a descriptor"));
        Self { sent, received }
    }

    /// Sends a GET, and returns the status line. The response has a `Content-Length`.
    fn get(&mut self, path: &str) -> String {
        write!(self.sent, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").expect("a request is sent");
        let (mut status, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            self.received.read_line(&mut line).expect("a line");
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            if status.is_empty() {
                line.clone_into(&mut status);
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                length = value.parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        self.received.read_exact(&mut body).expect("a body");
        status
    }
}

/// Starts an origin that answers each request with a 404 that has neither a lifetime nor a reason not to be stored.
fn origin_of_missing_pages() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut reply = connection.expect("a connection");
            let requests = BufReader::new(reply.try_clone().expect("a descriptor"));
            thread::spawn(move || {
                let ends = requests.split(b'\n').map_while(Result::ok).filter(|line| line == b"\r");
                ends.for_each(|_| {
                    reply
                        .write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                        .expect("the proxy reads");
                });
            });
        }
    });
    address
}

#[test]
fn long_urls_of_missing_pages_leave_no_memory_behind() {
    let sandbox = Sandbox::new();
    let url = format!("http://{}", origin_of_missing_pages());
    let bounds = "[cache]\nlimit = { bytes = \"16MiB\" }\n[bounds]\nhead = \"64KiB\"\n";
    let config = config_without_log(&sandbox, &url, bounds);
    let (proxy, address, _) = start_proxy(&sandbox, &config, &["--threads", "1"]);
    let mut client = Client::connect(address);
    let padding = "x".repeat(56 * 1_024);
    let mut get_missing = |number: usize| {
        let status = client.get(&format!("/missing?{number}{padding}"));
        assert!(status.starts_with("HTTP/1.1 404 "), "{status}");
    };
    (0..100).for_each(&mut get_missing);
    let before = resident(&proxy);
    // 33 MiB of URLs.
    (100..700).for_each(&mut get_missing);
    let grown = resident(&proxy).saturating_sub(before);
    assert!(grown < 12 * MIB, "{} MiB more are resident", grown / MIB);
}
