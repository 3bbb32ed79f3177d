//! HTTP/1.1 and HTTP/1.0.

use stockade_http::frontend::FrontendSettings;

use crate::frontend::support::{
    connect, exchange, read_response, read_to_close, send, start, status, wait_for_stats,
};

#[test]
fn connection_stays_open_between_requests() {
    let (frontend, handler) = start(FrontendSettings::default());
    let mut tcp = connect(frontend.addresses()[0]);
    for n in 0..3 {
        send(&mut tcp, format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        let (head, body) = read_response(&mut tcp);
        assert_eq!((status(&head), body.as_str()), ("200", "hello"));
        assert!(!head.contains("connection:") && head.contains("date: "), "{head}");
    }
    assert_eq!(handler.requests(), ["GET /0 0", "GET /1 0", "GET /2 0"]);
    let stats = frontend.stats();
    assert_eq!((stats.connections_accepted, stats.connections, stats.requests_received), (1, 1, 3));
    drop(tcp);
    wait_for_stats(&frontend, |stats| stats.connections == 0 && stats.requests_in_flight == 0);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let (frontend, handler) = start(FrontendSettings::default());
    let one = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    let two =
        "POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\ndef\r\n0\r\nT: x\r\n\r\n";
    let last = "GET /c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let responses =
        exchange(frontend.addresses()[0], format!("{one}{two}\r\n{last}GET /d HTTP/1.1\r\n").as_bytes());
    assert_eq!(handler.requests(), ["POST /a 3", "POST /b 3", "GET /c 0"]);
    let bodies: Vec<_> = responses.split("\r\n\r\n").skip(1).map(|part| part.split("HTTP").next()).collect();
    assert_eq!(bodies, [Some("abc"), Some("def"), Some("hello")]);
}

#[test]
fn http_1_0_closes_and_is_not_chunked() {
    let (frontend, _) = start(FrontendSettings::default());
    let address = frontend.addresses()[0];
    let response = exchange(address, b"GET /unsized HTTP/1.0\r\n\r\n");
    assert!(response.starts_with("HTTP/1.0 200") && response.ends_with("\r\n\r\nunsized"), "{response}");
    assert!(!response.contains("chunked"), "{response}");
    // With keep-alive the connection stays open.
    let mut tcp = connect(address);
    for _ in 0..2 {
        send(&mut tcp, b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert!(read_response(&mut tcp).0.contains("connection: keep-alive"));
    }
    send(&mut tcp, b"GET / HTTP/1.0\r\n\r\n");
    assert!(read_to_close(&mut tcp).ends_with("hello"));
    // In HTTP/1.1 a body of unknown length is chunked.
    let response = exchange(address, b"GET /unsized HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(
        response.contains("transfer-encoding: chunked") && response.contains("7\r\nunsized\r\n0\r\n"),
        "{response}"
    );
}

#[test]
fn continue_is_sent_when_the_handler_reads_the_body() {
    let (frontend, _) = start(FrontendSettings::default());
    let mut tcp = connect(frontend.addresses()[0]);
    let head = "HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    send(&mut tcp, format!("POST / {head}").as_bytes());
    assert!(read_response(&mut tcp).0.starts_with("HTTP/1.1 100"));
    send(&mut tcp, b"ok");
    assert_eq!(read_response(&mut tcp).1, "ok");
    send(&mut tcp, format!("POST /ignore-body {head}").as_bytes());
    assert!(read_to_close(&mut tcp).starts_with("HTTP/1.1 200"));
}

#[test]
fn upgrades_that_no_client_depends_on_are_ignored() {
    let (frontend, _) = start(FrontendSettings::default());
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nUpgrade: TLS/1.0, not-websocket\r\n\r\n",
        // The field has no meaning in HTTP/1.0.
        "GET / HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ] {
        let response = exchange(frontend.addresses()[0], request.as_bytes());
        assert!(response.contains(" 200 OK\r\n"), "{request}: {response}");
    }
}

#[test]
fn response_to_head_has_no_body() {
    let (frontend, _) = start(FrontendSettings::default());
    let response =
        exchange(frontend.addresses()[0], b"HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(response.contains("content-length: 5\r\n") && response.ends_with("\r\n\r\n"), "{response}");
}

#[test]
fn large_responses_arrive_complete() {
    let (frontend, _) = start(FrontendSettings::default());
    let request = b"GET /large-5000000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let response = exchange(frontend.addresses()[0], request);
    assert_eq!(response.split_once("\r\n\r\n").map(|(_, body)| body.len()), Some(5_000_000));
}

#[test]
fn a_panic_of_the_handler_closes_one_connection() {
    let (frontend, _) = start(FrontendSettings::default());
    let address = frontend.addresses()[0];
    assert_eq!(exchange(address, b"GET /panic HTTP/1.1\r\nHost: a\r\n\r\n"), "");
    assert!(
        exchange(address, b"GET /switch HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: close\r\n\r\n")
            .starts_with("HTTP/1.1 502")
    );
    let response = exchange(address, b"GET /connection HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(response.ends_with(&format!("\r\n\r\n{address} false")), "{response}");
    wait_for_stats(&frontend, |stats| stats.connections == 0 && stats.requests_in_flight == 0);
}

#[test]
fn request_is_dropped_when_the_client_closes() {
    let (frontend, handler) = start(FrontendSettings::default());
    let mut tcp = connect(frontend.addresses()[0]);
    send(&mut tcp, b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
    // A request counts as in flight before its handler starts.
    wait_for_stats(&frontend, |stats| stats.requests_in_flight == 1 && !handler.requests().is_empty());
    drop(tcp);
    wait_for_stats(&frontend, |stats| stats.requests_in_flight == 0 && stats.connections == 0);
    assert_eq!(handler.requests(), ["GET /never 0"]);
}
