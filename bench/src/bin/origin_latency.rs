//! The measured latency of an origin compared with its configured one.
//!
//! An open loop: requests are due at a constant rate and do not wait for responses, each on a free connection. The
//! table has the time from the due time of a request to the last byte of its response of 1 KiB, in ms. The origin
//! has one thread, on the first core. The client has one on the second, which polls without sleeping, so that no wake-up time
//! is added. The first second is not counted.

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
use stockade_bench::origin::{ORIGIN, Server, serve};

struct Connection {
    tcp: TcpStream,
    /// The due time of its request.
    due: Option<Instant>,
    /// Missing bytes of the response; `None` before its head is complete.
    left: Option<usize>,
    head: Vec<u8>,
}

#[derive(Default)]
struct Measured {
    answers: u64,
    others: u64,
    broken: u64,
    /// Requests that were due without a free connection.
    unsent: u64,
}

/// Latency in ms, requests per second, connections, seconds.
const ROUNDS: [(u64, f64, usize, u64); 5] = [
    (1, 1e3, 100, 15),
    (5, 1e3, 100, 15),
    (50, 1e3, 1_000, 15),
    (500, 1e3, 2_000, 15),
    (100, 2e4, 10_000, 30),
];

fn main() -> Result<(), Box<dyn Error>> {
    if env::args().nth(1).as_deref() == Some("serve") {
        let recipe = |(latency, ..): &(u64, f64, usize, u64)| {
            format!(
                r#"{{"route": "/{latency}", "random_content": "1kb", "stages": [{{"at": 0, "latency": "{latency}ms"}}]}}"#
            )
        };
        return serve(format!("[{}]", ROUNDS.iter().map(recipe).collect::<Vec<_>>().join(",")));
    }
    let _origin = Server::origin()?;
    core_affinity::set_for_current(core_affinity::CoreId { id: 1 });
    println!("| latency | rate | connections | answers | failed | min | p50 | p90 | p99 | p99.9 | max |");
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    ROUNDS.into_iter().try_for_each(|(latency, rate, count, seconds)| round(latency, rate, count, seconds))
}

fn round(latency: u64, rate: f64, count: usize, seconds: u64) -> Result<(), Box<dyn Error>> {
    let lasts = Duration::from_secs(seconds);
    let request = format!("GET /{latency} HTTP/1.1\r\nHost: {ORIGIN}\r\n\r\n").into_bytes();
    let mut poll = Poll::new()?;
    let mut all = open(ORIGIN.parse()?, count, &poll)?;
    let (mut measured, mut histogram) = (Measured::default(), Histogram::<u64>::new(4)?);
    let mut free: VecDeque<usize> = (0..count).collect();
    let mut events = Events::with_capacity(4_096);
    let began = Instant::now();
    let warm = began + Duration::from_secs(1);
    let ends = began + lasts;
    let mut sent = 0_u64;
    // Until the last response, for at most five seconds.
    while Instant::now() < ends + Duration::from_secs(5) {
        loop {
            let due = began + Duration::from_secs_f64(sent as f64 / rate);
            if due > Instant::now() || due >= ends {
                break;
            }
            sent += 1;
            let Some(at) = free.pop_front() else {
                measured.unsent += 1;
                continue;
            };
            all[at].due = Some(due);
            if all[at].tcp.write(&request).ok() != Some(request.len()) {
                measured.broken += 1;
            }
        }
        if Instant::now() >= ends && free.len() + usize::try_from(measured.broken)? >= count {
            break;
        }
        poll.poll(&mut events, Some(Duration::ZERO))?;
        for event in &events {
            let Token(at) = event.token();
            match all[at].read(&mut measured) {
                Ok(Some(due)) => {
                    if due >= warm {
                        histogram.record(u64::try_from(due.elapsed().as_nanos())?)?;
                    }
                    free.push_back(at);
                }
                Ok(None) => {}
                Err(_) => measured.broken += 1,
            }
        }
    }
    let ms = |nanos: u64| format!("{:.3}", nanos as f64 / 1e6);
    let at = |percentile| ms(histogram.value_at_percentile(percentile));
    let (answers, failed) = (measured.answers, measured.others + measured.broken + measured.unsent);
    println!(
        "| {latency} | {rate}/s | {count} | {answers} | {failed} | {} | {} | {} | {} | {} | {} |",
        ms(histogram.min()),
        at(50.0),
        at(90.0),
        at(99.0),
        at(99.9),
        ms(histogram.max()),
    );
    Ok(())
}

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
    /// Reads the available bytes; returns the request's due time if its response is complete.
    fn read(&mut self, measured: &mut Measured) -> Result<Option<Instant>, Box<dyn Error>> {
        let mut buffer = [0; 16 << 10];
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
                    let Some(end) = self.head.windows(4).position(|four| four == b"\r\n\r\n") else {
                        continue;
                    };
                    let head = String::from_utf8_lossy(&self.head[..end]).to_lowercase();
                    let length = head.split("\r\n").find_map(|line| line.strip_prefix("content-length: "));
                    let length: usize = length.ok_or("no Content-Length")?.trim().parse()?;
                    if head.starts_with("http/1.1 200") {
                        measured.answers += 1;
                    } else {
                        measured.others += 1;
                    }
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
