//! `sendfile` or a copy, whichever takes less time on this machine. Pure.
//!
//! `sendfile` costs time for each page, and a copy for each byte. Which one is less depends on the processor, its memory and the
//! network device: on machines of the same cloud we saw both. So both are timed now and then, on the traffic itself.

use std::time::Duration;

/// A way to write a slice of the body file to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendMethod {
    Sendfile,
    Copy,
}

/// Writes before the first trial, and between two of them.
const USES: usize = 1_000;

/// Writes with each method in a trial. Their median ignores those during which the thread lost its core.
const SAMPLES: usize = 15;

/// Writes of fewer bytes tell nothing: the socket was almost full.
const SAMPLE_BYTES_MIN: usize = 16 << 10;

/// The method of the next write, of one thread.
#[derive(Debug)]
pub(super) struct SendChoice {
    preferred: SendMethod,
    uses: usize,
    /// Of the current trial: time in picoseconds for a byte.
    sendfile: Vec<u64>,
    copy: Vec<u64>,
}

impl Default for SendChoice {
    fn default() -> Self {
        Self {
            preferred: SendMethod::Sendfile,
            uses: 0,
            sendfile: Vec::with_capacity(SAMPLES),
            copy: Vec::with_capacity(SAMPLES),
        }
    }
}

impl SendChoice {
    /// The method of the next write, and whether its time is to be recorded.
    pub(super) fn next(&mut self) -> (SendMethod, bool) {
        if self.uses < USES {
            self.uses += 1;
            return (self.preferred, false);
        }
        let is_sendfile = self.sendfile.len() <= self.copy.len();
        (if is_sendfile { SendMethod::Sendfile } else { SendMethod::Copy }, true)
    }

    /// Records a write of a trial.
    pub(super) fn record(&mut self, method: SendMethod, bytes: usize, time: Duration) {
        if bytes < SAMPLE_BYTES_MIN {
            return;
        }
        let picoseconds = time.as_nanos().saturating_mul(1_000) / bytes as u128;
        let samples = match method {
            SendMethod::Sendfile => &mut self.sendfile,
            SendMethod::Copy => &mut self.copy,
        };
        samples.push(u64::try_from(picoseconds).unwrap_or(u64::MAX));
        if self.sendfile.len() >= SAMPLES && self.copy.len() >= SAMPLES {
            let is_sendfile = median(&mut self.sendfile) <= median(&mut self.copy);
            self.preferred = if is_sendfile { SendMethod::Sendfile } else { SendMethod::Copy };
            self.uses = 0;
            self.sendfile.clear();
            self.copy.clear();
        }
    }
}

fn median(samples: &mut [u64]) -> u64 {
    samples.sort_unstable();
    samples.get(samples.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs one trial, and returns the methods of the writes before it and in it.
    fn run(
        choice: &mut SendChoice,
        time: impl Fn(SendMethod, usize) -> Duration,
    ) -> (Vec<SendMethod>, Vec<SendMethod>) {
        let (mut before, mut trial) = (Vec::new(), Vec::new());
        while trial.len() < 2 * SAMPLES {
            let (method, is_sampled) = choice.next();
            if is_sampled {
                trial.push(method);
                choice.record(method, 100_000, time(method, trial.len()));
            } else {
                before.push(method);
            }
        }
        (before, trial)
    }

    #[test]
    fn faster_method_is_used_until_a_trial_shows_the_other() {
        let micros = Duration::from_micros;
        let mut choice = SendChoice::default();
        let by_method = |sendfile, copy| {
            move |method, number| match method {
                // The thread loses its core during some writes.
                _ if number % 5 == 0 => micros(5_000),
                SendMethod::Sendfile => micros(sendfile),
                SendMethod::Copy => micros(copy),
            }
        };
        for (sendfile, copy, used) in [
            (20, 15, SendMethod::Sendfile),
            (20, 15, SendMethod::Copy),
            (15, 20, SendMethod::Copy),
            (15, 15, SendMethod::Sendfile),
            (15, 15, SendMethod::Sendfile),
        ] {
            let (before, trial) = run(&mut choice, by_method(sendfile, copy));
            assert_eq!(before, [used; USES]);
            assert_eq!(trial.iter().filter(|method| **method == SendMethod::Copy).count(), SAMPLES);
        }
    }

    #[test]
    fn short_writes_are_no_samples() {
        let mut choice = SendChoice::default();
        while !choice.next().1 {}
        for _ in 0..10 * SAMPLES {
            assert_eq!(choice.next(), (SendMethod::Sendfile, true));
            choice.record(SendMethod::Sendfile, SAMPLE_BYTES_MIN - 1, Duration::ZERO);
        }
    }
}
