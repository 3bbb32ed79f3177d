//! One request that is under way.

use std::{cell::Cell, rc::Rc};

use stockade_model::time::{Runtime, Time};

use super::worker::Worker;
use crate::{
    client::Started,
    sample::{Answer, Class, Failure, Sample},
};

/// A request that is under way: counted as cut off if nobody says how it ended.
pub(super) struct Underway {
    worker: Rc<Worker>,
    number: u64,
    scheduled: Time,
    started: Started,
    bytes_out: u64,
    has_ended: bool,
}

/// A request that has ended.
pub(super) struct Ended {
    pub(super) at: Time,
    /// It came as far as a connection.
    pub(super) was_sent: bool,
}

impl Underway {
    pub(super) fn new(worker: Rc<Worker>, number: u64, scheduled: Time) -> Self {
        Self { worker, number, scheduled, started: Cell::new(None), bytes_out: 0, has_ended: false }
    }

    /// Asks until it is answered or given up.
    pub(super) async fn run(mut self) -> Ended {
        let worker = Rc::clone(&self.worker);
        let asked = worker.client.asked(self.number);
        self.bytes_out = asked.target.body.len() as u64;
        let ended = worker.client.ask(&asked, &self.started).await;
        let at = self.end(ended);
        Ended { at, was_sent: self.started.get().is_some() }
    }

    fn end(&mut self, ended: Result<Answer, Failure>) -> Time {
        self.has_ended = true;
        let finished = self.worker.clock.now();
        self.worker.arrive(Sample {
            number: self.number,
            scheduled: self.scheduled,
            started: self.started.get().unwrap_or(finished),
            finished,
            bytes_out: self.bytes_out,
            ended,
        });
        finished
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(Err(Class::CutOff.into()));
        }
    }
}
