//! Connections without a valid request: idle, incomplete, malformed.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

use super::{
    client::connect,
    incident::{Incident, IncidentKind},
};

type Checked = Result<(), Incident>;

/// Bytes that have to be refused: with a status of 400 or more, or by a close.
pub const MALFORMED: [&[u8]; 12] = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS on a plain port\r\n\r\n",
    b"GET /plain/1 HTTP/1.1\r\n\r\n",
    b"GET /plain/1 HTTP/1.1\r\nHost: soak.test\r\nHost: other.test\r\n\r\n",
    b"GET /plain/1 HTTP/9.9\r\nHost: soak.test\r\n\r\n",
    b"GET /plain/1 HTTP/1.1\r\nHost: soak.test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /plain/1 HTTP/1.1\r\nHost: soak.test\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    b"POST /echo/1 HTTP/1.1\r\nHost: soak.test\r\nContent-Length: -1\r\n\r\n",
    b"POST /echo/1 HTTP/1.1\r\nHost: soak.test\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    b"GET /plain/1 HTTP/1.1\r\nHost : soak.test\r\n\r\n",
    b"GET /plain/1 HTTP/1.1\r\nHost: soak.test\r\n folded: 1\r\n\r\n",
    b"GET /pl\x00ain/1 HTTP/1.1\r\nHost: soak.test\r\n\r\n",
    b"CONNECT soak.test:80 HTTP/1.1\r\nHost: soak.test:80\r\n\r\n",
];

/// The proxy ends a head after 5 s and an idle connection after 20 s.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(40);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

pub async fn malformed(address: SocketAddr, index: usize) -> Checked {
    let mut tcp = connect(address, None).await?;
    // The proxy may close before it has read everything.
    let _ = tcp.write_all(MALFORMED[index]).await;
    let mut first = [0; 64];
    let read = timeout(RESPONSE_TIMEOUT, tcp.read(&mut first)).await;
    let read = read
        .map_err(|_| Incident::new(IncidentKind::Hang, format!("no response to malformed bytes {index}")))?;
    let text = String::from_utf8_lossy(&first[..read.unwrap_or(0)]).into_owned();
    let is_refused = text.is_empty() || text.split(' ').nth(1).is_some_and(|code| code >= "400");
    if is_refused {
        Ok(())
    } else {
        Err(Incident::new(IncidentKind::Accepted, format!("malformed bytes {index}: {text:?}")))
    }
}

/// Waits until the proxy closes a silent connection.
pub async fn idle(address: SocketAddr) -> Checked {
    closes(&mut connect(address, None).await?, "an idle connection").await
}

/// Sends a byte each 100 ms. Every second one is cut after 2 s, the others wait for the proxy's timeout.
pub async fn slow_head(address: SocketAddr, number: u64) -> Checked {
    let mut tcp = connect(address, None).await?;
    if tcp.write_all(b"GET /plain/1 HTTP/1.1\r\nHost: soak.test\r\nX-Slow: ").await.is_err() {
        return Ok(());
    }
    let is_cut = number.is_multiple_of(4) || number % 4 == 1;
    for _ in 0..if is_cut { 20 } else { 300 } {
        sleep(Duration::from_millis(100)).await;
        if tcp.write_all(b"a").await.is_err() {
            // The proxy has closed the connection, as it should.
            return Ok(());
        }
        let mut byte = [0; 1];
        if !matches!(tcp.try_read(&mut byte), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock) {
            return Ok(());
        }
    }
    if is_cut {
        return Ok(());
    }
    Err(Incident::new(IncidentKind::Hang, "an incomplete head was waited for beyond 30 s"))
}

/// Cuts within the body of a request.
pub async fn cut_upload(address: SocketAddr) -> Checked {
    let mut tcp = connect(address, None).await?;
    let head = b"POST /echo/1 HTTP/1.1\r\nHost: soak.test\r\nContent-Length: 100000\r\n\r\n";
    // An error is a close by the proxy, which is not a fault within an upload.
    if tcp.write_all(head).await.is_ok() && tcp.write_all(&[7; 15_000]).await.is_ok() {
        sleep(Duration::from_millis(300)).await;
    }
    Ok(())
}

async fn closes(tcp: &mut TcpStream, name: &str) -> Checked {
    let mut rest = Vec::new();
    match timeout(CLOSE_TIMEOUT, tcp.read_to_end(&mut rest)).await {
        Ok(_) => Ok(()),
        Err(_) => Err(Incident::new(
            IncidentKind::Hang,
            format!("{name} is open after {} s", CLOSE_TIMEOUT.as_secs()),
        )),
    }
}
