//! Whether the load generator was up to its load: what it knows of itself, judged.

use std::time::Duration;

use stockade_model::{histogram::Histogram, units::format_duration};

use crate::{
    sample::Class,
    summary::{Generator, Summary},
};

/// What was seen of the generator while it was sending.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    /// By thread: its processor time, and in what time.
    threads: Vec<(Duration, Duration)>,
    /// How late threads came to what they had to send.
    lateness: Histogram,
    cpu_max: f64,
    resident_max: Option<u64>,
    resident_last: Option<u64>,
    steal: Option<f64>,
}

/// A thread that is so busy is late for what comes next.
const BUSY_MAX: f64 = 0.9;
/// How busy a thread is cannot be told of less time.
const BUSY_FROM: Duration = Duration::from_millis(200);
/// Lateness below this is nobody's concern,
const LATENESS_MAX: Duration = Duration::from_millis(1);
/// nor is such a part of what is measured,
const LATENESS_SHARE: f64 = 0.1;
/// but this is, whatever is measured.
const LATENESS_EVER: Duration = Duration::from_millis(100);
/// Of fewer requests one in a hundred cannot be told.
const LATENESS_FROM: u64 = 100;

impl Watched {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            threads: vec![(Duration::ZERO, Duration::ZERO); threads],
            lateness: Histogram::new(),
            cpu_max: 0.0,
            resident_max: None,
            resident_last: None,
            steal: None,
        }
    }

    /// Such a share of the processor time went to others, in all.
    pub(crate) fn stolen(&mut self, share: Option<f64>) {
        self.steal = share;
    }

    /// What one thread did in a second, or a part of one.
    pub(crate) fn thread(&mut self, index: usize, cpu: Duration, lasted: Duration, lateness: &Histogram) {
        let thread = &mut self.threads[index];
        *thread = (thread.0 + cpu, thread.1 + lasted);
        self.lateness.merge(lateness);
    }

    /// One more whole second of all threads.
    pub(crate) fn second(&mut self, cpu: Duration) {
        self.cpu_max = self.cpu_max.max(cpu.as_secs_f64());
    }

    /// So many bytes are in memory now.
    pub(crate) fn resident(&mut self, bytes: Option<u64>) {
        self.resident_max = self.resident_max.max(bytes);
        self.resident_last = bytes;
    }

    /// Whether the run tells what it seems to tell.
    pub(crate) fn judge(&self, summary: &Summary) -> Generator {
        let reasons = [self.busy(), self.late(summary)].into_iter().flatten();
        // A second that was not a whole one may have been the busiest.
        let cpu_mean = self.threads.iter().map(busy).sum();
        Generator {
            cpu_mean,
            cpu_max: self.cpu_max.max(cpu_mean),
            resident_max: self.resident_max,
            resident_last: self.resident_last,
            steal: self.steal,
            reasons: reasons.chain(lacking(summary)).collect(),
        }
    }

    fn busy(&self) -> Option<String> {
        let told = self.threads.iter().filter(|(_, lasted)| *lasted >= BUSY_FROM);
        let busiest = told.map(busy).fold(0.0, f64::max);
        (busiest > BUSY_MAX).then(|| {
            format!(
                "the generator was the bottleneck: a thread of it was busy {:.0} % of the time; ask for less, or give \
                 it more --threads and cores",
                busiest * 100.0
            )
        })
    }

    fn late(&self, summary: &Summary) -> Option<String> {
        let late = self.lateness.quantile(0.99).filter(|_| self.lateness.count() >= LATENESS_FROM)?;
        let response = summary.measured.times.response.quantile(0.99);
        let allowed = response.unwrap_or_default().mul_f64(LATENESS_SHARE).clamp(LATENESS_MAX, LATENESS_EVER);
        let of = response.map(|p99| format!(", of a response p99 of {}", format_duration(p99)));
        let remedy = match self.steal.filter(|steal| *steal > Generator::STEAL_MAX) {
            Some(steal) => {
                format!("others had {:.0} % of this machine: run it on one of its own", steal * 100.0)
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
}

/// What there was not enough of.
fn lacking(summary: &Summary) -> impl Iterator<Item = String> {
    let dropped = (summary.dropped > 0).then(|| {
        format!(
            "{} requests were due and never sent: --max-in-flight were under way until the end of the drain",
            summary.dropped
        )
    });
    let classes = [
        (Class::NoPorts, "keep connections, or widen net.ipv4.ip_local_port_range"),
        (Class::NoFiles, "raise `ulimit -n`, or ask for fewer connections"),
    ];
    let failed = classes.map(|(class, remedy)| {
        let failed = summary.measured.of(class);
        (failed > 0).then(|| format!("{failed} requests found {} on this machine: {remedy}", class.text()))
    });
    dropped.into_iter().chain(failed.into_iter().flatten())
}

/// How busy a thread was: 1 is a whole core.
fn busy((cpu, lasted): &(Duration, Duration)) -> f64 {
    if lasted.is_zero() { 0.0 } else { cpu.as_secs_f64() / lasted.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use stockade_model::time::Time;

    use super::*;
    use crate::{sample::Sample, tally::Tally};

    /// A run whose answers all took so long.
    fn run(response: Duration) -> Summary {
        let mut measured = Tally::default();
        measured.times.response = [response; 200].into_iter().collect();
        Summary {
            id: String::new(),
            schedule: String::new(),
            clock_zero: UNIX_EPOCH,
            began: Time::ZERO,
            ended: Time::ZERO,
            measured,
            warmup: None,
            seconds: Vec::new(),
            dropped: 0,
            sent_after_end: 0,
            in_flight_at_end: 0,
            in_flight_max: 0,
            connections: 0,
            generator: Generator::default(),
        }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// One thread that was so busy for so long, and late so often by so much.
    fn watched(cpu: Duration, lasted: Duration, late: (usize, Duration)) -> Watched {
        let mut watched = Watched::new(2);
        watched.thread(1, cpu, lasted, &vec![late.1; late.0].into_iter().collect());
        watched
    }

    #[test]
    fn a_generator_that_was_up_to_it_is_believed() {
        for watched in [
            watched(ms(800), ms(1_000), (200, ms(0))),
            // A burst: over before anybody can say how busy it was.
            watched(ms(100), ms(100), (50, ms(9))),
            // Late by less than a tenth of what is measured.
            watched(ms(1), ms(1_000), (200, ms(4))),
        ] {
            assert_eq!(watched.judge(&run(ms(50))).reasons, Vec::<String>::new(), "{watched:?}");
        }
    }

    #[test]
    fn one_that_was_not_says_why() {
        let found = |watched: Watched, run: &Summary| watched.judge(run).reasons.join("; ");
        let idle = || watched(ms(1), ms(1_000), (200, ms(0)));
        assert!(found(watched(ms(910), ms(1_000), (0, ms(0))), &run(ms(50))).contains("busy 91 %"));
        assert!(found(watched(ms(1), ms(1_000), (200, ms(6))), &run(ms(50))).contains("was late"));
        let mut stolen = watched(ms(1), ms(1_000), (200, ms(6)));
        stolen.stolen(Some(0.097));
        assert!(
            found(stolen, &run(ms(50)))
                .ends_with("; others had 10 % of this machine: run it on one of its own")
        );
        // Slow answers excuse much, but not everything.
        assert!(found(watched(ms(1), ms(1_000), (200, ms(150))), &run(ms(30_000))).contains("was late"));
        let dropped = Summary { dropped: 7, ..run(ms(50)) };
        assert!(found(idle(), &dropped).starts_with("7 requests were due and never sent"));
        let mut lacking = run(ms(50));
        let (scheduled, started, finished) = (Time::ZERO, Time::ZERO, Time::ZERO);
        let ended = Err(Class::NoPorts.into());
        lacking.measured.record(&Sample { number: 0, scheduled, started, finished, bytes_out: 0, ended });
        assert!(found(idle(), &lacking).starts_with("1 requests found no local port left"));
    }
}
