#![no_main]

//! Besides its properties, the reader of responses has to agree with hyper, which reads them in the proxy.

use std::{
    future::Future,
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::{
    Request,
    client::conn::http1::handshake,
    rt::{Read, ReadBufCursor, Write},
};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    stockade_load::fuzzing::response_reader(data);
    let Some((first, bytes)) = data.split_first() else { return };
    let is_head = first & 1 == 1;
    if let (Some(own), Some(other)) = (stockade_load::fuzzing::response(is_head, bytes), read(is_head, bytes))
    {
        assert_eq!(own, other, "the status and length for us and for hyper");
    }
});

/// The status and the length of the body of a response, as hyper reads it. `None`: it refuses it.
fn read(is_head: bool, bytes: &[u8]) -> Option<(u16, u64)> {
    let method = if is_head { "HEAD" } else { "GET" };
    let request = Request::builder().method(method).uri("/").body(Empty::<Bytes>::new()).ok()?;
    let exchange = async {
        let server = Server { response: Bytes::copy_from_slice(bytes), has_request: false };
        let (mut sender, connection) = handshake(server).await.ok()?;
        let response = async {
            let mut response = sender.send_request(request).await.ok()?;
            let mut length = 0;
            while let Some(frame) = response.body_mut().frame().await {
                length += frame.ok()?.data_ref().map_or(0, |data| data.len() as u64);
            }
            Some((response.status().as_u16(), length))
        };
        // The response ends first, or the connection ends and then the response.
        let (mut response, mut connection) = (pin!(response), pin!(connection));
        let mut is_open = true;
        std::future::poll_fn(|cx| {
            is_open = is_open && connection.as_mut().poll(cx).is_pending();
            response.as_mut().poll(cx)
        })
        .await
    };
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let (waker, mut exchange) = (Waker::from(Arc::clone(&woken)), pin!(exchange));
    while woken.0.swap(false, Relaxed) {
        if let Poll::Ready(response) = exchange.as_mut().poll(&mut Context::from_waker(&waker)) {
            return response;
        }
    }
    None
}

/// Sends the response as soon as it has a request, then closes.
struct Server {
    response: Bytes,
    has_request: bool,
}

impl Read for Server {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.has_request {
            return Poll::Pending;
        }
        let length = self.response.len().min(buffer.remaining());
        buffer.put_slice(&self.response.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl Write for Server {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.has_request = true;
        cx.waker().wake_by_ref();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Notes that hyper wants to be polled again.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}
