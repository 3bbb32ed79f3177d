//! The state that all connections of an upstream share, and the errors of an exchange on one of them.

use std::{future::Future, pin::pin};

use stockade_model::time::{Runtime, Time, before};

use super::{
    clock::UpstreamClock,
    connect::OriginConnector,
    error::UpstreamError,
    pool::{Connecting, Pool},
    request::RetryableRequest,
    settings::UpstreamSettings,
};

/// Attempts after the first one.
const RESENDS_MAX: u32 = 3;
/// As [`RESENDS_MAX`], where connections end without an error before a request is processed: nginx ends busy ones after
/// `keepalive_requests`, and a request may come too late on several in a row.
const ENDED_MAX: u32 = 10;

pub(super) struct UpstreamShared {
    pub(super) settings: UpstreamSettings,
    pub(super) clock: UpstreamClock,
    /// One per endpoint.
    pub(super) connectors: Vec<OriginConnector>,
    pub(super) pool: Pool,
}

pub(super) struct ExchangeFailure {
    pub(super) error: UpstreamError,
    /// `None`: the request must not be sent again.
    pub(super) retry: Option<Retry>,
}

pub(super) enum Retry {
    /// Open a connection with the permit of the closed one.
    Connect(Connecting),
    /// Check out any connection.
    Checkout,
    /// The same. The origin has ended this one without an error, and has not processed the request.
    Ended,
}

impl Retry {
    pub(super) fn resends_max(&self) -> u32 {
        match self {
            Self::Connect(_) | Self::Checkout => RESENDS_MAX,
            Self::Ended => ENDED_MAX,
        }
    }
}

impl ExchangeFailure {
    pub(super) fn fatal(error: UpstreamError) -> Self {
        Self { error, retry: None }
    }
}

impl UpstreamShared {
    /// Waits for a response head. `written` returns when the origin last took bytes.
    pub(super) async fn await_head<F: Future>(
        &self,
        pending: &RetryableRequest,
        written: impl Fn() -> Time,
        answer: F,
    ) -> Result<F::Output, UpstreamError> {
        let UpstreamSettings { head_timeout, idle_timeout, .. } = self.settings;
        let sent = self.clock.now();
        let mut answer = pin!(answer);
        loop {
            let (until, late) = pending.deadline(sent, written(), head_timeout, idle_timeout);
            if until <= self.clock.now() {
                return Err(late);
            }
            // The deadline moves with the transfer of the request.
            if let Some(answer) = before(&self.clock, until, answer.as_mut()).await {
                return Ok(answer);
            }
        }
    }
}

impl Drop for UpstreamShared {
    fn drop(&mut self) {
        self.pool.close_when_idle();
    }
}
