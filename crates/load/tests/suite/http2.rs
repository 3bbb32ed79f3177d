//! HTTP/2: many requests per connection, and servers that close it gracefully.

use std::{
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use bytes::Bytes;
use h2::{
    Reason, RecvStream,
    server::{Connection, SendResponse},
};
use http::{Method, Request, Response};
use stockade_load::{
    ClientOptions, generator::LoadTest, sample::FailureClass, template::RequestTemplate, traffic::Traffic,
};
use tokio::{net::TcpStream, runtime::Builder, task::LocalSet};

use super::stub::{closed, load, run};

type ServerConnection = Connection<TcpStream, Bytes>;
type ServerRequest = (Request<RecvStream>, SendResponse<Bytes>);

/// A server that passes each request, its connection and its index within it to `serve`; and its connection count.
fn server<F: Future<Output = ()> + 'static>(
    serve: impl Fn(ServerRequest, &mut ServerConnection, usize) -> F + Send + Clone + 'static,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    thread::spawn(move || {
        listener.set_nonblocking(true).expect("a socket");
        let runtime = Builder::new_current_thread().enable_io().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
            while let Ok((tcp, _)) = listener.accept().await {
                counted.fetch_add(1, Relaxed);
                let serve = serve.clone();
                tokio::task::spawn_local(async move {
                    let Ok(mut connection) = h2::server::handshake(tcp).await else { return };
                    let mut index = 0;
                    while let Some(Ok(request)) = connection.accept().await {
                        let serving = serve(request, &mut connection, index);
                        tokio::task::spawn_local(serving);
                        index += 1;
                    }
                });
            }
        });
    });
    (address, connections)
}

fn send_hello(mut respond: SendResponse<Bytes>) {
    if let Ok(mut body) = respond.send_response(Response::new(()), false) {
        let _ = body.send_data(Bytes::from_static(b"hello"), true);
    }
}

fn http2(load: LoadTest) -> LoadTest {
    LoadTest { options: ClientOptions { http2: true, ..ClientOptions::default() }, ..load }
}

#[test]
fn closed_loops_have_a_connection_each_and_rates_share_one() {
    let (address, connections) = server(|(_, respond), _, _| async { send_hello(respond) });
    let url = format!("http://{address}/");
    let summary = run(&http2(load(&url, closed(3, 30))));
    assert_eq!(
        (summary.measured.successes, summary.measured.bytes_in),
        (30, 150),
        "{:?}",
        summary.measured.errors
    );
    assert_eq!((summary.connections, connections.swap(0, Relaxed)), (3, 3));
    let plan = super::pacing::constant("1000/s", std::time::Duration::from_millis(50));
    let summary = run(&http2(load(&url, plan)));
    assert_eq!((summary.measured.successes, summary.connections, connections.load(Relaxed)), (50, 1, 1));
}

#[test]
fn graceful_shutdown_fails_no_request() {
    // As nginx does after `keepalive_requests`: GOAWAY precedes the last response.
    let (address, connections) = server(|(_, respond), connection, index| {
        if index == 9 {
            connection.graceful_shutdown();
        }
        async { send_hello(respond) }
    });
    let summary = run(&http2(load(&format!("http://{address}/"), closed(2, 200))));
    assert_eq!(summary.measured.successes, 200, "{:?}", summary.measured.errors);
    assert!(connections.load(Relaxed) >= 10, "{connections:?}");
}

#[test]
fn refused_streams_are_resent() {
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refused);
    let (address, _) = server(move |(_, mut respond), _, _| {
        let is_refused = counted.fetch_add(1, Relaxed).is_multiple_of(2);
        async move {
            if is_refused {
                respond.send_reset(Reason::REFUSED_STREAM);
            } else {
                send_hello(respond);
            }
        }
    });
    let summary = run(&http2(load(&format!("http://{address}/"), closed(1, 10))));
    assert_eq!(
        (summary.measured.successes, summary.measured.resent),
        (10, 10),
        "{:?}",
        summary.measured.errors
    );
    let (address, _) =
        server(|(_, mut respond), _, _| async move { respond.send_reset(Reason::ENHANCE_YOUR_CALM) });
    let summary = run(&http2(load(&format!("http://{address}/"), closed(1, 10))));
    assert_eq!(summary.measured.failures_of(FailureClass::Reset), 10, "{:?}", summary.measured.errors);
}

#[test]
fn request_body_is_sent_while_the_response_arrives() {
    // An echo: the head at once, then each chunk when it arrives.
    let (address, _) = server(|(request, mut respond), _, _| async move {
        let mut received = request.into_body();
        let Ok(mut sent) = respond.send_response(Response::new(()), false) else { return };
        while let Some(Ok(chunk)) = received.data().await {
            let _ = received.flow_control().release_capacity(chunk.len());
            if sent.send_data(chunk, false).is_err() {
                return;
            }
        }
        let _ = sent.send_data(Bytes::new(), true);
    });
    let url = format!("http://{address}/");
    let mut template = RequestTemplate::new(Method::POST, url.parse().unwrap());
    template.body = vec![b'x'; 1 << 20].into();
    let load =
        LoadTest { traffic: Arc::new(Traffic::single_unchecked(template)), ..load(&url, closed(2, 6)) };
    let summary = run(&http2(load));
    assert_eq!(
        (summary.measured.successes, summary.measured.bytes_in),
        (6, 6 << 20),
        "{:?}",
        summary.measured.errors
    );
}
