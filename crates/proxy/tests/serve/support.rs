//! A proxy between origins that do what a test says, byte by byte, and clients that look at each byte.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::join_all;
use stockade_model::time::{Live, Runtime, before};
use stockade_proxy::{config::Config, server::Server};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    runtime::Handle,
};

/// What should happen within milliseconds has happened by then, or never does.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A connection, read through a buffer.
pub type Line = BufReader<TcpStream>;

/// An HTTP server of raw bytes. It ends with the runtime.
pub struct Origin {
    pub address: SocketAddr,
    heard: Arc<Mutex<Vec<Heard>>>,
    underway: Arc<AtomicUsize>,
}

/// A request as an origin has it.
#[derive(Clone, Debug)]
pub struct Heard {
    /// How many there were before it.
    pub number: usize,
    /// To its empty line.
    pub head: String,
}

impl Heard {
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
    /// `answer` is given each request and its connection, and gives that back if it goes on.
    pub async fn start<F>(answer: impl Fn(Heard, Line) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<Line>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (heard, answer) = (Arc::<Mutex<Vec<Heard>>>::default(), Arc::new(answer));
        let underway = Arc::<AtomicUsize>::default();
        let (all, now) = (Arc::clone(&heard), Arc::clone(&underway));
        drop(Handle::current().spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let (all, now, answer) = (Arc::clone(&all), Arc::clone(&now), Arc::clone(&answer));
                drop(Handle::current().spawn(async move {
                    let _ = tcp.set_nodelay(true);
                    let mut line = BufReader::new(tcp);
                    while let Some(head) = read_head(&mut line).await {
                        let one = {
                            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                            let one = Heard { number: all.len(), head };
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
        Self { address, heard, underway }
    }

    /// Answers each request with the bytes that `answer` makes of it.
    pub async fn saying(answer: impl Fn(&Heard) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::start(move |heard, mut line| {
            let bytes = answer(&heard);
            async move { line.write_all(&bytes).await.ok().map(|()| line) }
        })
        .await
    }

    pub fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many requests it has had.
    pub fn count(&self) -> usize {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// How many it is answering.
    pub fn underway(&self) -> usize {
        self.underway.load(SeqCst)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// The head of a message, to its empty line. None: there is no other.
pub async fn read_head(line: &mut Line) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if line.read_until(b'\n', &mut head).await.ok()? == 0 {
            return None;
        }
    }
    Some(String::from_utf8(head).expect("a head is text"))
}

/// The first line of that name.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    lines.find(|line| line.0.eq_ignore_ascii_case(name)).map(|line| line.1.trim())
}

/// An answer that is sized; `fields` are lines without their ends.
pub fn sized(status: &str, fields: &[&str], body: &[u8]) -> Vec<u8> {
    let length = format!("Content-Length: {}", body.len());
    [format!("HTTP/1.1 {status}\r\n{}{length}\r\n\r\n", lines(fields)).as_bytes(), body].concat()
}

/// Lines of a head, with their ends.
pub fn lines(fields: &[&str]) -> String {
    fields.iter().flat_map(|line| [*line, "\r\n"]).collect()
}

/// 200, and may be stored for a minute.
pub fn good(body: &[u8]) -> Vec<u8> {
    sized("200 OK", &["Cache-Control: max-age=60"], body)
}

/// Bytes that say where they are, so that none can be lost, doubled or put elsewhere unnoticed.
pub fn content(bytes: usize) -> Vec<u8> {
    (0..bytes.div_ceil(8))
        .flat_map(|at| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .take(bytes)
        .collect()
}

/// A proxy in front of an origin. `more` is TOML, before the origin's table; `origins` is put into that.
pub async fn proxy_with(origin: &str, more: &str, origins: &str) -> Server {
    let config = config(origin, more, origins);
    let again = config.clone();
    Server::start(config, Box::new(move || Ok(again.clone()))).await.expect("a proxy")
}

pub fn config(origin: &str, more: &str, origins: &str) -> Config {
    let cache = if more.contains("[cache]") { "" } else { "[cache]\nstrategy = \"fallback\"\n" };
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\nthreads = 2\n[log]\nformat = \"none\"\n{cache}{more}\n\
         [[origin]]\nname = \"a\"\nurl = \"{origin}\"\nhealth = {{ failures = 1000 }}\n{origins}\n"
    );
    Config::parse("test.toml", &text).unwrap_or_else(|error| panic!("{error:?}\n{text}"))
}

pub async fn proxy(origin: &Origin) -> Server {
    proxy_with(&origin.url(), "", "connections = 2000").await
}

/// A client's connection.
pub struct Client(pub Line);

/// The head of an answer.
#[derive(Clone, Debug)]
pub struct Head {
    pub status: u16,
    pub text: String,
    how: How,
}

#[derive(Clone, Copy, Debug)]
enum How {
    /// So many bytes are still to come.
    Sized(u64),
    Chunked,
    /// Its last chunk was there.
    Ended,
    UntilClose,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub head: Head,
    pub body: Vec<u8>,
    /// Whether it ended as it said that it would.
    pub is_whole: bool,
}

impl Head {
    pub fn read(text: String, is_bodiless: bool) -> Self {
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut head = Self { status, text, how: How::UntilClose };
        head.how = if is_bodiless || status == 204 || status == 304 {
            How::Sized(0)
        } else if head.field("transfer-encoding").is_some() {
            How::Chunked
        } else {
            head.field("content-length")
                .map_or(How::UntilClose, |length| How::Sized(length.parse().expect("a number")))
        };
        head
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        field(&self.text, name)
    }

    /// What the cache says that it did.
    pub fn did(&self) -> &str {
        let told = self.field("cache-status").unwrap_or_default();
        told.rsplit("detail=").next().unwrap_or_default()
    }
}

impl Answer {
    pub fn status(&self) -> u16 {
        self.head.status
    }

    pub fn did(&self) -> &str {
        self.head.did()
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.field(name)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    /// That it is whole, and these bytes.
    #[track_caller]
    pub fn is(&self, body: &[u8]) {
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
    pub async fn connect(proxy: &Server) -> Self {
        let tcp = soon(TcpStream::connect(proxy.addresses()[0])).await.expect("somebody listens");
        Self(BufReader::new(tcp))
    }

    pub async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        soon(self.0.write_all(bytes.as_ref())).await.expect("somebody listens");
    }

    /// The head of a final answer to a request by this method.
    pub async fn head_to(&mut self, method: &str) -> io::Result<Head> {
        loop {
            let text = soon(read_head(&mut self.0)).await.ok_or(io::ErrorKind::UnexpectedEof)?;
            let head = Head::read(text, method == "HEAD");
            if head.status >= 200 {
                return Ok(head);
            }
        }
    }

    /// More of a body; None: that was all.
    pub async fn more(&mut self, head: &mut Head) -> io::Result<Option<Vec<u8>>> {
        soon(async {
            let bytes = match head.how {
                How::Ended | How::Sized(0) => return Ok(None),
                How::Sized(left) => {
                    let there = self.0.fill_buf().await?;
                    let bytes =
                        there[..there.len().min(usize::try_from(left).unwrap_or(usize::MAX))].to_vec();
                    if bytes.is_empty() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    head.how = How::Sized(left - bytes.len() as u64);
                    bytes
                }
                How::UntilClose => {
                    let bytes = self.0.fill_buf().await?.to_vec();
                    if bytes.is_empty() {
                        return Ok(None);
                    }
                    bytes
                }
                How::Chunked => {
                    let mut size = String::new();
                    self.0.read_line(&mut size).await?;
                    let Ok(size) = usize::from_str_radix(size.trim(), 16) else {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    };
                    let mut bytes = vec![0; size + 2];
                    self.0.read_exact(&mut bytes).await?;
                    assert_eq!(bytes.split_off(size), b"\r\n", "the end of a chunk");
                    if size == 0 {
                        head.how = How::Ended;
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

    /// The rest of an answer.
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

    /// Says a request and reads its answer; `fields` are lines without their ends.
    pub async fn ask(&mut self, method: &str, target: &str, fields: &[&str]) -> Answer {
        self.say(request(method, target, fields)).await;
        let head = self.head_to(method).await.expect("an answer");
        self.rest(head, Vec::new()).await
    }
}

/// A request without a body, to the host `a` unless a field says otherwise.
pub fn request(method: &str, target: &str, fields: &[&str]) -> String {
    let has_host = fields.iter().any(|line| line.to_ascii_lowercase().starts_with("host:"));
    let host = if has_host { "" } else { "Host: a\r\n" };
    format!("{method} {target} HTTP/1.1\r\n{host}{}\r\n", lines(fields))
}

/// Asks once, on a connection of its own, when no load is under way.
pub async fn ask(proxy: &Server, method: &str, target: &str, fields: &[&str]) -> Answer {
    // Who is answered may be so before the answer is stored.
    soon(proxy.proxy().cache().idle()).await;
    Client::connect(proxy).await.ask(method, target, fields).await
}

pub async fn get(proxy: &Server, target: &str) -> Answer {
    ask(proxy, "GET", target, &[]).await
}

/// So many clients that have each said something.
pub async fn crowd(proxy: &Server, count: usize, says: impl Fn(usize) -> String) -> Vec<Client> {
    let clients = (0..count).map(|number| {
        let says = says(number);
        async move {
            let mut client = Client::connect(proxy).await;
            client.say(says).await;
            client
        }
    });
    join_all(clients).await
}

/// The answers to what a crowd has said.
pub async fn answers(crowd: Vec<Client>) -> Vec<Answer> {
    let answers = crowd.into_iter().map(|mut client| async move {
        let head = client.head_to("GET").await.expect("an answer");
        client.rest(head, Vec::new()).await
    });
    join_all(answers).await
}

/// Awaits what has to happen.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    let clock = Live::new();
    before(&clock, clock.now() + PATIENCE, future).await.expect("it should have happened long ago")
}

/// Lets others run until it is so.
pub async fn until(is_so: impl Fn() -> bool) {
    soon(async {
        while !is_so() {
            stockade_model::time::yield_now().await;
        }
    })
    .await;
}

/// A client's connection of HTTP/2.
pub struct Http2(h2::client::SendRequest<bytes::Bytes>);

/// An answer to one of its requests.
pub struct Stream {
    pub head: http::response::Parts,
    body: h2::RecvStream,
}

impl Http2 {
    pub async fn connect(proxy: &Server) -> Self {
        let tcp = soon(TcpStream::connect(proxy.addresses()[0])).await.expect("somebody listens");
        let (requests, connection) = soon(
            // Streams that are not read must not hold up the others.
            h2::client::Builder::new().initial_connection_window_size(64 << 20).handshake(tcp),
        )
        .await
        .expect("it speaks HTTP/2");
        drop(Handle::current().spawn(connection));
        Self(requests)
    }

    pub async fn get(&self, path: &str) -> Stream {
        let mut requests = soon(self.0.clone().ready()).await.expect("a stream");
        let request = http::Request::get(format!("http://a{path}")).body(()).expect("a request");
        let (answer, _) = requests.send_request(request, true).expect("a stream");
        let (head, body) = soon(answer).await.expect("an answer").into_parts();
        Stream { head, body }
    }
}

impl Stream {
    /// More of the body; None: that was all. An error: a reset.
    pub async fn more(&mut self) -> Result<Option<Vec<u8>>, h2::Error> {
        let Some(piece) = soon(self.body.data()).await.transpose()? else { return Ok(None) };
        self.body.flow_control().release_capacity(piece.len())?;
        Ok(Some(piece.to_vec()))
    }

    /// All of the body, after what there is of it.
    pub async fn rest(&mut self, mut body: Vec<u8>) -> Result<Vec<u8>, h2::Error> {
        while let Some(more) = self.more().await? {
            body.extend(more);
        }
        Ok(body)
    }
}
