//! A server in place of Redis that sends replies without an end. A node reads a bounded part, and loads for itself.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use super::nodes::{self, MINUTE, MS, Node, Source, coalescing, until};
use stockade_cache::{Live, Runtime};
use stockade_services::{RedisCluster, RedisServer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// The bytes that the sockets of both ends buffer.
const SOCKETS_BYTES: usize = 16 << 20;

/// A reply: its start, and what is repeated after it.
#[derive(Clone, Copy, Debug)]
struct HostileReply {
    start: &'static str,
    repeated: &'static str,
    /// The bytes that are read of it.
    read_max: usize,
}

const A: &str =
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

const REPLIES: [HostileReply; 8] = [
    // Strings.
    HostileReply { start: "$9223372036854775807\r\n", repeated: A, read_max: 1 << 10 },
    HostileReply { start: "$90000000\r\n", repeated: A, read_max: 1 << 10 },
    HostileReply { start: "=90000000\r\ntxt:", repeated: A, read_max: 1 << 10 },
    // An array whose strings are short enough each.
    HostileReply { start: "*100000\r\n", repeated: "$20000000\r\n", read_max: 81 << 20 },
    HostileReply { start: "*9223372036854775807\r\n", repeated: ":1\r\n", read_max: 1 << 10 },
    HostileReply { start: "", repeated: "*1\r\n", read_max: 1 << 10 },
    // Lines.
    HostileReply { start: "+", repeated: A, read_max: 65 << 10 },
    HostileReply { start: "-ERR ", repeated: A, read_max: 65 << 10 },
];

/// Passes bytes on to a server and back, until it is hostile.
struct Relay {
    port: u16,
    state: Arc<RelayState>,
}

#[derive(Default)]
struct RelayState {
    reply: Mutex<Option<HostileReply>>,
    /// Of the hostile reply.
    sent: AtomicUsize,
    ended: AtomicUsize,
}

impl Relay {
    async fn before(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (port, live) = (listener.local_addr().unwrap().port(), Live::new());
        let state = Arc::<RelayState>::default();
        let relay = Self { port, state: Arc::clone(&state) };
        live.clone().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { continue };
                live.spawn(pass(client, server, Arc::clone(&state)));
            }
        });
        relay
    }

    fn turn_hostile(&self, reply: Option<HostileReply>) {
        self.state.sent.store(0, SeqCst);
        *self.state.reply.lock().unwrap() = reply;
    }
}

async fn pass(mut client: TcpStream, mut server: TcpStream, state: Arc<RelayState>) {
    let (mut from_client, mut from_server) = (vec![0; 16 << 10], vec![0; 16 << 10]);
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => match read {
                Ok(read) if read > 0 && server.write_all(&from_client[..read]).await.is_ok() => {}
                _ => return,
            },
            read = server.read(&mut from_server) => {
                let Ok(read) = read else { return };
                let reply = *state.reply.lock().unwrap();
                if let Some(reply) = reply {
                    send_until_closed(client, reply, &state).await;
                    return;
                }
                if read == 0 || client.write_all(&from_server[..read]).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn send_until_closed(mut client: TcpStream, reply: HostileReply, state: &RelayState) {
    let mut part = reply.start.as_bytes().to_vec();
    let is_array_of_strings = reply.repeated.starts_with('$');
    let repeated = if is_array_of_strings {
        [reply.repeated.as_bytes(), &vec![b'a'; 20_000_000], b"\r\n"].concat()
    } else {
        reply.repeated.repeat(10_000).into_bytes()
    };
    loop {
        for piece in part.chunks(64 << 10) {
            if client.write_all(piece).await.is_err() {
                state.ended.fetch_add(1, SeqCst);
                return;
            }
            state.sent.fetch_add(piece.len(), SeqCst);
        }
        part.clone_from(&repeated);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_replies_are_read_up_to_a_bound() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let relay = Relay::before(redis.port()).await;
    let source = Source::new(&live, MS);
    // Nothing but a bound ends a connection.
    let url = format!("redis://127.0.0.1:{}?timeout=60s&lease=5s", relay.port);
    let [node]: [Node; 1] = nodes::nodes(&url, &coalescing(MINUTE), true).await;
    for (number, reply) in REPLIES.into_iter().enumerate() {
        let before = format!("before {number}");
        assert_eq!(node.get(&before, &source).await.value, format!("{before} 0"));
        let ended = relay.state.ended.load(SeqCst);
        relay.turn_hostile(Some(reply));
        // The node loads for itself.
        let during = format!("during {number}");
        assert_eq!(node.get(&during, &source).await.value, format!("{during} 0"), "{reply:?}");
        until("the connection is closed", async || relay.state.ended.load(SeqCst) > ended).await;
        relay.turn_hostile(None);
        let sent = relay.state.sent.load(SeqCst);
        assert!(sent <= reply.read_max + SOCKETS_BYTES, "{reply:?}: {sent} bytes");
        until("it connects again", async || node.tier.is_connected()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_value_is_read() {
    let (redis, live) = (RedisServer::start().unwrap(), Live::new());
    let source = Source::new(&live, MS);
    let url = format!("{}?timeout=20s&lease=5s", redis.url());
    let [first, second]: [Node; 2] = nodes::nodes(&url, &coalescing(MINUTE), true).await;
    let long = "a".repeat(10 << 20);
    first.cache.insert("key".to_owned(), long.clone());
    first.tier.flush().await.unwrap();
    assert!(second.get("key", &source).await.value == long);
    assert_eq!(source.loads(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_of_a_cluster_are_bounded() {
    let (cluster, live) = (RedisCluster::start().unwrap(), Live::new());
    let ports = cluster.ports();
    let relay = Relay::before(ports[0]).await;
    // The first node that is asked sends a slot map without an end.
    relay.turn_hostile(Some(REPLIES[4]));
    let url = format!("redis+cluster://127.0.0.1:{}?timeout=20s", relay.port);
    let node = Node::at(&url, &coalescing(MINUTE), true);
    let source = Source::new(&live, MS);
    assert_eq!(node.get("key", &source).await.value, "key 0");
    until("a connection is closed", async || relay.state.ended.load(SeqCst) > 1).await;
    let (sent, ended) = (relay.state.sent.load(SeqCst), relay.state.ended.load(SeqCst));
    assert!(sent <= (ended + 1) * SOCKETS_BYTES, "{sent} bytes on {ended} connections");
    relay.turn_hostile(None);
    until("it connects", async || node.tier.is_connected()).await;
}
