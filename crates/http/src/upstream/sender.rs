//! The sending half of a connection, over HTTP/1.1 or HTTP/2.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use h2::client::SendRequest as SendHttp2;
use hyper::client::conn::http1::SendRequest;
use stockade_model::time::Time;
use tokio::{sync::Notify, task::AbortHandle};

use super::{core::ReusableConnection, request::OutgoingBody, socket::SocketActivity};

/// Sends requests. Dropping it closes the connection.
pub(super) struct Http1Sender {
    pub(super) requests: SendRequest<OutgoingBody>,
    /// Drives the connection, on the runtime that opened it.
    pub(super) task: AbortHandle,
    pub(super) opened_at: Time,
    pub(super) activity: Arc<SocketActivity>,
}

impl ReusableConnection for Http1Sender {
    fn is_open(&self) -> bool {
        !self.requests.is_closed()
    }

    fn opened_at(&self) -> Time {
        self.opened_at
    }

    fn idle_max(&self) -> Option<Duration> {
        self.activity.idle_max()
    }
}

impl Drop for Http1Sender {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sends requests. Clones share the connection.
#[derive(Clone)]
pub(super) struct Http2Sender(Arc<Http2Handle>);

struct Http2Handle {
    requests: SendHttp2<Bytes>,
    check_liveness: Arc<Notify>,
    released: Arc<Notify>,
}

impl Drop for Http2Handle {
    /// The last stream has ended, and the pool has dropped the connection.
    fn drop(&mut self) {
        self.released.notify_one();
    }
}

impl Http2Sender {
    /// The task of the connection waits for both notifications.
    pub(super) fn new(
        requests: SendHttp2<Bytes>,
        check_liveness: Arc<Notify>,
        released: Arc<Notify>,
    ) -> Self {
        Self(Arc::new(Http2Handle { requests, check_liveness, released }))
    }

    pub(super) fn requests(&self) -> SendHttp2<Bytes> {
        self.0.requests.clone()
    }

    /// A timeout has passed: ping the peer.
    pub(super) fn check_liveness(&self) {
        self.0.check_liveness.notify_one();
    }
}
