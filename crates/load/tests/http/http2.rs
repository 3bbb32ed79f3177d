//! HTTP/2: many requests on a connection, and servers that close it politely.

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
use stockade_load::{Options, drive::Load, sample::Class, target::Target, traffic::Traffic};
use tokio::{net::TcpStream, runtime::Builder, task::LocalSet};

use super::stub::{closed, load, run};

type Connected = Connection<TcpStream, Bytes>;
type Asked = (Request<RecvStream>, SendResponse<Bytes>);

/// A server whose `n`th request, of a connection whose `k`th it is, is handed to `serve`; and how many connections
/// there were.
fn server<F: Future<Output = ()> + 'static>(
    serve: impl Fn(Asked, &mut Connected, usize) -> F + Send + Clone + 'static,
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
                    let mut k = 0;
                    while let Some(Ok(asked)) = connection.accept().await {
                        let serving = serve(asked, &mut connection, k);
                        tokio::task::spawn_local(serving);
                        k += 1;
                    }
                });
            }
        });
    });
    (address, connections)
}

fn answer(mut respond: SendResponse<Bytes>) {
    if let Ok(mut body) = respond.send_response(Response::new(()), false) {
        let _ = body.send_data(Bytes::from_static(b"hello"), true);
    }
}

fn http2(load: Load) -> Load {
    Load { options: Options { http2: true, ..Options::default() }, ..load }
}

#[test]
fn users_have_a_connection_each_and_rates_share_one() {
    let (address, connections) = server(|(_, respond), _, _| async { answer(respond) });
    let url = format!("http://{address}/");
    let summary = run(&http2(load(&url, closed(3, 30))));
    assert_eq!(
        (summary.measured.successes, summary.measured.bytes_in),
        (30, 150),
        "{:?}",
        summary.measured.errors
    );
    assert_eq!((summary.connections, connections.swap(0, Relaxed)), (3, 3));
    let plan = super::pacing::evenly("1000/s", std::time::Duration::from_millis(50));
    let summary = run(&http2(load(&url, plan)));
    assert_eq!((summary.measured.successes, summary.connections, connections.load(Relaxed)), (50, 1, 1));
}

#[test]
fn a_connection_that_is_closed_politely_costs_nobody_an_answer() {
    // As nginx does after so many requests: the stream's answer is still to come when the connection says goodbye.
    let (address, connections) = server(|(_, respond), connection, k| {
        if k == 9 {
            connection.graceful_shutdown();
        }
        async { answer(respond) }
    });
    let summary = run(&http2(load(&format!("http://{address}/"), closed(2, 200))));
    assert_eq!(summary.measured.successes, 200, "{:?}", summary.measured.errors);
    assert!(connections.load(Relaxed) >= 10, "{connections:?}");
}

#[test]
fn what_a_server_refuses_unseen_is_sent_once_more() {
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refused);
    let (address, _) = server(move |(_, mut respond), _, _| {
        let is_refused = counted.fetch_add(1, Relaxed).is_multiple_of(2);
        async move {
            if is_refused {
                respond.send_reset(Reason::REFUSED_STREAM);
            } else {
                answer(respond);
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
    assert_eq!(summary.measured.of(Class::Reset), 10, "{:?}", summary.measured.errors);
}

#[test]
fn a_body_is_sent_on_while_its_answer_comes() {
    // An echo: it answers with the head at once, and with each piece when it has come.
    let (address, _) = server(|(request, mut respond), _, _| async move {
        let mut coming = request.into_body();
        let Ok(mut going) = respond.send_response(Response::new(()), false) else { return };
        while let Some(Ok(piece)) = coming.data().await {
            let _ = coming.flow_control().release_capacity(piece.len());
            if going.send_data(piece, false).is_err() {
                return;
            }
        }
        let _ = going.send_data(Bytes::new(), true);
    });
    let url = format!("http://{address}/");
    let mut target = Target::new(Method::POST, url.parse().unwrap());
    target.body = vec![b'x'; 1 << 20].into();
    let load = Load { traffic: Arc::new(Traffic::one(target)), ..load(&url, closed(2, 6)) };
    let summary = run(&http2(load));
    assert_eq!(
        (summary.measured.successes, summary.measured.bytes_in),
        (6, 6 << 20),
        "{:?}",
        summary.measured.errors
    );
}
