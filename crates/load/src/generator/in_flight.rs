//! One request in flight.

use std::{cell::Cell, rc::Rc};

use stockade_model::time::{Runtime, Time};
use stockade_record::timing::Timing;

// why a circle: a worker starts requests, and a request that is dropped half-way leaves its sample with its worker.
use super::worker::LoadWorker;
use crate::{
    client::StartTime,
    sample::{FailureClass, RequestFailure, Response, Sample},
};

/// A request in flight. If it is dropped before it ends, its sample says that the drain cut it off.
pub(super) struct InFlightRequest {
    worker: Rc<LoadWorker>,
    number: u64,
    scheduled: Time,
    started: StartTime,
    bytes_out: u64,
    has_ended: bool,
}

/// How a request ended.
pub(super) struct RequestEnd {
    pub(super) at: Time,
    /// True if it was handed to a connection.
    pub(super) was_sent: bool,
}

impl InFlightRequest {
    pub(super) fn new(worker: Rc<LoadWorker>, number: u64, scheduled: Time) -> Self {
        Self { worker, number, scheduled, started: Cell::new(None), bytes_out: 0, has_ended: false }
    }

    /// Sends the request, and records its sample when it ends.
    pub(super) async fn run(mut self) -> RequestEnd {
        let worker = Rc::clone(&self.worker);
        let spec = worker.client.request(self.number);
        self.bytes_out = spec.template.body.len() as u64;
        let result = worker.client.send(&spec, &self.started).await;
        let at = self.end(result);
        RequestEnd { at, was_sent: self.started.get().is_some() }
    }

    fn end(&mut self, result: Result<Response, RequestFailure>) -> Time {
        self.has_ended = true;
        let finished = self.worker.clock.now();
        self.worker.finish_request(Sample {
            number: self.number,
            timing: Timing {
                scheduled: self.scheduled,
                started: self.started.get().unwrap_or(finished),
                finished,
            },
            bytes_out: self.bytes_out,
            result,
        });
        finished
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(Err(FailureClass::CutOff.into()));
        }
    }
}
