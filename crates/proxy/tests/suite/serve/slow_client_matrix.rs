//! Every transfer in both protocols, with a client that is slow in every way. Each cell states the expected result.
//!
//! | | idle timeout, full table, drain | reads or sends nothing, one byte, single bytes |
//! |---|---|---|
//! | responses | sent whole | cut within `timeouts.write` |
//! | uploads | received whole | 408 within `timeouts.body` |

use std::{sync::Arc, thread, time::Duration};

use bytes::Bytes;
use stockade_http::frontend::DrainSummary;
use stockade_model::time::{Live, Runtime};
use stockade_proxy::server::ProxyServer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::Handle,
    sync::Semaphore,
};

use crate::serve::support::*;

/// More than the sockets of both ends hold.
const LARGE_BYTES: usize = 12 << 20;
const UPLOAD_BYTES: usize = 200_000;
/// The slow client has less than an eighth of them.
const CONNECTIONS_MAX: usize = 16;
/// More than the proxy buffers before it sends the request on.
const UPLOAD_STARTED_BYTES: usize = 70_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transfer {
    /// Of a stored body in one piece.
    Hit,
    /// Of a stored body in several chunks.
    HitInPieces,
    /// Of a body that is still being loaded for another client.
    ReadAlong,
    /// Of a body that is not stored.
    PassingThrough,
    Upload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// How much a client takes of a response, or sends of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stall {
    /// In HTTP/2, a window of 0.
    Nothing,
    /// In HTTP/2, a window of 1.
    OneByte,
    SingleBytes,
}

const TRANSFERS: [Transfer; 5] =
    [Transfer::Hit, Transfer::HitInPieces, Transfer::ReadAlong, Transfer::PassingThrough, Transfer::Upload];
const PROTOCOLS: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

/// The origin and the proxy of one cell.
struct Cell {
    transfer: Transfer,
    protocol: Protocol,
    origin: Origin,
    proxy: ProxyServer,
    /// A permit lets the origin send the second half of what is read along.
    gate: Arc<Semaphore>,
    body: Arc<Vec<u8>>,
}

/// A request in progress.
enum SlowClient {
    Http1 { client: Client, unsent: Vec<u8> },
    Http2 { stream: h2::RecvStream, taken: usize },
    Http2Upload { answer: h2::client::ResponseFuture, sender: h2::SendStream<Bytes>, unsent: Bytes },
}

/// Runs `check` for each transfer in both protocols.
async fn for_each_cell(settings: &str, check: impl AsyncFn(Cell)) {
    let body = Arc::new(content(LARGE_BYTES));
    for transfer in TRANSFERS {
        for protocol in PROTOCOLS {
            eprintln!("{transfer:?}, {protocol:?}");
            check(Cell::start(transfer, protocol, settings, &body).await).await;
        }
    }
}

impl Cell {
    async fn start(transfer: Transfer, protocol: Protocol, settings: &str, body: &Arc<Vec<u8>>) -> Self {
        let gate = Arc::new(Semaphore::new(0));
        let origin = origin(body, &gate).await;
        let settings = format!(
            "{settings}\n[cache]\nstrategy = \"fallback\"\nload = {{ deadline = \"1h\", soft_timeout = \"none\" }}\n\
             limit = {{ bytes = \"256MiB\", max_object = \"20MiB\" }}\n"
        );
        let proxy = proxy_with(&origin.url(), &settings, "").await;
        Self { transfer, protocol, origin, proxy, gate, body: Arc::clone(body) }
    }

    fn target(&self) -> &'static str {
        match self.transfer {
            Transfer::Hit => "/hit",
            Transfer::HitInPieces => "/pieces",
            Transfer::ReadAlong => "/gated",
            Transfer::PassingThrough => "/private",
            Transfer::Upload => "/upload",
        }
    }

    /// Requests that have ended.
    fn ended(&self) -> u64 {
        self.proxy.proxy().router().routes[0].stats().outcomes.requests()
    }

    /// Requests that end before the slow one, or while it runs.
    fn others(&self) -> u64 {
        u64::from(self.transfer != Transfer::PassingThrough && self.transfer != Transfer::Upload)
    }

    /// Starts the transfer, up to the head of the response or the start of the upload, with `sent` bytes.
    async fn begin(&self, window_bytes: u32, sent: usize) -> SlowClient {
        let leader = match self.transfer {
            Transfer::Hit | Transfer::HitInPieces => {
                get(&self.proxy, self.target()).await.assert_body(&self.body);
                None
            }
            Transfer::ReadAlong => {
                let mut leader = Client::connect(&self.proxy).await;
                leader.write(request("GET", self.target(), &[])).await;
                let head = leader.head_to("GET").await.expect("an answer");
                Some((leader, head))
            }
            Transfer::PassingThrough | Transfer::Upload => None,
        };
        let client = match self.protocol {
            Protocol::Http1 => self.begin_http1(sent).await,
            Protocol::Http2 => self.begin_http2(window_bytes, sent).await,
        };
        if let Some((mut leader, head)) = leader {
            self.gate.add_permits(1);
            leader.rest(head, Vec::new()).await.assert_body(&self.body);
        }
        until(|| self.ended() >= self.others()).await;
        client
    }

    async fn begin_http1(&self, sent: usize) -> SlowClient {
        let mut client = Client::connect(&self.proxy).await;
        if self.transfer == Transfer::Upload {
            let head = format!("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: {UPLOAD_BYTES}\r\n\r\n");
            client.write(head).await;
            let (now, unsent) = self.body[..UPLOAD_BYTES].split_at(sent);
            client.write(now).await;
            return SlowClient::Http1 { client, unsent: unsent.to_vec() };
        }
        client.write(request("GET", self.target(), &[])).await;
        with_timeout(client.0.get_ref().readable()).await.expect("an answer");
        SlowClient::Http1 { client, unsent: Vec::new() }
    }

    async fn begin_http2(&self, window_bytes: u32, sent: usize) -> SlowClient {
        let tcp = with_timeout(TcpStream::connect(self.proxy.addresses()[0])).await.expect("a connection");
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(window_bytes).initial_connection_window_size(64 << 20);
        let (requests, connection) = with_timeout(builder.handshake::<_, Bytes>(tcp)).await.expect("HTTP/2");
        drop(Handle::current().spawn(connection));
        let mut requests = with_timeout(requests.ready()).await.expect("a stream");
        let is_upload = self.transfer == Transfer::Upload;
        let method = if is_upload { "POST" } else { "GET" };
        let url = format!("http://a{}", self.target());
        let request = http::Request::builder().method(method).uri(url).body(()).expect("a request");
        let (answer, mut sender) = requests.send_request(request, !is_upload).expect("a stream");
        if is_upload {
            let mut unsent = Bytes::copy_from_slice(&self.body[..UPLOAD_BYTES]);
            send_http2(&mut sender, unsent.split_to(sent)).await;
            return SlowClient::Http2Upload { answer, sender, unsent };
        }
        let stream = with_timeout(answer).await.expect("an answer").into_body();
        SlowClient::Http2 { stream, taken: 0 }
    }

    /// Completes the transfer at full speed, and checks that nothing of it was lost.
    async fn finish(&self, client: SlowClient) {
        match client {
            SlowClient::Http1 { mut client, unsent } => {
                client.write(unsent).await;
                let head = client.head_to("GET").await.expect("an answer");
                let answer = client.rest(head, Vec::new()).await;
                assert_eq!(answer.status(), 200);
                answer.assert_body(&self.expected());
            }
            SlowClient::Http2 { mut stream, .. } => {
                assert!(rest_of(&mut stream).await == self.expected(), "another body");
            }
            SlowClient::Http2Upload { answer, mut sender, unsent } => {
                send_http2(&mut sender, unsent).await;
                sender.send_data(Bytes::new(), true).expect("an open stream");
                let answer = with_timeout(answer).await.expect("an answer");
                assert_eq!(answer.status(), 200);
                assert_eq!(rest_of(&mut answer.into_body()).await, self.expected());
            }
        }
    }

    fn expected(&self) -> Vec<u8> {
        if self.transfer == Transfer::Upload {
            upload_answer(&self.body[..UPLOAD_BYTES])
        } else {
            self.body.to_vec()
        }
    }

    /// Stalls until the proxy has ended the request.
    async fn stall(&self, client: SlowClient, stall: Stall) {
        let ended = self.others();
        match client {
            SlowClient::Http1 { client, unsent } if self.transfer == Transfer::Upload => {
                self.stall_upload_http1(client, &unsent, stall, ended).await;
            }
            SlowClient::Http1 { mut client, .. } => {
                while self.ended() == ended {
                    if stall != Stall::Nothing {
                        with_timeout(client.0.get_mut().read_u8()).await.expect("a byte");
                    }
                    self.pause(stall, ended).await;
                }
                let mut rest = Vec::new();
                let _ = with_timeout(client.0.get_mut().read_to_end(&mut rest)).await;
                assert!(rest.len() < LARGE_BYTES, "the response is whole");
            }
            SlowClient::Http2 { mut stream, mut taken } => {
                let is_reset = loop {
                    match with_timeout(stream.data()).await {
                        Some(Ok(piece)) => taken += piece.len(),
                        Some(Err(_)) => break true,
                        None => break false,
                    }
                    if stall == Stall::SingleBytes {
                        pause().await;
                        let _ = stream.flow_control().release_capacity(1);
                    }
                };
                assert!(is_reset && taken < 64 << 10, "{taken} bytes are taken");
            }
            SlowClient::Http2Upload { answer, sender, unsent } => {
                self.stall_upload_http2(answer, sender, unsent, stall).await;
            }
        }
        until(|| self.ended() == ended + 1 && self.origin.in_progress() == 0).await;
        let other = get(&self.proxy, "/small").await;
        assert_eq!(other.status(), 200);
    }

    async fn stall_upload_http1(&self, mut client: Client, unsent: &[u8], stall: Stall, ended: u64) {
        for byte in unsent {
            if self.ended() > ended {
                break;
            }
            if stall == Stall::SingleBytes {
                let _ = with_timeout(client.0.write_u8(*byte)).await;
            }
            self.pause(stall, ended).await;
        }
        let head = client.head_to("POST").await.expect("an answer");
        assert_eq!(head.status, 408);
    }

    async fn stall_upload_http2(
        &self,
        answer: h2::client::ResponseFuture,
        mut sender: h2::SendStream<Bytes>,
        mut unsent: Bytes,
        stall: Stall,
    ) {
        let sending = async {
            while stall == Stall::SingleBytes && !unsent.is_empty() {
                pause().await;
                let _ = sender.send_data(unsent.split_to(1), false);
            }
            std::future::pending::<()>().await;
        };
        let status = tokio::select! {
            answer = with_timeout(answer) => answer.map(|answer| answer.status().as_u16()),
            () = sending => Ok(0),
        };
        assert_eq!(status.expect("an answer"), 408);
    }

    /// Waits a moment between single bytes, and otherwise until the request has ended.
    async fn pause(&self, stall: Stall, ended: u64) {
        if stall == Stall::SingleBytes {
            pause().await;
        } else {
            until(|| self.ended() > ended).await;
        }
    }
}

/// Between two bytes.
async fn pause() {
    let clock = Live::new();
    clock.sleep_until(clock.now() + Duration::from_millis(5)).await;
}

async fn send_http2(sender: &mut h2::SendStream<Bytes>, mut bytes: Bytes) {
    while !bytes.is_empty() {
        sender.reserve_capacity(bytes.len());
        let capacity = with_timeout(std::future::poll_fn(|cx| sender.poll_capacity(cx))).await;
        let piece = bytes.split_to(capacity.expect("an open stream").expect("capacity").min(bytes.len()));
        sender.send_data(piece, false).expect("an open stream");
    }
}

async fn rest_of(stream: &mut h2::RecvStream) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(piece) = with_timeout(stream.data()).await {
        let piece = piece.expect("no reset");
        let _ = stream.flow_control().release_capacity(piece.len());
        body.extend_from_slice(&piece);
    }
    body
}

fn upload_answer(body: &[u8]) -> Vec<u8> {
    let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
    format!("{} {sum}", body.len()).into_bytes()
}

async fn origin(body: &Arc<Vec<u8>>, gate: &Arc<Semaphore>) -> Origin {
    let (body, gate) = (Arc::clone(body), Arc::clone(gate));
    Origin::start(move |received, mut line| {
        let (body, gate) = (Arc::clone(&body), Arc::clone(&gate));
        async move {
            match received.target() {
                "/hit" => line.write_all(&good(&body)).await.ok()?,
                "/private" => {
                    line.write_all(&sized("200 OK", &["Cache-Control: no-store"], &body)).await.ok()?;
                }
                "/pieces" => {
                    let head =
                        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n";
                    line.write_all(head.as_bytes()).await.ok()?;
                    for piece in body.chunks(1 << 20) {
                        let size = format!("{:x}\r\n", piece.len());
                        line.write_all(&[size.as_bytes(), piece, b"\r\n"].concat()).await.ok()?;
                    }
                    line.write_all(b"0\r\n\r\n").await.ok()?;
                }
                "/gated" => {
                    let answer = good(&body);
                    let (first, second) = answer.split_at(answer.len() / 2);
                    line.write_all(first).await.ok()?;
                    gate.acquire().await.ok()?.forget();
                    line.write_all(second).await.ok()?;
                }
                "/upload" => {
                    let mut received_body = Vec::new();
                    if received.field("content-length").is_some() {
                        received_body.resize(UPLOAD_BYTES, 0);
                        line.read_exact(&mut received_body).await.ok()?;
                    } else {
                        read_chunks(&mut line, &mut received_body).await?;
                    }
                    line.write_all(&good(&upload_answer(&received_body))).await.ok()?;
                }
                _ => line.write_all(&good(b"page")).await.ok()?,
            }
            Some(line)
        }
    })
    .await
}

/// The body of a request of HTTP/2, whose length is unknown.
async fn read_chunks(line: &mut Connection, body: &mut Vec<u8>) -> Option<()> {
    loop {
        let mut size = String::new();
        tokio::io::AsyncBufReadExt::read_line(line, &mut size).await.ok()?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        let start = body.len();
        body.resize(start + size + 2, 0);
        line.read_exact(&mut body[start..]).await.ok()?;
        body.truncate(start + size);
        if size == 0 {
            return Some(());
        }
    }
}

/// A connection of another client that has been served: not refused, because connections that have just closed still count.
async fn connect_other(proxy: &ProxyServer) -> Client {
    loop {
        let mut client = Client::connect_from([127, 0, 9, 1], proxy).await;
        if client.send("GET", "/small", &[]).await.status() == 200 {
            return client;
        }
    }
}

/// Waits until a connection without requests has been closed as idle.
async fn let_idle_timeout_pass(proxy: &ProxyServer) {
    let mut idle = Client::connect(proxy).await;
    idle.send("GET", "/small", &[]).await.assert_body(b"page");
    assert!(with_timeout(idle.0.read_u8()).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_timeout_does_not_cut_transfers() {
    for_each_cell("[timeouts]\nidle = \"100ms\"", async |cell| {
        let client = cell.begin(65_535, UPLOAD_STARTED_BYTES).await;
        let_idle_timeout_pass(&cell.proxy).await;
        let_idle_timeout_pass(&cell.proxy).await;
        cell.finish(client).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_table_does_not_cut_transfers() {
    for_each_cell(&format!("[bounds]\nconnections = {CONNECTIONS_MAX}"), async |cell| {
        let client = cell.begin(65_535, UPLOAD_STARTED_BYTES).await;
        // Half of them are closed as idle.
        let mut others = Vec::new();
        for _ in 0..2 * CONNECTIONS_MAX {
            others.push(connect_other(&cell.proxy).await);
        }
        cell.finish(client).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_waits_for_transfers() {
    let origin = Origin::responding(|_| good(b"page")).await;
    // Longer than a drain gives connections whose responses are written.
    let other = proxy_with(&origin.url(), "[timeouts]\nidle = \"700ms\"\n", "").await;
    for_each_cell("", async |mut cell| {
        let client = cell.begin(65_535, UPLOAD_STARTED_BYTES).await;
        let address = cell.proxy.addresses()[0];
        let unused = proxy_with(&cell.origin.url(), "", "").await;
        let proxy = std::mem::replace(&mut cell.proxy, unused);
        let drained = thread::spawn(move || proxy.drain());
        while TcpStream::connect(address).await.is_ok() {}
        let_idle_timeout_pass(&other).await;
        cell.finish(client).await;
        let summary = drained.join().expect("the thread does not panic");
        assert_eq!(summary, DrainSummary { finished: 1, aborted: 0 });
    })
    .await;
}

async fn assert_ended(stall: Stall) {
    let window_bytes = u32::from(stall != Stall::Nothing);
    let timeouts = "[timeouts]\nwrite = \"200ms\"\nbody = \"200ms\"";
    for_each_cell(timeouts, async |cell| {
        let client = cell.begin(window_bytes, usize::from(stall != Stall::Nothing)).await;
        cell.stall(client, stall).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_to_clients_that_take_nothing_end() {
    assert_ended(Stall::Nothing).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_to_clients_that_take_one_byte_end() {
    assert_ended(Stall::OneByte).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_to_clients_that_take_single_bytes_end() {
    assert_ended(Stall::SingleBytes).await;
}
