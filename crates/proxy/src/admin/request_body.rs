//! Limits of admin requests, and their bodies within them.

use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use stockade_http::server::{ServerLimits, WhenFull};
use stockade_model::time::{Live, Runtime, before};

#[derive(Clone, Copy, Debug)]
pub(super) struct AdminLimits {
    pub(super) server: ServerLimits,
    /// Timeout for a request body.
    pub(super) body: Duration,
    pub(super) body_bytes: usize,
}

impl Default for AdminLimits {
    fn default() -> Self {
        Self {
            server: ServerLimits {
                connections_max: 64,
                connection_time_max: Duration::from_mins(15),
                head_time_max: Duration::from_secs(10),
                is_keep_alive: true,
                when_full: WhenFull::CloseOldest,
            },
            body: Duration::from_secs(10),
            body_bytes: 1 << 20,
        }
    }
}

/// Collects a request body within the limits of size and time.
pub(super) async fn read_body<B: Body<Data = Bytes>>(
    body: B,
    limits: AdminLimits,
    time: &Live,
) -> Result<Bytes, BodyError>
where
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let body = Limited::new(body, limits.body_bytes).collect();
    match before(time, time.now() + limits.body, body).await {
        None => Err(BodyError::TimedOut),
        Some(Ok(body)) => Ok(body.to_bytes()),
        Some(Err(error)) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge),
        Some(Err(_)) => Err(BodyError::Incomplete),
    }
}

/// Why a request body was not read.
#[derive(Clone, Copy, Debug)]
pub(super) enum BodyError {
    TimedOut,
    TooLarge,
    Incomplete,
}
