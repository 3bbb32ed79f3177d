//! Figures of a run or a load in progress, for Prometheus and OpenTelemetry.
//!
//! ```text
//! seconds of the run -> LiveFigures -> /metrics (on request), OTLP (every 5 s and at the end)
//! ```
//!
//! Both exporters share one thread. The run adds a second to [`LiveFigures`] under a lock that a reader holds only to copy
//! references; nothing else connects them, so an exporter can neither slow nor fail the run.

mod live;
mod otlp;
mod scrape;
mod target;

use std::{io, net::SocketAddr, time::Duration};

use rustix::process::setpriority_process;
use stockade_http::{
    client::HttpClient,
    server::{self, ServerThread},
    tls::TrustError,
};
use stockade_lab::host;
use stockade_model::{
    seed::Seed,
    time::{Live, Runtime, Time, before},
};
use stockade_record::telemetry::measurement::{RunSnapshot, resource};
use tokio::{net::TcpListener, sync::watch};

pub use self::live::{FiguresOfRun, LiveFigures};
pub use self::otlp::unix_nanos_now;
pub use self::target::parse_url;
use self::{
    otlp::Exporter,
    target::{EnvironmentError, collector, with_environment},
};
use crate::{cli::TelemetryArgs, progress::message};

/// Of the thread: the default is 0, the lowest priority 19.
const NICENESS: i32 = 10;
/// The longest time that the program waits for the last export.
const FLUSH_MAX: Duration = Duration::from_secs(5);
/// The largest answer of a collector.
const COLLECTOR_BODY_BYTES_MAX: usize = 64 << 10;

/// The exporters of a command; without any, every method does nothing. When this is dropped, the last figures are sent.
pub struct Telemetry {
    figures: Option<LiveFigures>,
    _thread: Option<ServerThread>,
}

/// An exporter could not start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("cannot serve metrics at {address}: {error}; choose another address, or port 0 for a free one")]
    Listen { address: SocketAddr, error: io::Error },
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("cannot start the thread of the exporters: {0}")]
    Thread(io::Error),
}

impl TelemetryError {
    /// True if the command line or the environment is wrong.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Environment(_) | Self::Trust(_))
    }
}

impl Telemetry {
    /// Binds the address of `--prometheus`, which is named on standard error, and starts the exporters. A load has no title.
    pub fn start(args: &TelemetryArgs, experiment: Option<&str>) -> Result<Self, TelemetryError> {
        if args.prometheus.is_none() && args.otlp.is_none() {
            return Ok(Self { figures: None, _thread: None });
        }
        let mut resource = resource(&host::stockade_version(), &host::host(), experiment);
        // Series of two runs at the same time differ by it.
        resource.push(("service.instance.id", instance_id(Seed::from_entropy())));
        let figures = LiveFigures::new(with_environment(resource)?);
        let exporter = match &args.otlp {
            Some(url) => {
                let (headers, trust) = collector()?;
                let client = HttpClient::new(url.clone(), headers, &trust, COLLECTOR_BODY_BYTES_MAX)?;
                Some(Exporter::new(client, figures.clone(), unix_nanos_now()))
            }
            None => None,
        };
        let listener = args
            .prometheus
            .map(|address| server::bind(address).map_err(|error| TelemetryError::Listen { address, error }));
        let listener = listener.transpose()?;
        if let Some(listener) = &listener {
            let address = listener.local_addr().map_err(TelemetryError::Thread)?;
            message(&format!("metrics: http://{address}/metrics"));
        }
        let shared = figures.clone();
        let thread = ServerThread::run("telemetry", move |stopped| {
            lower_priority();
            let listener = listener.map(TcpListener::from_std).transpose()?;
            Ok::<_, io::Error>(export(listener, exporter, shared, stopped))
        });
        let thread = thread.map_err(TelemetryError::Thread)?;
        Ok(Self { figures: Some(figures), _thread: Some(thread) })
    }

    /// Exports the figures of the finished run, which are computed only for an exporter.
    pub fn finish(self, finished: impl FnOnce() -> RunSnapshot) {
        if let Some(figures) = &self.figures {
            figures.finish(finished());
        }
    }

    /// The figures that the run adds to; `None`: no exporter needs them.
    pub fn figures(&self) -> Option<&LiveFigures> {
        self.figures.as_ref()
    }
}

/// A random UUID (version 4, RFC 9562).
fn instance_id(seed: Seed) -> String {
    let [high, low] = ["high", "low"].map(|half| seed.child(half).0);
    let (high, low) = ((high & !0xf000) | 0x4000, (low & (u64::MAX >> 2)) | (1 << 63));
    let digits = format!("{high:016x}{low:016x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

/// Lets this thread give way to the threads of the load.
pub fn lower_priority() {
    // The priority of a thread is its own on Linux.
    let _ = setpriority_process(None, NICENESS);
}

/// Serves and exports until `stopped`, and then sends the last figures, within [`FLUSH_MAX`].
async fn export(
    listener: Option<TcpListener>,
    exporter: Option<Exporter>,
    figures: LiveFigures,
    mut stopped: watch::Receiver<bool>,
) {
    let time = Live::new();
    if let Some(listener) = listener {
        let clock = time.clone();
        time.spawn(async move { scrape::serve(&listener, &figures, &clock).await });
    }
    let Some(mut exporter) = exporter else {
        let _ = stopped.wait_for(|stopped| *stopped).await;
        return;
    };
    tokio::select! {
        // An export in progress is abandoned: the last one has all that it has.
        _ = stopped.wait_for(|stopped| *stopped) => {}
        () = exporter.run(&time) => {}
    }
    let deadline: Time = time.now() + FLUSH_MAX;
    if before(&time, deadline, exporter.export(&time)).await.is_none() {
        exporter.warn(&format!("no answer within {} s", FLUSH_MAX.as_secs()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_id_is_a_random_uuid() {
        let ids = [1, 2].map(|seed| instance_id(Seed(seed)));
        for id in &ids {
            let lengths: Vec<_> = id.split('-').map(str::len).collect();
            assert_eq!(lengths, [8, 4, 4, 4, 12], "{id}");
            assert!(id[14..].starts_with('4') && "89ab".contains(&id[19..20]), "{id}");
        }
        assert_ne!(ids[0], ids[1]);
    }
}
