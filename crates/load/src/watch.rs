//! Whether the load generator was up to its load: what it knows of itself, judged.

use std::time::Duration;

use stockade_model::{histogram::Histogram, units::format_duration};

use crate::{
    sample::Class,
    summary::{Generator, Summary},
};

/// What was seen of the generator while it ran.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    /// By thread: its processor time, measured part and warm-up.
    threads: Vec<Duration>,
    /// How late threads came to what they had to send.
    lateness: Histogram,
    cpu_max: Duration,
}

/// A thread that is so busy is late for what comes next.
const BUSY_MAX: f64 = 0.9;
/// Lateness below this is nobody's concern.
const LATENESS_MAX: Duration = Duration::from_millis(1);
/// Nor is such a part of what is measured.
const LATENESS_SHARE: f64 = 0.1;

impl Watched {
    pub(crate) fn new(threads: usize) -> Self {
        Self { threads: vec![Duration::ZERO; threads], lateness: Histogram::new(), cpu_max: Duration::ZERO }
    }

    /// What one thread did in one second.
    pub(crate) fn thread(&mut self, index: usize, cpu: Duration, lateness: &Histogram) {
        self.threads[index] += cpu;
        self.lateness.merge(lateness);
    }

    /// One more whole second of all threads.
    pub(crate) fn second(&mut self, cpu: Duration) {
        self.cpu_max = self.cpu_max.max(cpu);
    }

    /// Whether the run tells what it seems to tell.
    pub(crate) fn judge(&self, summary: &Summary, lasted: Duration) -> Generator {
        let seconds = lasted.as_secs_f64();
        let of_time = |cpu: Duration| if seconds > 0.0 { cpu.as_secs_f64() / seconds } else { 0.0 };
        let mut reasons = Vec::new();
        let busiest = self.threads.iter().copied().max().unwrap_or_default();
        if of_time(busiest) > BUSY_MAX {
            reasons.push(format!(
                "the generator was the bottleneck: a thread of it was busy {:.0} % of the time; ask for less, or \
                 give it more --threads and cores",
                of_time(busiest) * 100.0,
            ));
        }
        let late = self.lateness.quantile(0.99).unwrap_or_default();
        let response = summary.measured.latencies().quantile(0.99).unwrap_or_default();
        if late > LATENESS_MAX.max(response.mul_f64(LATENESS_SHARE)) {
            reasons.push(format!(
                "the generator was late: 1 % of its requests by {} or more, of a response p99 of {}; give it a core \
                 of its own",
                format_duration(late),
                format_duration(response),
            ));
        }
        if summary.dropped > 0 {
            reasons.push(format!(
                "{} requests were due and never sent: --max-in-flight were under way until the end of the drain",
                summary.dropped
            ));
        }
        for (class, remedy) in [
            (Class::NoPorts, "keep connections, or widen net.ipv4.ip_local_port_range"),
            (Class::NoFiles, "raise `ulimit -n`, or ask for fewer connections"),
        ] {
            let failed = summary.measured.of(class);
            if failed > 0 {
                reasons.push(format!("{failed} requests found {} on this machine: {remedy}", class.text()));
            }
        }
        // A second that was not a whole one may have been the busiest.
        let cpu_mean = of_time(self.threads.iter().sum());
        Generator { cpu_mean, cpu_max: self.cpu_max.as_secs_f64().max(cpu_mean), reasons }
    }
}
