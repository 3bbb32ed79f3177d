//! The memory of the requests that are in flight: of all clients, and of each.
//!
//! The head of a request of HTTP/1 is in the bound of its connection. A connection of HTTP/2 has up to
//! [`FrontendSettings::streams_max`](super::FrontendSettings::streams_max) requests. Each costs its client few bytes, since HPACK names a
//! field of the table with one. So their heads are counted, and for both protocols the buffered starts of bodies.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use http::Request;
use http_body::Body;

use super::table::GREEDY_SHARE;

/// For each connection that a frontend may have, in bytes.
pub(super) const BYTES_PER_CONNECTION: usize = 64 << 10;

/// A waiting request without its head: the stream, its tasks, and a load with its request to an origin. An unoptimised build takes
/// 13 to 16 KiB.
const REQUEST_BYTES: usize = 16 << 10;
/// A head is kept by the connection, in the request's context and in the request to the origin.
const HEAD_COPIES: usize = 3;
/// Fields of a decoded head have an entry of this size in addition to their text.
const FIELD_BYTES: usize = 96;
/// The start of a body that is buffered (64 KiB), the part with which it was longer, and the buffer that the next part is read into.
const BODY_BYTES: usize = 192 << 10;

/// Bytes of requests in flight.
#[derive(Debug, Default)]
pub(super) struct RequestMemory(AtomicUsize);

/// Memory that a request counts for, returned on drop.
#[derive(Debug)]
pub(super) struct RequestCharge {
    bytes: usize,
    of: [Option<Arc<RequestMemory>>; 2],
}

impl RequestMemory {
    fn try_add(&self, bytes: usize, max: usize) -> bool {
        let added = self.0.fetch_add(bytes, Relaxed) + bytes;
        if added > max {
            self.0.fetch_sub(bytes, Relaxed);
        }
        added <= max
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Relaxed)
    }
}

impl RequestCharge {
    /// Counts `bytes` for all clients, and for one, which has an eighth of all. `None`: that is too much.
    pub(super) fn try_new(
        bytes: usize,
        all: &Arc<RequestMemory>,
        client: Option<&Arc<RequestMemory>>,
        connections_max: usize,
    ) -> Option<Self> {
        let max = connections_max.saturating_mul(BYTES_PER_CONNECTION);
        let mut charge = Self { bytes, of: [None, None] };
        let bounds = [(Some(all), max), (client, max / GREEDY_SHARE)];
        for (charged, (memory, max)) in charge.of.iter_mut().zip(bounds) {
            // A small frontend takes one request of each client at least.
            if memory.is_some_and(|memory| !memory.try_add(bytes, max.max(bytes))) {
                return None;
            }
            *charged = memory.cloned();
        }
        Some(charge)
    }
}

impl Drop for RequestCharge {
    fn drop(&mut self) {
        for memory in self.of.iter().flatten() {
            memory.0.fetch_sub(self.bytes, Relaxed);
        }
    }
}

/// An upper bound of the memory that a request takes until its response begins, without what its connection takes.
pub(super) fn request_bytes<B: Body>(request: &Request<B>, is_http2: bool) -> usize {
    let head = if is_http2 { REQUEST_BYTES + HEAD_COPIES * head_bytes(request) } else { 0 };
    head + match request.body().size_hint().exact() {
        // The bytes that were read, and a copy of them.
        Some(length) => usize::try_from(length.saturating_mul(2)).unwrap_or(usize::MAX).min(BODY_BYTES),
        None => BODY_BYTES,
    }
}

fn head_bytes<B>(request: &Request<B>) -> usize {
    let fields = request.headers().iter();
    let fields: usize = fields.map(|(name, value)| name.as_str().len() + value.len() + FIELD_BYTES).sum();
    fields + request.uri().path_and_query().map_or(0, |target| target.as_str().len())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::{Empty, Full};

    use super::*;

    #[test]
    fn one_client_has_an_eighth_and_all_of_them_the_whole() {
        let all = Arc::new(RequestMemory::default());
        let clients: Vec<_> = (0..9).map(|_| Arc::new(RequestMemory::default())).collect();
        let connections = 8;
        let charge =
            |client: &Arc<RequestMemory>| RequestCharge::try_new(16 << 10, &all, Some(client), connections);
        let mut held = Vec::new();
        for client in &clients[..8] {
            held.extend((0..10).map_while(|_| charge(client)));
            assert_eq!(client.bytes(), BYTES_PER_CONNECTION);
        }
        assert_eq!((held.len(), all.bytes()), (32, connections * BYTES_PER_CONNECTION));
        assert!(charge(&clients[8]).is_none(), "all memory is taken");
        assert!(RequestCharge::try_new(1, &all, None, connections).is_none());
        assert_eq!(clients[8].bytes(), 0);
        held.truncate(28);
        assert!(charge(&clients[8]).is_some());
        drop(held);
        assert!(clients.iter().chain([&all]).all(|memory| memory.bytes() == 0));
    }

    #[test]
    fn a_request_counts_with_its_head_and_its_body() {
        let request = || Request::builder().uri("/12345").header("a", "b");
        let small = request().body(Empty::<&[u8]>::new()).expect("a request");
        let head = REQUEST_BYTES + 3 * (6 + 2 + FIELD_BYTES);
        assert_eq!((request_bytes(&small, true), request_bytes(&small, false)), (head, 0));
        let upload = |bytes| request().body(Full::new(Bytes::from(vec![0; bytes]))).expect("a request");
        assert_eq!(request_bytes(&upload(7), true), head + 14);
        assert_eq!(request_bytes(&upload(1 << 20), false), BODY_BYTES);
    }
}
