//! A small HTTP server for loads.

use std::{
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use crate::ServiceError;

/// Answers `hello` to each request without a body, and calls `on_request` before it. It serves until the process ends.
pub fn serve_hello(on_request: impl Fn() + Send + Sync + 'static) -> Result<SocketAddr, ServiceError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let on_request = Arc::new(on_request);
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let on_request = Arc::clone(&on_request);
            thread::spawn(move || answer(&connection, &*on_request));
        }
    });
    Ok(address)
}

fn answer(connection: &TcpStream, on_request: &impl Fn()) {
    let _ = connection.set_nodelay(true);
    let mut to = connection;
    // An empty line ends the head of a request.
    for _ in BufReader::new(connection).lines().map_while(Result::ok).filter(String::is_empty) {
        on_request();
        if to.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").is_err() {
            return;
        }
    }
}
