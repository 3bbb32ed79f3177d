//! Is the latency that an origin is told to have the latency that it has?
//!
//! ```text
//! cargo run --release --bin origin_latency -- URL RATE CONNECTIONS SECONDS
//! ```
//!
//! An open loop: requests are due evenly, whatever becomes of those before, each on a connection that is free.
//! What is told is the time from when a request was due to the last byte of its answer. One thread, which never
//! rests: it has to have a core for itself (`taskset`). The first second is not counted.
//!
//! The answer has to have a Content-Length. It is loopback only, and bounded: 20,000 connections, 10 minutes.

use std::{
    collections::VecDeque,
    env,
    error::Error,
    io::{ErrorKind, Read, Write},
    net::SocketAddr,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token, net::TcpStream};

struct Connection {
    tcp: TcpStream,
    /// When the request on it was due.
    due: Option<Instant>,
    /// Bytes of the answer that are still to come; none until its head is there.
    left: Option<usize>,
    head: Vec<u8>,
}

#[derive(Default)]
struct Told {
    answers: u64,
    others: u64,
    broken: u64,
    /// Requests that were due while no connection was free.
    unsent: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [url, rate, connections, seconds] = args.as_slice() else {
        return Err("write: origin_latency http://127.0.0.1:8080/path RATE CONNECTIONS SECONDS".into());
    };
    let (rate, count): (f64, usize) = (rate.parse()?, connections.parse::<usize>()?.min(20_000));
    let lasts = Duration::from_secs(seconds.parse::<u64>()?.min(600));
    let (host, path) = url.strip_prefix("http://").and_then(|url| url.split_once('/')).ok_or("no such URL")?;
    let address: SocketAddr = host.parse()?;
    if !address.ip().is_loopback() {
        return Err("only the loopback is asked".into());
    }
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
    let mut poll = Poll::new()?;
    let mut all = open(address, count, &poll)?;
    println!("{count} connections are open");
    let (mut told, mut histogram) = (Told::default(), Histogram::<u64>::new(3)?);
    let mut free: VecDeque<usize> = (0..count).collect();
    let mut events = Events::with_capacity(4_096);
    let began = Instant::now();
    let warm = began + Duration::from_secs(1);
    let ends = began + lasts;
    let mut sent = 0_u64;
    // Until the last answer is there, or for five seconds more.
    while Instant::now() < ends + Duration::from_secs(5) {
        loop {
            let due = began + Duration::from_secs_f64(sent as f64 / rate);
            if due > Instant::now() || due >= ends {
                break;
            }
            sent += 1;
            let Some(at) = free.pop_front() else {
                told.unsent += 1;
                continue;
            };
            all[at].due = Some(due);
            if all[at].tcp.write(&request).ok() != Some(request.len()) {
                told.broken += 1;
            }
        }
        if Instant::now() >= ends && free.len() + usize::try_from(told.broken)? >= count {
            break;
        }
        poll.poll(&mut events, Some(Duration::ZERO))?;
        for event in &events {
            let Token(at) = event.token();
            match all[at].read(&mut told) {
                Ok(Some(due)) => {
                    if due >= warm {
                        histogram.record(u64::try_from(due.elapsed().as_nanos())?)?;
                    }
                    free.push_back(at);
                }
                Ok(None) => {}
                Err(_) => told.broken += 1,
            }
        }
    }
    let at = |percentile| histogram.value_at_percentile(percentile) as f64 / 1e6;
    println!(
        "{:.0}/s for {} s: {} answers, {} of another status, {} broken, {} without a free connection\n\
         ms: min {:.3} p50 {:.3} p90 {:.3} p99 {:.3} p99.9 {:.3} max {:.3}",
        rate,
        lasts.as_secs(),
        told.answers,
        told.others,
        told.broken,
        told.unsent,
        histogram.min() as f64 / 1e6,
        at(50.0),
        at(90.0),
        at(99.0),
        at(99.9),
        histogram.max() as f64 / 1e6,
    );
    Ok(())
}

/// A hundred at a time: more would overflow the queue of who waits to be taken in.
fn open(address: SocketAddr, count: usize, poll: &Poll) -> Result<Vec<Connection>, Box<dyn Error>> {
    let mut all = Vec::new();
    for at in 0..count {
        let tcp = std::net::TcpStream::connect(address)?;
        tcp.set_nodelay(true)?;
        tcp.set_nonblocking(true)?;
        let mut tcp = TcpStream::from_std(tcp);
        poll.registry().register(&mut tcp, Token(at), Interest::READABLE)?;
        all.push(Connection { tcp, due: None, left: None, head: Vec::new() });
    }
    Ok(all)
}

impl Connection {
    /// Reads what is there; when the request was due, if its answer is complete.
    fn read(&mut self, told: &mut Told) -> Result<Option<Instant>, Box<dyn Error>> {
        let mut buffer = [0; 64 << 10];
        loop {
            let some = match self.tcp.read(&mut buffer) {
                Ok(0) => return Err("closed".into()),
                Ok(some) => some,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let left = match self.left {
                Some(left) => left.saturating_sub(some),
                None => {
                    self.head.extend_from_slice(&buffer[..some]);
                    let Some(end) = self.head.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
                    let head = String::from_utf8_lossy(&self.head[..end]).to_lowercase();
                    let length = head.split("\r\n").find_map(|line| line.strip_prefix("content-length: "));
                    let length: usize = length.ok_or("no Content-Length")?.trim().parse()?;
                    if head.starts_with("http/1.1 200") { told.answers += 1 } else { told.others += 1 }
                    let left = (end + 4 + length).saturating_sub(self.head.len());
                    self.head.clear();
                    left
                }
            };
            if left == 0 {
                self.left = None;
                return Ok(self.due.take());
            }
            self.left = Some(left);
        }
    }
}
