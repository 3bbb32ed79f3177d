//! A minimal server: it finds the end of each head and writes a prepared response.

use std::{
    error::Error,
    io::{ErrorKind, Read, Write},
    net::SocketAddr,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use mio::{
    Events, Interest, Poll, Token,
    net::{TcpListener, TcpStream},
};

use crate::known_times::KnownTimes;

pub const RESPONDER: &str = "127.0.0.1:18090";

const LISTENER: Token = Token(usize::MAX - 1);

/// A client and its unsent bytes.
struct Client {
    tcp: TcpStream,
    /// Its place among the clients, and its number among all that ever connected.
    id: (usize, u64),
    heard: Vec<u8>,
    unsent: Vec<u8>,
}

/// The responder, by path:
///
/// | path | response |
/// |---|---|
/// | `/K` | K KiB, at once |
/// | `/spin/N` | 1 KiB, after N ms of spinning; from then on it polls without sleeping |
/// | `/freeze` | 1 KiB, at once; 5 s after the first one, a pause of 1 s for all clients |
/// | `/latency` | the median and the 99th percentile of the times of `/spin`, in ns; resets them |
/// | `/known` | 1 KiB, after the times of [`KnownTimes`]; from then on it polls without sleeping |
/// | `/record` | the figures of the responses to `/known`; resets them |
struct Responder {
    bodies: Vec<(usize, Vec<u8>)>,
    spun: Histogram<u64>,
    freezes: Option<Instant>,
    known: KnownTimes,
    /// It polls without sleeping, from the first `/spin` until `/latency`, from the first `/known` until `/record`.
    is_restless: bool,
}

/// Serves until it is killed.
pub fn respond() -> Result<(), Box<dyn Error>> {
    let mut listener = TcpListener::bind(RESPONDER.parse::<SocketAddr>()?)?;
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(1_024);
    let mut clients: Vec<Option<Client>> = Vec::new();
    let bodies = [1, 100].map(|kib| (kib, answer(&"x".repeat(kib << 10))));
    let mut responder = Responder {
        bodies: bodies.into(),
        spun: Histogram::new(3)?,
        freezes: None,
        known: KnownTimes::default(),
        is_restless: false,
    };
    let mut connected = 0;
    loop {
        // A responder that measures its times must be awake when a request arrives.
        let rests = if responder.is_restless { Some(Duration::ZERO) } else { None };
        match poll.poll(&mut events, rests) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            polled => polled?,
        }
        for event in &events {
            if event.token() != LISTENER {
                let client = &mut clients[event.token().0];
                if client.as_mut().is_some_and(|client| responder.serve(client).is_err()) {
                    *client = None;
                }
                continue;
            }
            while let Ok((mut tcp, _)) = listener.accept() {
                tcp.set_nodelay(true)?;
                let free = clients.iter().position(Option::is_none).unwrap_or(clients.len());
                let interest = Interest::READABLE | Interest::WRITABLE;
                poll.registry().register(&mut tcp, Token(free), interest)?;
                let client =
                    Some(Client { tcp, id: (free, connected), heard: Vec::new(), unsent: Vec::new() });
                connected += 1;
                if free == clients.len() { clients.push(client) } else { clients[free] = client }
            }
        }
        responder.send_known(&mut clients);
    }
}

/// The body of a response of the responder.
pub fn get(path: &str) -> Result<String, Box<dyn Error>> {
    let mut tcp = std::net::TcpStream::connect(RESPONDER)?;
    write!(tcp, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut bytes = [0; 4_096];
    let read = tcp.read(&mut bytes)?;
    let reply = String::from_utf8(bytes[..read].to_vec())?;
    Ok(reply.split_once("\r\n\r\n").ok_or("no reply")?.1.to_owned())
}

fn answer(body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nServer: responder\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

impl Responder {
    fn serve(&mut self, client: &mut Client) -> Result<(), Box<dyn Error>> {
        client.write()?;
        let mut bytes = [0; 4_096];
        loop {
            let some = match client.tcp.read(&mut bytes) {
                Ok(0) => return Err("gone".into()),
                Ok(some) => some,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let began = Instant::now();
            if client.heard.is_empty() && bytes[..some].ends_with(b"\r\n\r\n") {
                self.answer(&bytes[..some], began, client)?;
            } else {
                client.heard.extend_from_slice(&bytes[..some]);
                while let Some(end) = client.heard.windows(4).position(|four| four == b"\r\n\r\n") {
                    let head: Vec<u8> = client.heard.drain(..end + 4).collect();
                    self.answer(&head, began, client)?;
                }
            }
            // A short read: the socket is empty, without another system call.
            if some < bytes.len() {
                return Ok(());
            }
        }
    }

    fn answer(&mut self, head: &[u8], began: Instant, client: &mut Client) -> Result<(), Box<dyn Error>> {
        let path = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        match path {
            b"/latency" => {
                let latencies =
                    format!("{} {}", self.spun.value_at_quantile(0.5), self.spun.value_at_quantile(0.99));
                self.spun.reset();
                self.is_restless = false;
                client.unsent.extend_from_slice(&answer(&latencies));
                client.write()?;
            }
            b"/known" => {
                self.is_restless = true;
                self.known.hold(began, client.id);
            }
            b"/record" => {
                self.is_restless = false;
                client.unsent.extend_from_slice(&answer(&self.known.take_record()));
                client.write()?;
            }
            b"/freeze" => {
                let freezes = *self.freezes.get_or_insert(began + Duration::from_secs(5));
                if began >= freezes && began < freezes + Duration::from_secs(1) {
                    spin_until(freezes + Duration::from_secs(1));
                }
                client.send(&self.bodies[0].1)?;
            }
            path if path.starts_with(b"/spin/") => {
                self.is_restless = true;
                let ms: u64 = std::str::from_utf8(&path[6..])?.parse()?;
                spin_until(began + Duration::from_millis(ms));
                client.send(&self.bodies[0].1)?;
                self.spun.record(u64::try_from(began.elapsed().as_nanos())?)?;
            }
            path => {
                let of = |(kib, _): &&(usize, Vec<u8>)| path == format!("/{kib}").as_bytes();
                // The measured body has no search.
                let body = if path == b"/1" {
                    &self.bodies[0]
                } else {
                    self.bodies.iter().find(of).ok_or("what?")?
                };
                client.send(&body.1)?;
            }
        }
        Ok(())
    }

    /// Writes the responses of `/known` that are due.
    fn send_known(&mut self, clients: &mut [Option<Client>]) {
        while let Some(held) = self.known.next_due(Instant::now()) {
            let place = &mut clients[held.connection.0];
            // Another client may have the place of one that has left.
            let Some(client) = place.as_mut().filter(|client| client.id == held.connection) else { continue };
            match client.send(&self.bodies[0].1) {
                Ok(()) => self.known.note_response(&held, Instant::now()),
                Err(_) => *place = None,
            }
        }
    }
}

fn spin_until(then: Instant) {
    while Instant::now() < then {
        std::hint::spin_loop();
    }
}

impl Client {
    /// Writes at once as much as the socket accepts.
    fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let sent = if self.unsent.is_empty() {
            match self.tcp.write(bytes) {
                Ok(sent) => sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error),
            }
        } else {
            0
        };
        if sent < bytes.len() {
            self.unsent.extend_from_slice(&bytes[sent..]);
        }
        Ok(())
    }

    fn write(&mut self) -> std::io::Result<()> {
        while !self.unsent.is_empty() {
            match self.tcp.write(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
