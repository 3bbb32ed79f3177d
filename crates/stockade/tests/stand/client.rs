//! Users of a cache, each with cookies of their own, and what they get.

use std::{
    collections::BTreeMap,
    io::{BufReader, Error, Read, Result, Write},
    net::{SocketAddr, TcpStream},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use flate2::read::GzDecoder;

use crate::http::{field, fields, read_body, read_head, response_length, status};

/// The longest silence that a client bears.
const PATIENCE: Duration = Duration::from_secs(30);
/// Failures of a row that are shown with their heads.
const NOTES_MAX: usize = 3;

/// The clients of one row: their requests carry its name, and it keeps what went wrong.
#[derive(Debug)]
pub struct Clients {
    pub address: SocketAddr,
    /// The value of `row` in the query.
    pub row: String,
    tally: Mutex<Tally>,
}

#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub sent: u32,
    pub failed: u32,
    /// Answers with what belongs to another user.
    pub foreign: u32,
    /// From the first byte of a request to the last of its answer.
    pub longest: Duration,
    /// The first failures, with their heads.
    pub notes: Vec<String>,
}

/// One user.
#[derive(Clone, Debug, Default)]
pub struct User {
    pub name: &'static str,
    pub cookies: BTreeMap<String, String>,
}

/// A request that is being written.
#[derive(Clone, Debug)]
pub struct Request<'c> {
    clients: &'c Clients,
    method: &'static str,
    target: String,
    fields: Vec<String>,
    body: Vec<u8>,
    is_chunked: bool,
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub request: String,
    pub head: String,
    /// Without content coding.
    pub body: Vec<u8>,
    pub status: u16,
}

impl User {
    pub fn new(name: &'static str) -> Self {
        Self { name, cookies: BTreeMap::new() }
    }

    /// Takes the cookies of an answer.
    pub fn keep(&mut self, answer: &Answer) {
        for cookie in fields(&answer.head, "set-cookie") {
            let pair = cookie.split(';').next().unwrap_or_default();
            if let Some((name, value)) = pair.split_once('=') {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
    }
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn has(&self, text: &str) -> bool {
        self.text().contains(text)
    }
}

impl Clients {
    pub fn new(address: SocketAddr, row: String) -> Self {
        Self { address, row, tally: Mutex::default() }
    }

    pub fn get(&self, target: &str) -> Request<'_> {
        self.request("GET", target)
    }

    /// The row's name is added to the query.
    pub fn request(&self, method: &'static str, target: &str) -> Request<'_> {
        let separator = if target.contains('?') { '&' } else { '?' };
        let target = format!("{target}{separator}row={}", self.row);
        Request { clients: self, method, target, fields: Vec::new(), body: Vec::new(), is_chunked: false }
    }

    pub fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a failure unless `is_right`.
    pub fn check(&self, is_right: bool, expected: &str, answer: &Answer) {
        if !is_right {
            self.tally().failed += 1;
            self.note(&format!("expected {expected}\n{}\n{}", answer.request, answer.head));
        }
    }

    pub fn check_text(&self, status: u16, text: &str, answer: &Answer) {
        let is_right = answer.status == status && answer.has(text);
        self.check(is_right, &format!("{status} with `{text}`"), answer);
    }

    /// Counts an answer that must belong to `user` as foreign or failed, if it does not.
    pub fn check_owner(&self, user: &User, others: &[&User], answer: &Answer) {
        if let Some(other) = others.iter().find(|other| answer.has(&format!("user={}", other.name))) {
            self.tally().foreign += 1;
            self.note(&format!(
                "{} got {}'s page\n{}\n{}",
                user.name, other.name, answer.request, answer.head
            ));
        } else {
            self.check_text(200, &format!("user={}", user.name), answer);
        }
    }

    /// The first notes are kept.
    pub fn note(&self, text: &str) {
        let mut tally = self.tally();
        if tally.notes.len() < NOTES_MAX {
            tally.notes.push(text.trim_end().to_owned());
        }
    }
}

impl Request<'_> {
    #[must_use]
    pub fn field(mut self, name: &str, value: &str) -> Self {
        self.fields.push(format!("{name}: {value}"));
        self
    }

    /// With the cookies of this user.
    #[must_use]
    pub fn of(self, user: &User) -> Self {
        let cookies: Vec<_> = user.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if cookies.is_empty() { self } else { self.field("Cookie", &cookies.join("; ")) }
    }

    #[must_use]
    pub fn gzip(self) -> Self {
        self.field("Accept-Encoding", "gzip")
    }

    #[must_use]
    pub fn body(mut self, body: &[u8]) -> Self {
        body.clone_into(&mut self.body);
        self
    }

    #[must_use]
    pub fn chunked(mut self) -> Self {
        self.is_chunked = true;
        self
    }

    /// Sends it on a connection of its own, and counts a failure if no whole answer arrives. `None`: none did.
    pub fn send(self) -> Option<Answer> {
        let clients = self.clients;
        clients.tally().sent += 1;
        let began = now();
        let answer = self.exchange();
        let mut tally = clients.tally();
        tally.longest = tally.longest.max(began.elapsed());
        drop(tally);
        match answer {
            Ok(answer) => Some(answer),
            Err((request, error)) => {
                clients.tally().failed += 1;
                clients.note(&format!("no whole answer: {error}\n{request}"));
                None
            }
        }
    }

    fn head(&self) -> String {
        let mut head =
            format!("{} {} HTTP/1.1\r\nHost: stand.test\r\nConnection: close\r\n", self.method, self.target);
        for line in &self.fields {
            head += &format!("{line}\r\n");
        }
        if self.is_chunked {
            head += "Transfer-Encoding: chunked\r\n";
        } else if !["GET", "HEAD"].contains(&self.method) {
            head += &format!("Content-Length: {}\r\n", self.body.len());
        }
        head
    }

    fn exchange(&self) -> std::result::Result<Answer, (String, Error)> {
        let head = self.head();
        self.try_exchange(&head).map_err(|error| (head, error))
    }

    fn try_exchange(&self, request: &str) -> Result<Answer> {
        let tcp = TcpStream::connect(self.clients.address)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        let mut to = &tcp;
        write!(to, "{request}\r\n")?;
        if self.is_chunked {
            for chunk in self.body.chunks(20_000) {
                write!(to, "{:x}\r\n", chunk.len())?;
                to.write_all(chunk)?;
                write!(to, "\r\n")?;
            }
            write!(to, "0\r\n\r\n")?;
        } else {
            to.write_all(&self.body)?;
        }
        let mut from = BufReader::new(&tcp);
        let head = loop {
            let head = read_head(&mut from)?.ok_or_else(|| Error::other("the connection has ended"))?;
            if status(&head) >= 200 {
                break head;
            }
        };
        let mut body = read_body(&mut from, response_length(&head, self.method), |_| Ok(()))?;
        if field(&head, "content-encoding").is_some_and(|coding| coding == "gzip") && !body.is_empty() {
            if !request.contains("gzip") {
                return Err(Error::other(format!("gzip that the client did not accept\n{head}")));
            }
            let mut plain = Vec::new();
            GzDecoder::new(&body[..]).read_to_end(&mut plain)?;
            body = plain;
        }
        Ok(Answer { request: request.to_owned(), status: status(&head), head, body })
    }
}

/// All of these at once.
pub fn at_once<T: Send>(tasks: Vec<Box<dyn FnOnce() -> T + Send + '_>>) -> Vec<T> {
    thread::scope(|scope| {
        let running: Vec<_> = tasks.into_iter().map(|task| scope.spawn(task)).collect();
        running.into_iter().map(|task| task.join().expect("a client does not panic")).collect()
    })
}

#[expect(clippy::disallowed_methods, reason = "stock servers know only real time")]
pub fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "stock servers know only real time")]
pub fn sleep(duration: Duration) {
    thread::sleep(duration);
}

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "stock servers know only real time")]
pub fn unix_time() -> f64 {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    time.expect("the clock is not before 1970").as_secs_f64()
}
