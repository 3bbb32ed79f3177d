//! Judges whether the load generator kept up with its load.

use std::time::Duration;

use stockade_model::units::{format_count, format_duration};
use stockade_record::{histogram::Histogram, record::HttpFigures};

use super::limits::InFlightLimit;
use crate::{
    sample::FailureClass,
    summary::{GeneratorHealth, Summary},
};

/// The measurements of the generator while it sends.
#[derive(Clone, Debug)]
pub(crate) struct HealthMonitor {
    /// By thread: processor time, and the time in which it was used.
    threads: Vec<(Duration, Duration)>,
    /// How late the threads were with requests that were free to be sent.
    lateness: Histogram,
    cpu_max: f64,
    resident_max: Option<u64>,
    resident_last: Option<u64>,
    steal: Option<f64>,
    in_flight: InFlightLimit,
}

/// Above this share of a core a thread is too busy to send on time.
const BUSY_MAX: f64 = 0.9;
/// A shorter time is too short to measure how busy a thread is.
const BUSY_TIME_MIN: Duration = Duration::from_millis(200);
/// The allowed p99 of lateness, as a share of the response p99.
const LATENESS_SHARE: f64 = 0.1;
/// Lower bound of the allowed p99 of lateness.
const LATENESS_ALLOWED_MIN: Duration = Duration::from_millis(1);
/// Upper bound of the allowed p99 of lateness.
const LATENESS_ALLOWED_MAX: Duration = Duration::from_millis(100);
/// With fewer requests lateness is not judged: they have no p99.
const LATENESS_COUNT_MIN: u64 = 100;

/// The allowed p99 of lateness for a response p99.
#[must_use]
pub fn lateness_allowed(response_p99: Option<Duration>) -> Duration {
    let share = response_p99.unwrap_or_default().mul_f64(LATENESS_SHARE);
    share.clamp(LATENESS_ALLOWED_MIN, LATENESS_ALLOWED_MAX)
}

impl HealthMonitor {
    pub(crate) fn new(threads: usize, in_flight: InFlightLimit) -> Self {
        Self {
            threads: vec![(Duration::ZERO, Duration::ZERO); threads],
            lateness: Histogram::new(),
            cpu_max: 0.0,
            resident_max: None,
            resident_last: None,
            steal: None,
            in_flight,
        }
    }

    /// Sets the share of processor time that the host gave to other machines.
    pub(crate) fn record_steal(&mut self, share: Option<f64>) {
        self.steal = share;
    }

    /// Adds a second of one thread, or a part of one.
    pub(crate) fn record_thread(
        &mut self,
        index: usize,
        cpu: Duration,
        elapsed: Duration,
        lateness: &Histogram,
    ) {
        let thread = &mut self.threads[index];
        *thread = (thread.0 + cpu, thread.1 + elapsed);
        self.lateness.merge(lateness);
    }

    /// Adds a whole second of all threads.
    pub(crate) fn record_second(&mut self, cpu: Duration) {
        self.cpu_max = self.cpu_max.max(cpu.as_secs_f64());
    }

    /// Adds a reading of this process's memory.
    pub(crate) fn record_resident(&mut self, bytes: Option<u64>) {
        self.resident_max = self.resident_max.max(bytes);
        self.resident_last = bytes;
    }

    /// The health of the generator in a run, with the reasons why the run is invalid.
    pub(crate) fn judge(&self, summary: &Summary) -> GeneratorHealth {
        let (busy, late) = (self.busy_reason(), self.late_reason(summary));
        let in_flight_limit = self.in_flight_reason(summary);
        let of_times: Vec<_> = [busy, late.clone()].into_iter().flatten().collect();
        // A run without a whole second has no maximum: its mean is one.
        let cpu_mean = self.threads.iter().map(busy_share).sum();
        GeneratorHealth {
            cpu_mean,
            cpu_max: self.cpu_max.max(cpu_mean),
            cpu_total: self.threads.iter().map(|(cpu, _)| *cpu).sum(),
            resident_bytes_max: self.resident_max,
            resident_bytes_last: self.resident_last,
            steal: self.steal,
            late,
            time_reason_count: of_times.len(),
            invalid_reasons: of_times
                .into_iter()
                .chain(in_flight_limit.clone())
                .chain(shortage_reasons(summary))
                .collect(),
            in_flight_limit,
            is_incomplete: false,
        }
    }

    fn busy_reason(&self) -> Option<String> {
        let measurable = self.threads.iter().filter(|(_, elapsed)| *elapsed >= BUSY_TIME_MIN);
        let busiest = measurable.map(busy_share).fold(0.0, f64::max);
        (busiest > BUSY_MAX).then(|| {
            format!(
                "the generator was the bottleneck: one of its threads was busy {:.0} % of the time; lower the load, or \
                 give it more --threads and cores",
                busiest * 100.0
            )
        })
    }

    fn late_reason(&self, summary: &Summary) -> Option<String> {
        let late = self.lateness.quantile(0.99).filter(|_| self.lateness.count() >= LATENESS_COUNT_MIN)?;
        let response = summary.measured.times.response.quantile(0.99);
        let allowed = lateness_allowed(response);
        let of = response.map(|p99| format!(", of a response p99 of {}", format_duration(p99)));
        let remedy = match self.steal.filter(|steal| *steal > HttpFigures::STEAL_MAX) {
            Some(steal) => {
                format!(
                    "other machines had {:.0} % of this host's processor time (steal): use a dedicated one",
                    steal * 100.0
                )
            }
            None => "give it a core of its own".to_owned(),
        };
        (late > allowed).then(|| {
            format!(
                "the generator was late: 1 % of its requests by {} or more{}; {remedy}",
                format_duration(late),
                of.unwrap_or_default(),
            )
        })
    }

    /// Our own queue: a request that waited in it was sent late, and the server had less load than was asked for.
    fn in_flight_reason(&self, summary: &Summary) -> Option<String> {
        let Summary { held_back, dropped, .. } = *summary;
        let unsent = || format!(", and {} were never sent", format_count(dropped));
        (held_back + dropped > 0).then(|| {
            format!(
                "the limit of {} requests in flight was reached: {} were due and waited{}; {}",
                format_count(self.in_flight.most as u64),
                format_count(held_back),
                if dropped > 0 { unsent() } else { String::new() },
                self.in_flight.remedy(),
            )
        })
    }
}

fn shortage_reasons(summary: &Summary) -> impl Iterator<Item = String> {
    let classes = [
        (
            FailureClass::NoPorts,
            "keep connections, connect from several addresses (--local-address), or widen net.ipv4.ip_local_port_range",
        ),
        (FailureClass::NoFiles, "raise `ulimit -n`, or ask for fewer connections"),
    ];
    let failed = classes.map(|(class, remedy)| {
        let failed = summary.measured.failures_of(class);
        (failed > 0).then(|| format!("{failed} requests found {} on this machine: {remedy}", class.text()))
    });
    failed.into_iter().flatten()
}

/// The processor time of a thread as a share of one core.
fn busy_share((cpu, elapsed): &(Duration, Duration)) -> f64 {
    if elapsed.is_zero() { 0.0 } else { cpu.as_secs_f64() / elapsed.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use stockade_model::time::Time;
    use stockade_record::timing::Timing;

    use super::*;
    use crate::{sample::Sample, tally::Tally};

    /// A run of 200 requests that all had this response time.
    fn run(response: Duration) -> Summary {
        let mut measured = Tally::default();
        measured.times.response = [response; 200].into_iter().collect();
        Summary::of(measured)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// One thread with this processor time in this time, late this often by this much.
    fn monitor(cpu: Duration, elapsed: Duration, late: (usize, Duration)) -> HealthMonitor {
        let limit = InFlightLimit { most: 192, enough: 9_000, is_of_process: true };
        let mut monitor = HealthMonitor::new(2, limit);
        monitor.record_thread(1, cpu, elapsed, &vec![late.1; late.0].into_iter().collect());
        monitor
    }

    #[test]
    fn generator_that_kept_up_is_valid() {
        for monitor in [
            monitor(ms(800), ms(1_000), (200, ms(0))),
            // A burst is too short to measure how busy the thread was.
            monitor(ms(100), ms(100), (50, ms(9))),
            // Late by less than a tenth of what is measured.
            monitor(ms(1), ms(1_000), (200, ms(4))),
        ] {
            assert_eq!(monitor.judge(&run(ms(50))).invalid_reasons, Vec::<String>::new(), "{monitor:?}");
        }
    }

    #[test]
    fn generator_that_did_not_keep_up_has_reasons() {
        let reasons = |monitor: HealthMonitor, run: &Summary| monitor.judge(run).invalid_reasons.join("; ");
        let idle = || monitor(ms(1), ms(1_000), (200, ms(0)));
        assert!(reasons(monitor(ms(910), ms(1_000), (0, ms(0))), &run(ms(50))).contains("busy 91 %"));
        assert!(reasons(monitor(ms(1), ms(1_000), (200, ms(6))), &run(ms(50))).contains("was late"));
        let mut stolen = monitor(ms(1), ms(1_000), (200, ms(6)));
        stolen.record_steal(Some(0.097));
        assert!(reasons(stolen, &run(ms(50))).ends_with(
            "; other machines had 10 % of this host's processor time (steal): use a dedicated one"
        ));
        // Slow responses allow more lateness, up to a bound.
        assert!(reasons(monitor(ms(1), ms(1_000), (200, ms(150))), &run(ms(30_000))).contains("was late"));
        let waited = Summary { held_back: 2_300, dropped: 7, ..run(ms(50)) };
        assert_eq!(
            reasons(idle(), &waited),
            "the limit of 192 requests in flight was reached: 2,300 were due and waited, and 7 were never sent; 9,000 suffice \
             (rate times timeout): raise `ulimit -n` to 9064 and the range of local ports to 9000, shorten the timeout, or divide the \
             load among agents"
        );
        let mut no_ports = run(ms(50));
        let timing = Timing { scheduled: Time::ZERO, started: Time::ZERO, finished: Time::ZERO };
        let result = Err(FailureClass::NoPorts.into());
        no_ports.measured.record(&Sample { number: 0, timing, bytes_out: 0, result });
        assert!(reasons(idle(), &no_ports).starts_with("1 requests found no local port left"));
    }
}
