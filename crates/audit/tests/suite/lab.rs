//! A cache between a small origin and its clients, in real bytes.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{
    future::{join_all, ready},
    stream::{self, StreamExt},
};
use http::{Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{body::Frame, server, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::sleep,
};

use super::faulty_cache::{Fault, FaultyCache};

/// An answer of the origin. It has no `Date` of its own.
pub struct Page {
    response: Response<String>,
    delay_ms: u64,
    is_cut: bool,
    is_closed: bool,
}

#[expect(clippy::needless_pass_by_value, reason = "calls are shorter")]
pub fn page(body: impl ToString) -> Page {
    Page { response: Response::new(body.to_string()), delay_ms: 0, is_cut: false, is_closed: false }
}

impl Page {
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.response.headers_mut().append(name, value.parse().unwrap());
        self
    }

    pub fn cached(self, directives: &str) -> Self {
        self.with("cache-control", directives)
    }

    pub fn status(mut self, status: u16) -> Self {
        *self.response.status_mut() = StatusCode::from_u16(status).unwrap();
        self
    }

    pub fn after_ms(self, delay_ms: u64) -> Self {
        Self { delay_ms, ..self }
    }

    /// The body lacks its last byte.
    pub fn cut(self) -> Self {
        Self { is_cut: true, ..self }
    }

    /// The connection closes without an answer.
    pub fn closed(self) -> Self {
        Self { is_closed: true, ..self }
    }
}

/// Answers the nth request, counted from 1.
pub type Script = fn(&Parts, usize) -> Page;

#[derive(Default)]
struct Log {
    requests: Vec<Parts>,
    running: usize,
    running_max: usize,
}

pub struct Lab {
    pub cache: FaultyCache,
    log: Arc<Mutex<Log>>,
}

pub struct Reply {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Reply {
    pub fn field(&self, name: &str) -> &str {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(own, _)| own.eq_ignore_ascii_case(name)).map_or("none", |(_, value)| value)
    }
}

/// The value of a request's field.
pub fn field<'a>(request: &'a Parts, name: &str) -> &'a str {
    request.headers.get(name).map_or("none", |value| value.to_str().unwrap())
}

type Body = BoxBody<Bytes, std::io::Error>;

async fn answer(log: Arc<Mutex<Log>>, script: Script, request: Parts) -> std::io::Result<Response<Body>> {
    let page = {
        let mut log = log.lock().unwrap();
        log.requests.push(request.clone());
        log.running += 1;
        log.running_max = log.running_max.max(log.running);
        script(&request, log.requests.len())
    };
    sleep(Duration::from_millis(page.delay_ms)).await;
    log.lock().unwrap().running -= 1;
    let broken = || std::io::Error::other("the script breaks it");
    if page.is_closed {
        return Err(broken());
    }
    let (mut head, body) = page.response.into_parts();
    let mut body = Bytes::from(body);
    if !page.is_cut {
        return Ok(Response::from_parts(head, Full::new(body).map_err(|never| match never {}).boxed()));
    }
    head.headers.insert(header::CONTENT_LENGTH, body.len().into());
    body.truncate(body.len() - 1);
    let end = stream::once(async move {
        // The part before reaches the cache.
        sleep(Duration::from_millis(20)).await;
        Err(broken())
    });
    let parts = stream::once(ready(Ok(Frame::data(body)))).chain(end);
    Ok(Response::from_parts(head, BodyExt::boxed(StreamBody::new(parts))))
}

impl Lab {
    pub async fn start(faults: &[Fault], script: Script) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let cache = FaultyCache::start(listener.local_addr().unwrap(), faults);
        let log = Arc::<Mutex<Log>>::default();
        let lab = Self { cache, log: log.clone() };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let log = log.clone();
                let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                    answer(log.clone(), script, request.into_parts().0)
                });
                let server = server::conn::http1::Builder::new().auto_date_header(false).clone();
                tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
            }
        });
        lab
    }

    /// Sends a request over a connection of its own.
    pub async fn send(&self, method: &str, path: &str, fields: &[(&str, &str)]) -> Reply {
        let mut stream = TcpStream::connect(self.cache.address).await.unwrap();
        let host = if fields.iter().any(|(name, _)| *name == "host") { "" } else { "host: pages.test\r\n" };
        let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let fields = fields.concat();
        // HTTP/1.0: the answer ends with the connection.
        let request = format!("{method} {path} HTTP/1.0\r\n{host}{fields}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        Reply { status: head[9..12].parse().unwrap(), head: head.to_owned(), body: body.to_owned() }
    }

    pub async fn get_with(&self, path: &str, fields: &[(&str, &str)]) -> Reply {
        self.send("GET", path, fields).await
    }

    /// The body of a page.
    pub async fn get(&self, path: &str) -> String {
        self.get_with(path, &[]).await.body
    }

    /// The bodies of this number of requests at the same time, sorted.
    pub async fn together(&self, requests: usize) -> String {
        let mut bodies = join_all((0..requests).map(|_| self.get("/"))).await;
        bodies.sort();
        bodies.join(" ")
    }

    pub fn advance(&self, seconds: u64) {
        self.cache.advance(Duration::from_secs(seconds));
    }

    /// The requests that the origin got.
    pub fn requests(&self) -> Vec<Parts> {
        self.log.lock().unwrap().requests.clone()
    }

    /// The most requests that the origin answered at the same time.
    pub fn running_max(&self) -> usize {
        self.log.lock().unwrap().running_max
    }
}
