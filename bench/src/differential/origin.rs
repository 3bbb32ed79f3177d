//! An origin that records every byte that it receives, and responds by a script.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant, SystemTime},
};

use socket2::SockRef;

use super::{
    case::{Reply, Then, When, bytes},
    wire::{Message, Parsed, Side, parse_first},
};

/// How often a connection looks for the end of its case.
const POLL: Duration = Duration::from_millis(10);
/// After this time without a byte a request that cannot be read by the standard is answered too.
const SILENCE: Duration = Duration::from_millis(100);
/// The limit for a proxy to close its side of a connection.
const CLOSE: Duration = Duration::from_millis(300);

/// Listens for one proxy.
pub struct Origin {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    script: Vec<Reply>,
    /// Responses of this case; each had its number.
    served: usize,
    connections: Vec<Arc<Connection>>,
}

struct Connection {
    /// `None` once it is reset.
    socket: Mutex<Option<TcpStream>>,
    received: Mutex<Vec<u8>>,
}

impl Origin {
    /// Listens until the program ends.
    pub fn start(address: &str) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (Ok(clone), shared) = (socket.try_clone(), Arc::clone(&shared)) else { continue };
                let connection =
                    Arc::new(Connection { socket: Mutex::new(Some(clone)), received: Mutex::default() });
                lock(&shared).connections.push(Arc::clone(&connection));
                // A proxy that resets its connection ends the thread; the bytes stay recorded.
                thread::spawn(move || serve(socket, &connection, &shared));
            }
        });
        Ok(Self { state })
    }

    /// Starts a case.
    pub fn begin(&self, script: &[Reply]) {
        *lock(&self.state) = State { script: script.to_vec(), ..State::default() };
    }

    /// The number of responses in this case so far.
    #[must_use]
    pub fn served(&self) -> usize {
        lock(&self.state).served
    }

    /// Ends a case: closes its connections, and returns the bytes of each. Once it returns, no proxy has an open
    /// connection that it might use for the next case.
    #[must_use]
    pub fn end(&self) -> Vec<Vec<u8>> {
        let connections = std::mem::take(&mut lock(&self.state).connections);
        for connection in &connections {
            connection.shut_down(Shutdown::Write);
        }
        let began = Instant::now();
        for connection in &connections {
            // The peer's end is read by the thread of the connection, which drops its reference.
            while Arc::strong_count(connection) > 1 && began.elapsed() < CLOSE {
                thread::sleep(Duration::from_millis(1));
            }
            connection.shut_down(Shutdown::Both);
        }
        connections.iter().map(|connection| lock(&connection.received).clone()).collect()
    }
}

impl Connection {
    fn shut_down(&self, how: Shutdown) {
        if let Some(socket) = &*lock(&self.socket) {
            // The proxy may have closed the connection.
            let _ = socket.shutdown(how);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads until the proxy closes. A request is answered once it is complete, or unreadable and followed by silence.
fn serve(mut socket: TcpStream, connection: &Connection, state: &Mutex<State>) -> Option<()> {
    socket.set_read_timeout(Some(POLL)).ok()?;
    socket.set_nodelay(true).ok()?;
    let (mut buffer, mut at, mut last_byte) = ([0; 16_384], 0, Instant::now());
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return None,
            Ok(read) => {
                lock(&connection.received).extend_from_slice(&buffer[..read]);
                last_byte = Instant::now();
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return None,
        }
        loop {
            let received = lock(&connection.received)[at..].to_vec();
            let Some((length, request)) = next(&received, last_byte.elapsed() >= SILENCE) else { break };
            at += length;
            let then = respond(&mut socket, state, &received[..length], request.as_ref())?;
            match then {
                Then::KeepOpen => {}
                Then::Close => socket.shutdown(Shutdown::Write).ok()?,
                Then::Reset => {
                    // RST is sent once no reference to the socket is left.
                    SockRef::from(&socket).set_linger(Some(Duration::ZERO)).ok()?;
                    *lock(&connection.socket) = None;
                    return None;
                }
            }
        }
    }
}

/// The length of the next request, and the request if it can be read.
fn next(received: &[u8], is_silent: bool) -> Option<(usize, Option<Message>)> {
    let Parsed { messages, faults, consumed } = parse_first(received, Side::Requests);
    if faults.is_empty() {
        let first = messages.into_iter().next().filter(|first| first.is_complete)?;
        return Some((consumed, Some(first)));
    }
    is_silent.then_some((received.len(), None))
}

fn respond(
    socket: &mut TcpStream,
    state: &Mutex<State>,
    received: &[u8],
    request: Option<&Message>,
) -> Option<Then> {
    let (reply, serial) = {
        let mut state = lock(state);
        let reply = state.script.get(state.served).or(state.script.last()).cloned()?;
        state.served += 1;
        (reply, state.served)
    };
    let (text, then) = render(&reply, serial, received, request);
    socket.write_all(&text).ok()?;
    Some(then)
}

fn render(reply: &Reply, serial: usize, received: &[u8], request: Option<&Message>) -> (Vec<u8>, Then) {
    match reply {
        Reply::If { when, then, otherwise } => {
            let is = request.is_some_and(|request| match when {
                When::Field(name) => request.values(name).next().is_some(),
                When::Target(end) => request.target().ends_with(end),
            });
            render(if is { then } else { otherwise }, serial, received, request)
        }
        Reply::Raw { text, then } => (bytes(&fill(text, serial)), *then),
        Reply::Echo { status, fields } => {
            let date = if fields.to_ascii_lowercase().contains("date:") { "" } else { "Date: {now}\r\n" };
            // A body is not allowed with these (RFC 9112, 6.3).
            let has_no_body = status.starts_with("204") || status.starts_with("304");
            let length =
                if has_no_body { String::new() } else { format!("Content-Length: {}\r\n", received.len()) };
            let head = format!(
                "HTTP/1.1 {status}\r\n{date}X-Serial: {serial:03}\r\nContent-Type: text/plain\r\n\
                 {length}{fields}\r\n"
            );
            let mut text = bytes(&fill(&head, serial));
            if !has_no_body && request.is_none_or(|request| request.method() != "HEAD") {
                text.extend_from_slice(received);
            }
            (text, Then::KeepOpen)
        }
    }
}

/// Replaces `{serial}` and dates.
fn fill(text: &str, serial: usize) -> String {
    let mut filled = text.replace("{serial}", &format!("{serial:03}"));
    let now = SystemTime::now();
    while let Some((before, rest)) = filled.split_once("{now") {
        let (offset, after) = rest.split_once('}').unwrap_or((rest, ""));
        let seconds: i64 = offset.parse().unwrap_or(0);
        let distance = Duration::from_secs(seconds.unsigned_abs());
        let date = if seconds < 0 { now - distance } else { now + distance };
        filled = format!("{before}{}{after}", httpdate::fmt_http_date(date));
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_requests_are_taken_one_by_one() {
        let two =
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nxGET /b HTTP/1.1\r\nHost: a\r\n\r\n";
        let (length, request) = next(two, false).expect("a request");
        assert_eq!(
            (&two[length..length + 3], request.map(|one| one.body)),
            (&b"GET"[..], Some(b"x".to_vec()))
        );
        assert!(next(&two[..20], true).is_none(), "an incomplete head waits");
        let odd = b"GET / HTTP/1.1\nHost: a\n\n";
        assert!(next(odd, false).is_none(), "an unreadable request waits for silence");
        assert!(next(odd, true).is_some_and(|(length, request)| length == odd.len() && request.is_none()));
    }

    #[test]
    fn templates_are_filled() {
        assert_eq!(fill("a{serial}b", 7), "a007b");
        assert!(fill("{now+60} {now-60} {now}", 1).matches("GMT").count() == 3);
    }
}
