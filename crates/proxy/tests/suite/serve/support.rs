//! A proxy between scripted origins and clients, with raw bytes on both sides.

use std::{
    fs,
    future::Future,
    io,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::join_all;
use stockade_model::time::{Live, Runtime, before};
use stockade_proxy::{config::Config, server::ProxyServer};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpSocket, TcpStream},
    runtime::Handle,
};

/// Bound for events that take milliseconds, so that a failed test ends.
pub const HANG_GUARD: Duration = Duration::from_secs(20);

pub type Connection = BufReader<TcpStream>;

/// An HTTP server of raw bytes on the current runtime.
pub struct Origin {
    pub address: SocketAddr,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    in_progress: Arc<AtomicUsize>,
}

/// A request as the origin received it.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// Its index among the requests of this origin.
    pub number: usize,
    /// The head, including the empty line.
    pub head: String,
}

impl ReceivedRequest {
    pub fn method(&self) -> &str {
        self.head.split(' ').next().unwrap_or_default()
    }

    pub fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }
}

impl Origin {
    /// `answer` handles each request and returns the connection to keep it open.
    pub async fn start<F>(answer: impl Fn(ReceivedRequest, Connection) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<Connection>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (received, answer) = (Arc::<Mutex<Vec<ReceivedRequest>>>::default(), Arc::new(answer));
        let in_progress = Arc::<AtomicUsize>::default();
        let (all, now) = (Arc::clone(&received), Arc::clone(&in_progress));
        drop(Handle::current().spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let (all, now, answer) = (Arc::clone(&all), Arc::clone(&now), Arc::clone(&answer));
                drop(Handle::current().spawn(async move {
                    let _ = tcp.set_nodelay(true);
                    let mut line = BufReader::new(tcp);
                    while let Some(head) = read_head(&mut line).await {
                        let one = {
                            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                            let one = ReceivedRequest { number: all.len(), head };
                            all.push(one.clone());
                            one
                        };
                        now.fetch_add(1, SeqCst);
                        let next = answer(one, line).await;
                        now.fetch_sub(1, SeqCst);
                        let Some(next) = next else { return };
                        line = next;
                    }
                }));
            }
        }));
        Self { address, received, in_progress }
    }

    /// Answers each request with the bytes that `answer` returns.
    pub async fn responding(answer: impl Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::start(move |received, mut line| {
            let bytes = answer(&received);
            async move { line.write_all(&bytes).await.ok().map(|()| line) }
        })
        .await
    }

    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Number of received requests.
    pub fn count(&self) -> usize {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Number of requests without a complete response.
    pub fn in_progress(&self) -> usize {
        self.in_progress.load(SeqCst)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// The head of a message, including the empty line; `None` at the end of the stream.
pub async fn read_head(line: &mut Connection) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if line.read_until(b'\n', &mut head).await.ok()? == 0 {
            return None;
        }
    }
    Some(String::from_utf8(head).expect("a head is text"))
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    lines.find(|line| line.0.eq_ignore_ascii_case(name)).map(|line| line.1.trim())
}

/// A response with Content-Length; `fields` are header lines without line ends.
pub fn sized(status: &str, fields: &[&str], body: &[u8]) -> Vec<u8> {
    let length = format!("Content-Length: {}", body.len());
    [format!("HTTP/1.1 {status}\r\n{}{length}\r\n\r\n", lines(fields)).as_bytes(), body].concat()
}

/// Joins header lines with line ends.
pub fn lines(fields: &[&str]) -> String {
    fields.iter().flat_map(|line| [*line, "\r\n"]).collect()
}

/// A 200 response that is fresh for a minute.
pub fn good(body: &[u8]) -> Vec<u8> {
    sized("200 OK", &["Cache-Control: max-age=60"], body)
}

/// Bytes that depend on their position, so that lost, doubled or moved bytes are detected.
pub fn content(bytes: usize) -> Vec<u8> {
    (0..bytes.div_ceil(8))
        .flat_map(|at| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .take(bytes)
        .collect()
}

/// A proxy in front of an origin. `more` is TOML before the origin's table, keys first; `origins` is TOML inside it.
pub async fn proxy_with(origin: &str, more: &str, origins: &str) -> ProxyServer {
    let config = config(origin, more, origins);
    let again = config.clone();
    ProxyServer::start(config, Box::new(move || Ok(again.clone()))).await.expect("a proxy")
}

pub fn config(origin: &str, more: &str, origins: &str) -> Config {
    let cache = if more.contains("[cache]") { "" } else { "[cache]\nstrategy = \"fallback\"\n" };
    let (keys, tables) = more.split_at(if more.starts_with('[') {
        0
    } else {
        more.find("\n[").map_or(more.len(), |at| at + 1)
    });
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\nthreads = 2\n{keys}\n[log]\nformat = \"none\"\n{cache}{tables}\n\
         [[origin]]\nname = \"a\"\nurl = \"{origin}\"\nhealth = {{ failures = 1000 }}\n{origins}\n"
    );
    Config::parse("test.toml", &text).unwrap_or_else(|error| panic!("{error:?}\n{text}"))
}

/// A proxy in front of an origin; `settings` is TOML.
pub async fn start_with(origin: &Origin, settings: &str) -> ProxyServer {
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\nthreads = 1\n{settings}\n[[origin]]\nurl = \"{}\"\n",
        origin.url()
    );
    let config = Config::parse("test.toml", &text).unwrap_or_else(|error| panic!("{error:?}\n{text}"));
    let again = config.clone();
    ProxyServer::start(config, Box::new(move || Ok(again.clone()))).await.expect("a proxy")
}

/// The log once it has this many lines.
pub async fn log_lines(path: &Path, count: usize) -> String {
    let read = || fs::read_to_string(path).unwrap_or_default();
    until(|| read().lines().count() >= count).await;
    read()
}

pub async fn proxy(origin: &Origin) -> ProxyServer {
    proxy_with(&origin.url(), "", "connections = 2000").await
}

/// A client connection.
pub struct Client(pub Connection);

/// The head of a response.
#[derive(Clone, Debug)]
pub struct Head {
    pub status: u16,
    pub text: String,
    framing: BodyFraming,
}

#[derive(Clone, Copy, Debug)]
enum BodyFraming {
    /// Remaining bytes.
    Sized(u64),
    Chunked,
    /// The last chunk was read.
    Ended,
    UntilClose,
}

/// A response, possibly truncated.
#[derive(Debug)]
pub struct Answer {
    pub head: Head,
    pub body: Vec<u8>,
    /// True if the body ended as its framing announced.
    pub is_whole: bool,
}

impl Head {
    pub fn read(text: String, is_bodiless: bool) -> Self {
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut head = Self { status, text, framing: BodyFraming::UntilClose };
        head.framing = if is_bodiless || status == 204 || status == 304 {
            BodyFraming::Sized(0)
        } else if head.field("transfer-encoding").is_some() {
            BodyFraming::Chunked
        } else {
            head.field("content-length").map_or(BodyFraming::UntilClose, |length| {
                BodyFraming::Sized(length.parse().expect("a number"))
            })
        };
        head
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        field(&self.text, name)
    }

    /// The outcome in `Cache-Status`, such as `hit`.
    pub fn outcome(&self) -> &str {
        let header = self.field("cache-status").unwrap_or_default();
        header.rsplit("detail=").next().unwrap_or_default()
    }
}

impl Answer {
    pub fn status(&self) -> u16 {
        self.head.status
    }

    pub fn outcome(&self) -> &str {
        self.head.outcome()
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.field(name)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    #[track_caller]
    pub fn assert_body(&self, body: &[u8]) {
        assert!(self.is_whole, "cut after {} of {} bytes: {:?}", self.body.len(), body.len(), self.head);
        let same = self.body.iter().zip(body).take_while(|(one, other)| one == other).count();
        assert!(
            self.body == body,
            "{} bytes in place of {}, the same are {same}",
            self.body.len(),
            body.len()
        );
    }
}

impl Client {
    pub async fn connect(proxy: &ProxyServer) -> Self {
        let tcp = with_timeout(TcpStream::connect(proxy.addresses()[0])).await.expect("an open connection");
        Self(BufReader::new(tcp))
    }

    /// Connects from another loopback address.
    pub async fn connect_from(address: [u8; 4], proxy: &ProxyServer) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from((address, 0))).expect("a loopback address");
        let tcp = with_timeout(socket.connect(proxy.addresses()[0])).await.expect("an open connection");
        Self(BufReader::new(tcp))
    }

    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        with_timeout(self.0.write_all(bytes.as_ref())).await.expect("an open connection");
    }

    /// Reads the head of the final response to a request with this method.
    pub async fn head_to(&mut self, method: &str) -> io::Result<Head> {
        loop {
            let text = with_timeout(read_head(&mut self.0)).await.ok_or(io::ErrorKind::UnexpectedEof)?;
            let head = Head::read(text, method == "HEAD");
            if head.status >= 200 {
                return Ok(head);
            }
        }
    }

    /// Reads a part of the body; `None` at its end.
    pub async fn more(&mut self, head: &mut Head) -> io::Result<Option<Vec<u8>>> {
        with_timeout(async {
            let bytes = match head.framing {
                BodyFraming::Ended | BodyFraming::Sized(0) => return Ok(None),
                BodyFraming::Sized(left) => {
                    let there = self.0.fill_buf().await?;
                    let bytes =
                        there[..there.len().min(usize::try_from(left).unwrap_or(usize::MAX))].to_vec();
                    if bytes.is_empty() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    head.framing = BodyFraming::Sized(left - bytes.len() as u64);
                    bytes
                }
                BodyFraming::UntilClose => {
                    let bytes = self.0.fill_buf().await?.to_vec();
                    if bytes.is_empty() {
                        return Ok(None);
                    }
                    bytes
                }
                BodyFraming::Chunked => {
                    let mut size = String::new();
                    self.0.read_line(&mut size).await?;
                    let Ok(size) = usize::from_str_radix(size.trim(), 16) else {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    };
                    let mut bytes = vec![0; size + 2];
                    self.0.read_exact(&mut bytes).await?;
                    assert_eq!(bytes.split_off(size), b"\r\n", "the end of a chunk");
                    if size == 0 {
                        head.framing = BodyFraming::Ended;
                        return Ok(None);
                    }
                    return Ok(Some(bytes));
                }
            };
            self.0.consume(bytes.len());
            Ok(Some(bytes))
        })
        .await
    }

    /// Reads the rest of a response.
    pub async fn rest(&mut self, mut head: Head, mut body: Vec<u8>) -> Answer {
        let is_whole = loop {
            match self.more(&mut head).await {
                Ok(Some(bytes)) => body.extend(bytes),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        Answer { head, body, is_whole }
    }

    /// Sends a request and reads its response; `fields` are header lines without line ends.
    pub async fn send(&mut self, method: &str, target: &str, fields: &[&str]) -> Answer {
        self.write(request(method, target, fields)).await;
        let head = self.head_to(method).await.expect("an answer");
        self.rest(head, Vec::new()).await
    }
}

/// A request without a body; the default host is `a`.
pub fn request(method: &str, target: &str, fields: &[&str]) -> String {
    let has_host = fields.iter().any(|line| line.to_ascii_lowercase().starts_with("host:"));
    let host = if has_host { "" } else { "Host: a\r\n" };
    format!("{method} {target} HTTP/1.1\r\n{host}{}\r\n", lines(fields))
}

/// Sends a request on a new connection after all loads have ended.
pub async fn send(proxy: &ProxyServer, method: &str, target: &str, fields: &[&str]) -> Answer {
    // A client may have its response before the response is stored.
    with_timeout(proxy.proxy().cache().wait_idle()).await;
    Client::connect(proxy).await.send(method, target, fields).await
}

pub async fn get(proxy: &ProxyServer, target: &str) -> Answer {
    send(proxy, "GET", target, &[]).await
}

/// Connects `count` clients; each sends the request for its index.
pub async fn send_concurrently(
    proxy: &ProxyServer,
    count: usize,
    request_for: impl Fn(usize) -> String,
) -> Vec<Client> {
    let clients = (0..count).map(|number| {
        let request = request_for(number);
        async move {
            let mut client = Client::connect(proxy).await;
            client.write(request).await;
            client
        }
    });
    join_all(clients).await
}

/// The responses to concurrent requests.
pub async fn answers(clients: Vec<Client>) -> Vec<Answer> {
    let answers = clients.into_iter().map(|mut client| async move {
        let head = client.head_to("GET").await.expect("an answer");
        client.rest(head, Vec::new()).await
    });
    join_all(answers).await
}

/// Panics if the future takes longer than the hang guard.
pub async fn with_timeout<T>(future: impl Future<Output = T>) -> T {
    let clock = Live::new();
    before(&clock, clock.now() + HANG_GUARD, future).await.expect("no event within the hang guard")
}

/// Yields until the condition holds.
pub async fn until(condition: impl Fn() -> bool) {
    with_timeout(async {
        while !condition() {
            stockade_model::time::yield_now().await;
        }
    })
    .await;
}

/// Yields until this much time has passed.
pub async fn elapse(time: Duration) {
    let clock = Live::new();
    let end = clock.now() + time;
    until(|| clock.now() >= end).await;
}

/// An HTTP/2 client connection.
pub struct Http2(h2::client::SendRequest<bytes::Bytes>);

/// The response to one request.
pub struct Stream {
    pub head: http::response::Parts,
    body: h2::RecvStream,
}

impl Http2 {
    pub async fn connect(proxy: &ProxyServer) -> Self {
        let tcp = with_timeout(TcpStream::connect(proxy.addresses()[0])).await.expect("an open connection");
        let (requests, connection) = with_timeout(
            // A large window, so that unread streams do not block the others.
            h2::client::Builder::new().initial_connection_window_size(64 << 20).handshake(tcp),
        )
        .await
        .expect("it speaks HTTP/2");
        drop(Handle::current().spawn(connection));
        Self(requests)
    }

    pub async fn get(&self, path: &str) -> Stream {
        self.get_with(path, &[]).await
    }

    /// Sends a request without waiting for its answer. Dropping the future cancels it.
    pub async fn start_get(&self, path: &str) -> h2::client::ResponseFuture {
        let mut requests = with_timeout(self.0.clone().ready()).await.expect("a stream");
        let request = http::Request::builder().uri(format!("http://a{path}")).body(()).expect("a request");
        requests.send_request(request, true).expect("a stream").0
    }

    pub async fn get_with(&self, path: &str, fields: &[(&str, &str)]) -> Stream {
        self.send("GET", path, fields).await
    }

    /// Sends a request whose body is not announced, in one frame of its own.
    pub async fn send_content(&self, method: &str, path: &str, content: &str) -> Stream {
        let mut requests = with_timeout(self.0.clone().ready()).await.expect("a stream");
        let request = http::Request::builder().method(method).uri(format!("http://a{path}")).body(());
        let (answer, mut body) = requests.send_request(request.expect("a request"), false).expect("a stream");
        body.send_data(bytes::Bytes::copy_from_slice(content.as_bytes()), true).expect("an open stream");
        let (head, body) = with_timeout(answer).await.expect("an answer").into_parts();
        Stream { head, body }
    }

    pub async fn send(&self, method: &str, path: &str, fields: &[(&str, &str)]) -> Stream {
        let mut requests = with_timeout(self.0.clone().ready()).await.expect("a stream");
        let request = http::Request::builder().method(method).uri(format!("http://a{path}"));
        let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(()).expect("a request");
        let (answer, _) = requests.send_request(request, true).expect("a stream");
        let (head, body) = with_timeout(answer).await.expect("an answer").into_parts();
        Stream { head, body }
    }
}

impl Stream {
    /// Reads a part of the body; `None` at its end, an error after a reset.
    pub async fn more(&mut self) -> Result<Option<Vec<u8>>, h2::Error> {
        let Some(piece) = with_timeout(self.body.data()).await.transpose()? else { return Ok(None) };
        self.body.flow_control().release_capacity(piece.len())?;
        Ok(Some(piece.to_vec()))
    }

    /// The trailers, after the body.
    pub async fn trailers(&mut self) -> Option<http::HeaderMap> {
        with_timeout(self.body.trailers()).await.expect("an open stream")
    }

    /// Reads the rest of the body and appends it to `body`.
    pub async fn rest(&mut self, mut body: Vec<u8>) -> Result<Vec<u8>, h2::Error> {
        while let Some(more) = self.more().await? {
            body.extend(more);
        }
        Ok(body)
    }
}
