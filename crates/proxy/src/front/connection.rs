//! One connection, from its first byte to its last.

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use hyper::{
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustix::net::RecvFlags;
use stockade_model::time::{Runtime, before};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsAcceptor;

use super::{
    Handler,
    answer::answer,
    counts::{Cut, bump},
    scan::Scan,
    session::{Asked, Progress, Session},
    streams::{Stream, Tasks},
    tls::Tls,
    wire::Wire,
};

/// How a connection of HTTP/2 begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// As much is read to learn which protocol it is.
const FIRST: usize = 2_048;
/// hyper parses so many fields for free.
const HEADERS_FREE: usize = 100;
/// As much of an answer waits for its client at most, before more is asked of its body.
const BUFFER: usize = 64 * 1_024;
/// How many bytes a client of HTTP/2 may send before they are read, over all streams and for one.
const WINDOWS: (u32, u32) = (512 * 1_024, 256 * 1_024);
/// How long a client whose request was not read to its end has to read why.
const LINGER: Duration = Duration::from_secs(2);
/// How long a connection that is closed in good order may take for it.
const GOODBYE: Duration = Duration::from_millis(500);
/// What a client is told whose head did not come in time.
const TOO_LATE: &[u8] = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
/// How much of it is read and forgotten meanwhile.
const LINGER_BYTES_MAX: usize = 1_024 * 1_024;

/// How a wait was over.
enum End<T> {
    /// It came to its own end.
    Over(T),
    /// One of its bounds was met.
    Cut(Cut),
    /// It was asked to leave.
    Left,
}

/// Serves a connection to its end.
pub(super) async fn serve<H: Handler>(tcp: TcpStream, tls: Option<Arc<Tls>>, session: Session<H>) {
    let session = Arc::new(session);
    let progress = Arc::clone(&session.progress);
    let Some(tls) = tls else {
        let begun = guarded(&progress, &mut pin!(begin(&tcp)), |_| leave_if_silent(&tcp, &progress)).await;
        return match begun {
            End::Over(Ok((first, true))) => serve_http2(tcp, first, session).await,
            End::Over(Ok((first, false))) => serve_http1(tcp, first, session).await,
            End::Over(Err(_)) | End::Cut(_) | End::Left => {}
        };
    };
    // Who has not begun is idle, and not shaking hands.
    let begun = guarded(&progress, &mut pin!(tcp.readable()), |_| leave_if_silent(&tcp, &progress)).await;
    let End::Over(Ok(())) = begun else { return };
    progress.shakes_hands(true);
    let mut handshake = TlsAcceptor::from(tls.config()).accept(tcp);
    match guarded(&progress, &mut handshake, |_| progress.ask(Asked::Leave)).await {
        End::Over(Ok(stream)) => {
            progress.shakes_hands(false);
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                serve_http2(stream, Vec::new(), session).await;
            } else {
                serve_http1(stream, Vec::new(), session).await;
            }
        }
        End::Over(Err(_)) | End::Cut(_) => bump(&progress.thread.tallies.tls_failures),
        End::Left => {}
    }
}

/// Who has not said anything when it is to finish has nothing to finish. What has just come is not known to tokio yet.
fn leave_if_silent(tcp: &TcpStream, progress: &Progress) {
    let looked = rustix::net::recv(tcp, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    if !looked.is_ok_and(|(_, length)| length > 0) {
        progress.ask(Asked::Leave);
    }
}

/// Reads until it is known which protocol it is: what was read, and whether it is HTTP/2.
async fn begin(tcp: &TcpStream) -> io::Result<(Vec<u8>, bool)> {
    let mut first = Vec::with_capacity(FIRST);
    loop {
        tcp.readable().await?;
        let read = match tcp.try_read_buf(&mut first) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            read => read?,
        };
        let looked_at = first.len().min(PREFACE.len());
        let is_alike = first[..looked_at] == PREFACE[..looked_at];
        if read == 0 || !is_alike || looked_at == PREFACE.len() {
            return Ok((first, is_alike && looked_at == PREFACE.len()));
        }
    }
}

async fn serve_http1<H, S>(stream: S, first: Vec<u8>, session: Arc<Session<H>>)
where
    H: Handler,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let progress = &session.progress;
    let settings = &progress.thread.settings;
    let scan = Scan::new(settings.head_bytes_max);
    let wire = Wire::new(stream, first, Arc::clone(progress), Some(scan));
    let mut builder = http1::Builder::new();
    builder
        // A client that says it says no more has gone: what it waits for is given up.
        .half_close(false)
        // Deadlines are the session's.
        .header_read_timeout(None)
        .max_header_size(settings.head_bytes_max)
        .max_buf_size(settings.head_bytes_max.max(BUFFER));
    if settings.headers_max > HEADERS_FREE {
        builder.max_headers(settings.headers_max);
    }
    let service = service_fn(|request| {
        let (number, visit) = progress.enter(None);
        answer(&session, request, number, visit)
    });
    let mut connection = builder.serve_connection(TokioIo::new(wire), service);
    let end = guarded(progress, &mut connection, http1::Connection::graceful_shutdown).await;
    let mut wire = connection.into_parts().io.into_inner();
    match end {
        End::Over(served) => {
            let is_malformed = served.is_err_and(|error| error.is_parse());
            if is_malformed {
                bump(&progress.thread.tallies.malformed);
            }
            if is_malformed || wire.may_hold_more() {
                linger(&mut wire, progress, b"").await;
            }
        }
        End::Cut(Cut::Head) if wire.may_hold_more() => linger(&mut wire, progress, TOO_LATE).await,
        End::Cut(Cut::Idle | Cut::Head) | End::Left => part(&mut wire, progress).await,
        End::Cut(_) => {}
    }
}

async fn serve_http2<H, S>(stream: S, first: Vec<u8>, session: Arc<Session<H>>)
where
    H: Handler,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let progress = &session.progress;
    let settings = &progress.thread.settings;
    let wire = Wire::new(stream, first, Arc::clone(progress), None);
    let mut builder = http2::Builder::new(Tasks(Arc::clone(progress)));
    builder
        .max_concurrent_streams(settings.streams_max)
        .max_header_list_size(u32::try_from(settings.head_bytes_max).unwrap_or(u32::MAX))
        .max_send_buf_size(BUFFER)
        .initial_connection_window_size(WINDOWS.0)
        .initial_stream_window_size(WINDOWS.1);
    let asked = Arc::clone(&session);
    let service = service_fn(move |request| {
        let stream = Arc::new(Stream::new(&asked.progress.thread));
        asked.progress.put_newest(Arc::clone(&stream));
        let (number, visit) = asked.progress.enter(Some(stream));
        answer(&asked, request, number, visit)
    });
    let mut connection = builder.serve_connection(TokioIo::new(wire), service);
    let end = guarded(progress, &mut connection, http2::Connection::graceful_shutdown).await;
    if let End::Cut(Cut::Idle | Cut::Head) | End::Left = end {
        // It is told which requests were answered (GOAWAY), as far as it listens.
        Pin::new(&mut connection).graceful_shutdown();
        let time = &progress.thread.time;
        let _ = before(time, time.now() + GOODBYE, connection).await;
    }
}

/// Serves until a bound is met or the connection is asked for something. `finish` is done once when it is to finish.
async fn guarded<F: Future + Unpin>(
    progress: &Progress,
    served: &mut F,
    mut finish: impl FnMut(Pin<&mut F>),
) -> End<F::Output> {
    let time = &progress.thread.time;
    let mut finishes_since = None;
    let mut alarm = pin!(time.sleep_until(progress.next_look(progress.deadline().0)));
    poll_fn(|cx| {
        progress.wakes(cx.waker());
        loop {
            let must_finish = progress.asked() == Asked::Finish && finishes_since.is_none();
            // What is being answered is told before it is; what may just have come is looked at first.
            if !(must_finish && progress.is_answering())
                && let Poll::Ready(output) = Pin::new(&mut *served).poll(cx)
            {
                return Poll::Ready(End::Over(output));
            }
            if progress.asked() == Asked::Leave {
                return Poll::Ready(End::Left);
            }
            if !must_finish {
                break;
            }
            let now = time.now();
            finishes_since = Some(now);
            alarm.set(time.sleep_until(now + GOODBYE));
            finish(Pin::new(&mut *served));
        }
        while alarm.as_mut().poll(cx).is_ready() {
            let (deadline, cut) = progress.deadline();
            let now = time.now();
            if deadline <= now {
                progress.thread.tallies.cut(cut);
                return Poll::Ready(End::Cut(cut));
            }
            // A client of HTTP/2 that is told so has to say that it knows: if it is there.
            if let (Some(since), Some(idle_since)) = (finishes_since, progress.quiet_since()) {
                if since.max(idle_since) + GOODBYE <= now {
                    return Poll::Ready(End::Left);
                }
                alarm.set(time.sleep_until(now + GOODBYE));
                continue;
            }
            alarm.set(time.sleep_until(progress.next_look(deadline)));
        }
        Poll::Pending
    })
    .await
}

/// Says the last word, and hears the client out: what it sent and nobody reads would destroy what it was told.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(wire: &mut Wire<S>, progress: &Progress, last: &[u8]) {
    let time = &progress.thread.time;
    let heard_out = async {
        let stream = wire.stream();
        stream.write_all(last).await?;
        stream.shutdown().await?;
        forget(stream).await
    };
    let _ = before(time, time.now() + LINGER, heard_out).await;
}

/// Reads what nobody wants, to its end or to the end of patience.
pub(super) async fn forget<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<()> {
    let (mut forgotten, mut bytes_left) = ([0; 4_096], LINGER_BYTES_MAX);
    while bytes_left > 0 {
        match stream.read(&mut forgotten).await? {
            0 => break,
            read => bytes_left = bytes_left.saturating_sub(read),
        }
    }
    Ok(())
}

/// Says that nothing follows, where that is more than closing.
async fn part<S: AsyncRead + AsyncWrite + Unpin>(wire: &mut Wire<S>, progress: &Progress) {
    let time = &progress.thread.time;
    let _ = before(time, time.now() + GOODBYE, wire.stream().shutdown()).await;
}
