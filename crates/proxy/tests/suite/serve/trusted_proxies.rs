//! Requests that load balancers pass on: their clients are named by `X-Forwarded-For` or the PROXY protocol.

use std::net::SocketAddr;

use serde_json::{Value, json};
use stockade_proxy::server::ProxyServer;
use tokio::io::{AsyncReadExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};

use crate::serve::support::*;

const BALANCER: [u8; 4] = [127, 0, 7, 1];
const CLIENT: [u8; 4] = [127, 0, 8, 1];
const TRUSTED: &str = "trusted_proxies = [\"127.0.7.0/24\", \"10.0.0.0/8\"]\n";
/// Two listeners: the second one expects the PROXY protocol.
const PROXIED: &str =
    "listen_proxy_protocol = [\"127.0.0.1:0\"]\ntrusted_proxies = [\"127.0.7.0/24\", \"10.0.0.0/8\"]\n";

async fn origin() -> Origin {
    Origin::responding(|received| good(received.head.to_ascii_lowercase().as_bytes())).await
}

/// A client of the listener for the PROXY protocol.
async fn connect_proxied(address: [u8; 4], proxy: &ProxyServer) -> Client {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::from((address, 0))).expect("a loopback address");
    let tcp = with_timeout(socket.connect(proxy.addresses()[1])).await.expect("an open connection");
    Client(BufReader::new(tcp))
}

async fn is_closed_without_a_byte(mut client: Client) -> bool {
    with_timeout(client.0.read_u8()).await.is_err()
}

/// The figures of the admin listener.
async fn stats(proxy: &ProxyServer) -> Value {
    let tcp = with_timeout(TcpStream::connect(proxy.admin().expect("an address"))).await;
    let mut admin = Client(BufReader::new(tcp.expect("an open connection")));
    let answer = admin.send("GET", "/stats", &["Host: localhost"]).await;
    serde_json::from_str(answer.text()).expect("JSON")
}

#[tokio::test]
async fn trusted_proxy_names_client_host_and_scheme() {
    let origin = origin().await;
    let proxy = proxy_with(&origin.url(), TRUSTED, "").await;
    let fields = [
        "Host: cache.internal",
        "X-Forwarded-For: 8.8.8.8, 203.0.113.9, 10.1.2.3",
        "X-Forwarded-Host: example.org",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Port: 81",
        "X-Real-IP: 8.8.8.8",
    ];
    let sent = Client::connect_from(BALANCER, &proxy).await.send("GET", "/a", &fields).await;
    for line in [
        "host: example.org",
        "x-forwarded-for: 203.0.113.9, 10.1.2.3, 127.0.7.1",
        "x-forwarded-host: example.org",
        "x-forwarded-proto: https",
    ] {
        assert!(sent.text().contains(&format!("\r\n{line}\r\n")), "{line}: {}", sent.text());
    }
    assert!(!sent.text().contains("x-forwarded-port") && !sent.text().contains("x-real-ip"));
    // Host and scheme are part of the key.
    let again = Client::connect_from(BALANCER, &proxy).await.send("GET", "/a", &fields).await;
    assert_eq!(again.outcome(), "hit");
    let direct = Client::connect_from(CLIENT, &proxy).await.send("GET", "/a", &["Host: example.org"]).await;
    assert_eq!(direct.outcome(), "miss");
}

#[tokio::test]
async fn fields_of_other_clients_do_not_count() {
    let origin = origin().await;
    let proxy = proxy_with(&origin.url(), TRUSTED, "").await;
    let fields = ["X-Forwarded-For: 10.0.0.1", "X-Forwarded-Host: evil", "X-Forwarded-Proto: https"];
    let sent = Client::connect_from(CLIENT, &proxy).await.send("GET", "/a", &fields).await;
    for line in ["host: a", "x-forwarded-for: 127.0.8.1", "x-forwarded-host: a", "x-forwarded-proto: http"] {
        assert!(sent.text().contains(&format!("\r\n{line}\r\n")), "{line}: {}", sent.text());
    }
}

/// The forwarded host has the grammar of `Host`: another one could pass `hosts` and name another host in the key.
#[tokio::test]
async fn forwarded_host_is_checked_as_host_is() {
    let origin = origin().await;
    let proxy = proxy_with(&origin.url(), &format!("{TRUSTED}hosts = [\"*.example.org\"]\n"), "").await;
    for host in [
        "admin.internal*x.example.org",
        "a*b.example.org",
        "a!b.example.org",
        "*",
        ":80",
        "a.example.org:99999",
        "a.example.org:",
        "user@a.example.org",
        "a.example.org/path",
        "a.example.org, \u{e4}.example.org",
    ] {
        let fields = ["Host: a.example.org", &format!("X-Forwarded-Host: {host}")];
        let answer = Client::connect_from(BALANCER, &proxy).await.send("GET", "/a", &fields).await;
        assert_eq!(answer.status(), 400, "{host}: {}", answer.text());
    }
    assert_eq!(origin.count(), 0);
    // An empty value names no host.
    let fields = ["Host: a.example.org", "X-Forwarded-Host: "];
    let answer = Client::connect_from(BALANCER, &proxy).await.send("GET", "/a", &fields).await;
    assert!(answer.text().contains("\r\nhost: a.example.org\r\n"), "{}", answer.text());
    let fields = ["Host: cache.internal", "X-Forwarded-Host: evil*, b.example.org:8443"];
    let answer = Client::connect_from(BALANCER, &proxy).await.send("GET", "/a", &fields).await;
    assert!(answer.text().contains("\r\nhost: b.example.org:8443\r\n"), "{}", answer.text());
    // Those of other clients do not count.
    let fields = ["Host: a.example.org", "X-Forwarded-Host: *"];
    let answer = Client::connect_from(CLIENT, &proxy).await.send("GET", "/b", &fields).await;
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn https_target_of_a_trusted_proxy_needs_no_tls() {
    let origin = origin().await;
    let proxy = proxy_with(&origin.url(), TRUSTED, "").await;
    let fields = ["Host: example.org", "X-Forwarded-Proto: https"];
    for (address, status) in [(BALANCER, 200), (CLIENT, 421)] {
        let mut client = Client::connect_from(address, &proxy).await;
        assert_eq!(client.send("GET", "https://example.org/a", &fields).await.status(), status);
    }
}

/// Version 1 and version 2, whose header also says that the client used TLS.
const HEADERS: [(&[u8], &str, &str); 2] = [
    (b"PROXY TCP4 203.0.113.9 198.51.100.1 56324 80\r\n", "203.0.113.9", "http"),
    (
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x14\xcb\0\x71\x0a\xc6\x33\x64\x01\xdc\x04\x01\xbb\x20\0\x05\x01\0\0\0\0",
        "203.0.113.10",
        "https",
    ),
];

#[tokio::test]
async fn proxy_protocol_names_the_client() {
    let origin = origin().await;
    let proxy = proxy_with(&origin.url(), PROXIED, "").await;
    for (number, (header, address, scheme)) in HEADERS.into_iter().enumerate() {
        // In single bytes, and together with the request.
        for is_split in [true, false] {
            let mut client = connect_proxied(BALANCER, &proxy).await;
            let head = request("GET", &format!("/{number}-{is_split}"), &[]);
            let bytes = [header, head.as_bytes()].concat();
            let pieces = if is_split { 1 } else { bytes.len() };
            for piece in bytes.chunks(pieces) {
                client.write(piece).await;
                tokio::task::yield_now().await;
            }
            let head = client.head_to("GET").await.expect("an answer");
            let answer = client.rest(head, Vec::new()).await;
            let expected = format!("\r\nx-forwarded-for: {address}\r\n");
            assert!(answer.text().contains(&expected), "{}", answer.text());
            assert!(answer.text().contains(&format!("\r\nx-forwarded-proto: {scheme}\r\n")));
            // The connection stays open for the same client.
            let more = client.send("GET", &format!("/{number}-{is_split}-more"), &[]).await;
            assert!(more.text().contains(&expected));
        }
    }
    // An IPv4 address has one spelling.
    let mut client = connect_proxied(BALANCER, &proxy).await;
    client.write(b"PROXY TCP6 ::ffff:203.0.113.9 ::1 56324 80\r\n").await;
    let answer = client.send("GET", "/mapped", &[]).await;
    assert!(answer.text().contains("\r\nx-forwarded-for: 203.0.113.9\r\n"), "{}", answer.text());
    // A health check of the load balancer itself.
    let mut client = connect_proxied(BALANCER, &proxy).await;
    client.write(b"PROXY UNKNOWN\r\n").await;
    let answer = client.send("GET", "/unknown", &[]).await;
    assert!(answer.text().contains("\r\nx-forwarded-for: 127.0.7.1\r\n"), "{}", answer.text());
}

#[tokio::test]
async fn connections_without_a_valid_header_are_closed() {
    let origin = origin().await;
    let proxy = proxy_with(&origin.url(), &format!("{PROXIED}[admin]\nlisten = \"127.0.0.1:0\"\n"), "").await;
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        b"PROXY TCP4 203.0.113.9 198.51.100.1 56324 66000\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        &[b"PROXY ", &[b'x'; 200][..]].concat(),
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
    ] {
        let mut client = connect_proxied(BALANCER, &proxy).await;
        client.write(bytes).await;
        if bytes.ends_with(b"\xff\xff") {
            let _ = client.0.get_mut().try_write(&[0; 8_192]);
        }
        assert!(is_closed_without_a_byte(client).await, "{}", bytes.escape_ascii());
    }
    // The connection ends within the header.
    let mut client = connect_proxied(BALANCER, &proxy).await;
    client.write(b"PROXY TCP4 203.0.113.9 ").await;
    tokio::io::AsyncWriteExt::shutdown(&mut client.0).await.expect("an open connection");
    assert!(is_closed_without_a_byte(client).await);
    // Only trusted proxies may send a header.
    let mut client = connect_proxied(CLIENT, &proxy).await;
    let _ = tokio::io::AsyncWriteExt::write_all(&mut client.0, HEADERS[0].0).await;
    assert!(is_closed_without_a_byte(client).await);
    assert_eq!(origin.count(), 0);
    // A client that goes away is not refused: health checks over TCP do that.
    let stats = stats(&proxy).await;
    assert_eq!((&stats["proxy_protocol_refused"], &stats["connections_refused"]), (&json!(5), &json!(0)));
}

#[tokio::test]
async fn header_has_the_time_of_a_head() {
    let origin = origin().await;
    let proxy = proxy_with(&origin.url(), &format!("{PROXIED}[timeouts]\nhead = \"50ms\"\n"), "").await;
    for bytes in [&b""[..], b"PROXY TCP4 203"] {
        let mut client = connect_proxied(BALANCER, &proxy).await;
        client.write(bytes).await;
        assert!(is_closed_without_a_byte(client).await);
    }
}

#[tokio::test]
async fn requests_of_one_client_are_bounded() {
    let origin = origin().await;
    let bounds =
        format!("{PROXIED}[bounds]\nrequests_per_client = \"3/h\"\nclient_prefix = {{ ipv4 = 32 }}\n");
    let proxy = proxy_with(&origin.url(), &format!("{bounds}burst_per_client = 3\n"), "").await;
    let statuses = async |mut client: Client, fields: &[&str]| {
        let mut statuses = Vec::new();
        for _ in 0..5 {
            let answer = client.send("GET", "/", fields).await;
            if answer.status() == 429 {
                let seconds: u64 = answer.field("retry-after").expect("a time").parse().expect("seconds");
                assert!((1..=1_200).contains(&seconds), "{seconds}");
                assert!(answer.is_whole);
            }
            statuses.push(answer.status());
        }
        statuses
    };
    let bounded = [200, 200, 200, 429, 429];
    assert_eq!(statuses(Client::connect_from(CLIENT, &proxy).await, &[]).await, bounded);
    // Behind the load balancer each client has its own bound, on one connection and on several.
    for field in ["X-Forwarded-For: 203.0.113.9", "X-Forwarded-For: 203.0.113.10"] {
        let client = Client::connect_from(BALANCER, &proxy).await;
        assert_eq!(statuses(client, &[field]).await, bounded, "{field}");
    }
    let mut client = connect_proxied(BALANCER, &proxy).await;
    client.write(b"PROXY TCP4 203.0.113.9 198.51.100.1 56324 80\r\n").await;
    assert_eq!(statuses(client, &[]).await, [429; 5]);
    let mut client = connect_proxied(BALANCER, &proxy).await;
    client.write(b"PROXY TCP4 203.0.113.11 198.51.100.1 56324 80\r\n").await;
    assert_eq!(statuses(client, &[]).await, bounded);
    // The load balancer itself has no bound.
    assert_eq!(statuses(Client::connect_from(BALANCER, &proxy).await, &[]).await, [200; 5]);
    assert_eq!(proxy.proxy().rate_refusals(), 2 + 4 + 5 + 2);
}

#[tokio::test]
async fn connections_behind_a_load_balancer_are_counted_by_client() {
    let origin = origin().await;
    let proxy =
        proxy_with(&origin.url(), &format!("{PROXIED}[bounds]\nconnections_per_client = 2\n"), "").await;
    let mut kept = Vec::new();
    for client_number in [1, 2] {
        for number in 0..3 {
            let mut client = connect_proxied(BALANCER, &proxy).await;
            let header = format!("PROXY TCP4 203.0.{client_number}.9 198.51.100.1 1 2\r\n");
            client.write(format!("{header}{}", request("GET", "/", &[]))).await;
            let head = client.head_to("GET").await;
            assert_eq!(head.is_ok(), number < 2, "client {client_number}, connection {number}");
            kept.push(client);
        }
    }
    // The load balancer's own connections are not bounded.
    for _ in 0..5 {
        let mut client = Client::connect_from(BALANCER, &proxy).await;
        assert_eq!(client.send("GET", "/", &[]).await.status(), 200);
        kept.push(client);
    }
}
