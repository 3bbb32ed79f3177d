//! Once a second: the load's own figures, memory and processor time of each process, and the counters of the cache.

use std::{collections::BTreeMap, io, process, sync::Arc, time::Duration};

use serde::Deserialize;
use stockade_cache::{RequestStats, StoreStats};
use stockade_http::tls::Trust;
use stockade_load::{
    generator::{CancellationToken, LoadProgress, LoadStart, Observer},
    sample::{FailureClass, Sample},
};
use stockade_model::{seed::Seed, units::format_duration};
use stockade_record::{
    record::{self, Accounting, CacheContents, Role, StatsProvider, Usage},
    server::{MEMORY_SHARE_MAX, StartedServer},
};

use super::{
    HttpError,
    accounting::{AccountingThread, AccountingWindow},
    disturbance::DisturbanceMonitor,
    event::{EventParts, LoadEvent, RunningEvents},
    probe::{PendingProbe, PreflightProbe},
    process::{RemoteProcess, SampledProcess},
    restart::{CacheServer, RestartableServer},
};
use crate::target::{CacheCounters, OpenSecond, Second};

/// Failures of a request that found no server.
const UNREACHABLE: [FailureClass; 3] = [FailureClass::Refused, FailureClass::Unreachable, FailureClass::Dns];

/// The target of the load.
pub(super) struct TargetEndpoint {
    pub(super) url: String,
    /// Its counters, or those of its origin.
    pub(super) stats: Option<CounterPage>,
    /// Of a server that runs already.
    pub(super) pid: Option<u32>,
    /// The server itself, if this measurement started it.
    pub(super) started: Option<Arc<dyn StartedServer>>,
    /// The server that events may stop and start again.
    pub(super) server: Option<CacheServer>,
}

/// An admin page with counters.
#[derive(Clone, Debug)]
pub(super) struct CounterPage {
    pub(super) server: Arc<dyn StartedServer>,
    pub(super) path: &'static str,
}

/// Follows a load and samples its processes once a second. It cancels the load when a process has ended, or when they
/// take more memory than a run may.
pub(super) struct Sampler<'a> {
    endpoint: &'a TargetEndpoint,
    /// The processes on this machine.
    processes: Vec<SampledProcess>,
    /// Those on other machines.
    remote: Vec<RemoteProcess>,
    started: Vec<&'a dyn StartedServer>,
    /// Bound of all processes together.
    bytes_max: Option<u64>,
    readings: CacheReadings,
    /// Probes that are not due yet.
    probes: Vec<(PreflightProbe, Seed)>,
    /// The certificates that probes accept.
    trust: Trust,
    sent: Vec<PendingProbe>,
    answered: Vec<record::ProbeFigures>,
    stop_reason: Option<StopReason>,
    stop: &'a CancellationToken,
    /// The last second so far: the last reading of the counters belongs to it, too.
    last_second: Option<Second>,
    disturbances: DisturbanceMonitor,
    /// When the time of threads is accounted, if it is.
    pub(super) window: Option<AccountingWindow>,
    accounting: Option<io::Result<AccountingThread>>,
    /// The events of the load, and their parts, if there are any.
    pub(super) events: Option<(&'a [LoadEvent], Arc<EventParts>)>,
    running_events: Option<RunningEvents>,
    sink: &'a mut dyn FnMut(Second),
}

/// The result of the sampling.
pub(super) struct Observations {
    pub(super) readings: CacheReadings,
    pub(super) probes: Vec<record::ProbeFigures>,
    pub(super) events: Vec<record::EventFigures>,
    /// Why the load was cancelled.
    pub(super) stop_reason: Option<StopReason>,
    pub(super) accounting: Option<Accounting>,
    /// Limits of the figures.
    pub(super) notes: Vec<String>,
    /// The disturbed seconds, if there are any.
    pub(super) disturbed: Option<String>,
}

/// Why a load was cancelled.
pub(super) enum StopReason {
    /// A child process or the server of `command` ended.
    Ended(HttpError),
    /// The processes took too much memory.
    Memory(String),
    /// No request of the first second found a server.
    Unreachable(String),
}

/// The counters of the cache during the load.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CacheReadings {
    pub(super) last: CacheCounters,
    /// The most bytes that it reported to hold.
    pub(super) peak_bytes: Option<u64>,
    /// The process that reports the counters.
    pub(super) stats_provider: StatsProvider,
    /// True if the last reading succeeded.
    pub(super) is_last: bool,
    /// The counters before the load.
    before: CacheCounters,
}

impl TargetEndpoint {
    /// A server that reports its counters at its admin address.
    pub(super) fn of_started(server: Arc<dyn StartedServer>) -> Self {
        let stats = Some(CounterPage { server: Arc::clone(&server), path: "/stats" });
        Self { url: server.url().to_owned(), stats, pid: None, started: Some(server), server: None }
    }

    /// As [`of_started`](Self::of_started).
    pub(super) fn of_proxy(server: Arc<RestartableServer>) -> Self {
        Self { server: Some(CacheServer::Proxy(Arc::clone(&server))), ..Self::of_started(server) }
    }

    /// Its process on this machine; `None`: unknown, or it does not run.
    pub(super) fn process(&self) -> Option<u32> {
        let started = self.started.as_ref().and_then(|server| server.process());
        started.or_else(|| self.server.as_ref()?.process()).or(self.pid)
    }
}

impl CounterPage {
    /// The requests that an origin has received.
    pub(super) fn of_origin(origin: &Arc<dyn StartedServer>) -> Self {
        Self { server: Arc::clone(origin), path: "/current_count" }
    }

    pub(super) fn read(&self) -> Result<String, String> {
        self.server.page(self.path)
    }
}

impl<'a> Sampler<'a> {
    /// A sampler on a machine with so much memory (0 MiB: unknown).
    pub(super) fn new(
        endpoint: &'a TargetEndpoint,
        origin: Option<&'a Arc<dyn StartedServer>>,
        is_load_here: bool,
        memory_mib: u64,
        stop: &'a CancellationToken,
        sink: &'a mut dyn FnMut(Second),
    ) -> Self {
        let parts = [
            is_load_here.then(|| SampledProcess::alone(Role::Load, process::id())),
            endpoint.process().map(|id| match endpoint.started {
                Some(_) => SampledProcess::alone(Role::Proxy, id),
                None => SampledProcess::tree(Role::Proxy, id),
            }),
            origin.and_then(|origin| Some(SampledProcess::alone(Role::Origin, origin.process()?))),
        ];
        let started = [(Role::Proxy, endpoint.started.as_ref()), (Role::Origin, origin)];
        let remote =
            started.iter().filter_map(|(role, server)| RemoteProcess::of(*role, Arc::clone((*server)?)));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of it")]
        let bytes_max = ((memory_mib << 20) as f64 * MEMORY_SHARE_MAX) as u64;
        let processes: Vec<_> = parts.into_iter().flatten().collect();
        let knows_processes =
            origin.is_some() && (endpoint.process().is_some() || endpoint.started.is_some());
        let disturbances = DisturbanceMonitor::new(&members(&processes), knows_processes);
        Self {
            endpoint,
            processes,
            remote: remote.collect(),
            started: endpoint.started.iter().chain(origin).map(AsRef::as_ref).collect(),
            bytes_max: (memory_mib > 0).then_some(bytes_max),
            readings: CacheReadings {
                stats_provider: StatsProvider::Unavailable,
                ..CacheReadings::default()
            },
            probes: Vec::new(),
            trust: Trust::System,
            sent: Vec::new(),
            answered: Vec::new(),
            stop_reason: None,
            stop,
            last_second: None,
            disturbances,
            window: None,
            accounting: None,
            events: None,
            running_events: None,
            sink,
        }
    }

    /// Sends the probes that precede the load and waits for their answers; keeps the others until they are due.
    pub(super) fn start_probes(&mut self, probes: &[PreflightProbe], url_seed: Seed, trust: &Trust) {
        self.trust = trust.clone();
        for (probe, number) in probes.iter().zip(1..) {
            let seed = url_seed.child(&format!("probe {number}"));
            if probe.at.is_none() {
                self.answered.push(probe.send(&self.endpoint.url, seed, trust).wait());
            } else {
                self.probes.push((probe.clone(), seed));
            }
        }
        // Their cost is not the load's.
        self.read_counters();
        self.readings.before = self.readings.last;
        self.readings.last = CacheCounters::default();
    }

    /// Takes a last reading.
    pub(super) fn finish(mut self) -> Observations {
        let events = self.running_events.take().map(RunningEvents::finish).unwrap_or_default();
        let before = self.readings.last.requests.loads;
        self.read_counters();
        // One that is lost has ended the load by itself.
        self.stop_reason = self.stop_reason.take().or_else(|| self.ended_server());
        if let Some(mut last) = self.last_second.take() {
            if let Some(loads) = last.open.as_mut().and_then(|open| open.source_loads.as_mut()) {
                *loads += self.readings.last.requests.loads.saturating_sub(before);
            }
            (self.sink)(last);
        }
        let mut notes: Vec<_> = self.processes.iter().flat_map(SampledProcess::notes).collect();
        let accounting = match self.accounting {
            Some(Ok(thread)) => thread.finish().ok_or_else(|| "the load ended before".to_owned()),
            Some(Err(error)) => Err(error.to_string()),
            None => Err("the load did not start".to_owned()),
        };
        let not_accounted = accounting.as_ref().err().filter(|_| self.window.is_some());
        notes.extend(not_accounted.map(|reason| format!("the time of threads was not accounted: {reason}")));
        self.answered.extend(self.sent.into_iter().map(PendingProbe::wait));
        Observations {
            readings: self.readings,
            probes: self.answered,
            events,
            stop_reason: self.stop_reason,
            accounting: accounting.ok(),
            notes,
            disturbed: self.disturbances.in_words(),
        }
    }

    /// Reads the counters of the cache; without an answer the last ones stay.
    fn read_counters(&mut self) {
        // A server that an event has frozen does not answer.
        let stats = self
            .endpoint
            .stats
            .as_ref()
            .filter(|_| !self.events.as_ref().is_some_and(|(_, parts)| parts.is_any_frozen()));
        let text = stats.and_then(|stats| stats.read().ok());
        let stats = text.and_then(|text| serde_json::from_str::<StatsPage>(&text).ok());
        self.readings.is_last = stats.is_some();
        let Some(stats) = stats else { return };
        self.readings.stats_provider = if matches!(stats, StatsPage::Cache { .. }) {
            StatsProvider::Cache
        } else {
            StatsProvider::Origin
        };
        self.readings.last = stats.counters().since(&self.readings.before);
        self.readings.peak_bytes = self.readings.peak_bytes.max(self.readings.last.store.bytes);
    }

    /// Cancels the load where it cannot go on. `usage`: of the processes on this machine.
    fn guard(&mut self, elapsed: Duration, usage: &BTreeMap<Role, Usage>) {
        if self.stop_reason.is_some() {
            return;
        }
        let bytes: u64 = usage.values().map(|usage| usage.rss_bytes).sum();
        let too_much = |most: &u64| bytes > *most;
        let memory = self.bytes_max.filter(too_much).map(|most| {
            StopReason::Memory(format!(
                "ended after {}: its processes took {} MiB, more than the {} MiB that are 60 % of this machine's memory",
                format_duration(Duration::from_secs(elapsed.as_secs())),
                bytes >> 20,
                most >> 20,
            ))
        });
        self.stop_reason = memory.or_else(|| self.ended_server());
        if self.stop_reason.is_some() {
            self.stop.cancel();
        }
    }

    fn ended_server(&self) -> Option<StopReason> {
        let mut ended = self.started.iter().filter_map(|server| server.check().err().map(HttpError::from));
        let command = || match self.endpoint.server.as_ref()? {
            CacheServer::Command(server) => server.check().err().map(HttpError::from),
            CacheServer::Proxy(_) => None,
        };
        ended.next().or_else(command).map(StopReason::Ended)
    }
}

impl Sampler<'_> {
    /// Cancels a load whose first second found no server: the rest would not either.
    fn guard_reachability(&mut self, progress: &LoadProgress<'_>) {
        let tally = progress.tally;
        let unreachable: u64 = UNREACHABLE.iter().map(|class| tally.failures_of(*class)).sum();
        if progress.elapsed() > Duration::from_secs(1) || unreachable == 0 || unreachable < tally.requests() {
            return;
        }
        let error = tally.errors.first().map(String::as_str).unwrap_or_default();
        self.stop_reason.get_or_insert(StopReason::Unreachable(format!(
            "all {unreachable} requests of the first second failed to reach {}: {error}; is it running?",
            self.endpoint.url
        )));
        self.stop.cancel();
    }
}

impl Observer for Sampler<'_> {
    fn on_start(&mut self, _: LoadStart) {
        // The load has connected.
        self.processes.iter_mut().for_each(SampledProcess::begin);
        self.remote.iter_mut().for_each(RemoteProcess::begin);
        let start = |window| {
            let processes = self.processes.iter().map(SampledProcess::accounted).collect();
            AccountingThread::start(window, processes, self.endpoint.stats.clone())
        };
        self.accounting = self.window.map(start);
        let events = self.events.as_ref();
        self.running_events = events.map(|(events, parts)| RunningEvents::start(events, parts));
    }

    fn on_second(&mut self, progress: &LoadProgress<'_>) {
        // A stopped proxy reports its counters when it goes on.
        let cache = self.endpoint.process();
        for process in self.processes.iter_mut().filter(|process| process.role == Role::Proxy) {
            process.follow(cache);
        }
        let members = members(&self.processes);
        let mut stopped = None;
        let parts = self.events.as_ref().map(|(_, parts)| Arc::clone(parts));
        let is_frozen = |part| parts.as_ref().is_some_and(|parts| parts.is_frozen(part));
        for process in &mut self.processes {
            if process.is_stopped() && !is_frozen(process.role) {
                stopped = stopped.or(Some(process.role));
            }
        }
        let before = self.readings.last;
        self.read_counters();
        let last = self.readings.last;
        let StoreStats { entries, bytes, .. } = last.store;
        let mut usage: BTreeMap<_, _> =
            self.processes.iter_mut().filter_map(|process| Some((process.role, process.usage()?))).collect();
        self.guard(progress.elapsed(), &usage);
        let number = progress.elapsed().as_secs().saturating_sub(1);
        let is_counted = self.readings.stats_provider != StatsProvider::Unavailable;
        let is_whole = usage.len() == self.processes.len();
        let own_cores = is_whole.then(|| usage.values().map(|usage| usage.cpu).sum());
        let disturbance = self.disturbances.second(number, &members, own_cores, stopped);
        usage.extend(self.remote.iter_mut().filter_map(|process| Some((process.role, process.usage()?))));
        let is_due =
            |(probe, _): &(PreflightProbe, Seed)| probe.at.is_some_and(|at| at <= progress.elapsed());
        let (due, later): (Vec<_>, Vec<_>) = self.probes.drain(..).partition(is_due);
        self.probes = later;
        self.sent
            .extend(due.into_iter().map(|(probe, seed)| probe.send(&self.endpoint.url, seed, &self.trust)));
        self.guard_reachability(progress);
        let second = Second {
            second: number,
            outcomes: progress.tally.request_outcomes(),
            times: progress.tally.recorded_times(),
            open: Some(OpenSecond {
                source_loads: is_counted.then(|| last.requests.loads.saturating_sub(before.requests.loads)),
                retries: progress.tally.retries,
                ..OpenSecond::default()
            }),
            usage,
            disturbance,
            status_codes: progress.tally.status_codes.clone(),
            errors: progress.tally.failed_by_class().into_iter().collect(),
            holds: (self.readings.stats_provider == StatsProvider::Cache).then_some(CacheContents {
                entries,
                bytes,
                reclaims: last.reclaims(),
                waiters: last.requests.waiters,
            }),
        };
        if let Some(complete) = self.last_second.replace(second) {
            (self.sink)(complete);
        }
    }

    fn on_sample(&mut self, _: &Sample) -> io::Result<()> {
        Ok(())
    }
}

/// The processes of each role.
fn members(processes: &[SampledProcess]) -> Vec<(Role, Vec<u32>)> {
    processes.iter().map(|process| (process.role, process.ids())).collect()
}

/// A page of statistics.
#[derive(Deserialize)]
#[serde(untagged)]
enum StatsPage {
    /// `/stats` of a proxy, or of an app.
    Cache {
        #[serde(flatten)]
        store: StoreStats,
        routes: Vec<RequestStats>,
    },
    /// The counters of an origin: all that is known of a cache without statistics.
    Origin { total_requests: u64 },
}

impl StatsPage {
    fn counters(&self) -> CacheCounters {
        let mut requests = RequestStats::default();
        match self {
            Self::Cache { store, routes } => {
                routes.iter().for_each(|route| requests += *route);
                CacheCounters { store: *store, requests }
            }
            Self::Origin { total_requests } => {
                requests.loads = *total_requests;
                CacheCounters { requests, ..CacheCounters::default() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, net::TcpListener, process::Command, thread};

    use rustix::process::{Pid, Signal, kill_process};
    use stockade_load::{generator::GeneratorSecond, sample::Response};
    use stockade_model::{outcome::Outcome, time::Time};
    use stockade_record::{
        server::{ProcessReading, ServerError},
        timing::Timing,
    };

    use stockade_load::tally::Tally;
    use stockade_model::outcome::Outcomes;

    use super::*;
    use crate::http::fetch::get;

    fn endpoint() -> TargetEndpoint {
        TargetEndpoint {
            url: "http://127.0.0.1:1".to_owned(),
            stats: None,
            pid: None,
            started: None,
            server: None,
        }
    }

    /// A server that has only its admin page.
    #[derive(Debug)]
    struct AnsweringAt(String);

    impl StartedServer for AnsweringAt {
        fn url(&self) -> &str {
            &self.0
        }

        fn process(&self) -> Option<u32> {
            None
        }

        fn page(&self, path: &str) -> Result<String, String> {
            get(&format!("{}{path}", self.0))
        }

        fn reading(&self) -> Option<ProcessReading> {
            None
        }

        fn check(&self) -> Result<(), ServerError> {
            Ok(())
        }

        fn unresponsive(&self, error: &str) -> ServerError {
            ServerError { message: error.to_owned(), is_usage: false }
        }
    }

    fn taking(mib: u64) -> BTreeMap<Role, Usage> {
        let usage = |mib: u64| Usage { rss_bytes: mib << 20, cpu: 0.0 };
        BTreeMap::from([(Role::Load, usage(10)), (Role::Proxy, usage(mib))])
    }

    #[test]
    fn load_that_reaches_no_server_in_its_first_second_is_stopped() {
        let failing = |class: FailureClass, failures: u64, answers: u64| {
            let mut tally = Tally::default();
            *tally.failures.entry(class.name()).or_default() += failures;
            tally.status_codes = [(0, failures), (200, answers)].into();
            tally
        };
        for (tally, second, is_stopped) in [
            (failing(FailureClass::Refused, 9, 0), 1, true),
            (failing(FailureClass::Dns, 9, 0), 1, true),
            (failing(FailureClass::Refused, 9, 1), 1, false),
            (failing(FailureClass::Timeout, 9, 0), 1, false),
            (failing(FailureClass::Refused, 9, 0), 2, false),
            (failing(FailureClass::Refused, 0, 0), 1, false),
        ] {
            let (endpoint, stop, mut sink) = (endpoint(), CancellationToken::default(), |_: Second| {});
            let mut sampler = Sampler::new(&endpoint, None, true, 0, &stop, &mut sink);
            sampler.guard_reachability(&LoadProgress {
                second: &GeneratorSecond { second: second - 1, ..GeneratorSecond::default() },
                tally: &tally,
                requests: 9,
                failed: 9,
            });
            assert_eq!(
                matches!(sampler.stop_reason, Some(StopReason::Unreachable(_))),
                is_stopped,
                "{tally:?}"
            );
            assert_eq!(stop.is_cancelled(), is_stopped);
        }
    }

    #[test]
    fn failed_request_with_an_outcome_counts_once() {
        let mut tally = Tally::default();
        let times = Timing { scheduled: Time::ZERO, started: Time::ZERO, finished: Time::ZERO };
        for (status, outcome) in
            [(200, Some(Outcome::Hit)), (200, None), (503, Some(Outcome::Miss)), (503, None)]
        {
            let response = Response {
                status,
                bytes: 0,
                wire_bytes: 0,
                outcome,
                may_be_stale: false,
                deviation: None,
                stated: None,
            };
            tally.record(&Sample { number: 0, timing: times, bytes_out: 0, result: Ok(response) });
        }
        assert_eq!(
            tally.request_outcomes(),
            Outcomes { hit: 1, unreported: 1, error: 2, ..Outcomes::default() }
        );
    }

    /// A stopped process responds when it goes on: here that is when its counters are requested.
    #[test]
    fn process_that_is_stopped_at_the_end_of_a_second_is_a_disturbance() {
        let mut process = Command::new("sleep").arg("60").spawn().expect("it starts");
        let id = Pid::from_child(&process);
        kill_process(id, Signal::STOP).expect("it runs");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let stats = Some(CounterPage { server: Arc::new(AnsweringAt(url)), path: "" });
        let respond = move |_| {
            let (mut tcp, _) = listener.accept().expect("a request");
            kill_process(id, Signal::CONT).expect("it is stopped");
            tcp.write_all(b"HTTP/1.0 200 OK\r\n\r\n{\"total_requests\": 7}").expect("a reader");
        };
        let server = thread::spawn(move || (0..2).for_each(respond));
        let endpoint = TargetEndpoint { stats, pid: Some(process.id()), ..endpoint() };
        let (stop, mut disturbances) = (CancellationToken::default(), Vec::new());
        let mut sink = |second: Second| disturbances.push(second.disturbance);
        let mut sampler = Sampler::new(&endpoint, None, true, 0, &stop, &mut sink);
        while !stockade_model::proc::is_stopped(process.id()) {
            thread::yield_now();
        }
        let tally = Tally::default();
        let second = &GeneratorSecond::default();
        sampler.on_second(&LoadProgress { second, tally: &tally, requests: 0, failed: 0 });
        let observed = sampler.finish();
        server.join().expect("two requests");
        process.kill().expect("it runs");
        process.wait().expect("it ends");
        assert!(disturbances[0].is_some_and(|one| one.stopped == Some(Role::Proxy)), "{disturbances:?}");
        assert!(observed.disturbed.is_some_and(|text| text.ends_with("the proxy was stopped")));
    }

    #[test]
    fn memory_above_the_bound_cancels_the_load_and_not_the_run() {
        let (endpoint, run, mut sink) = (endpoint(), CancellationToken::default(), |_: Second| {});
        let stop = run.child_token();
        let mut sampler = Sampler::new(&endpoint, None, true, 1000, &stop, &mut sink);
        sampler.guard(Duration::from_secs(1), &taking(590));
        assert!(sampler.stop_reason.is_none() && !stop.is_cancelled());
        sampler.guard(Duration::from_millis(61_300), &taking(591));
        sampler.guard(Duration::from_secs(62), &taking(900));
        let Some(StopReason::Memory(reason)) = &sampler.stop_reason else { panic!("not cancelled") };
        assert_eq!(
            reason,
            "ended after 61s: its processes took 601 MiB, more than the 600 MiB that are 60 % of this machine's memory"
        );
        assert!(stop.is_cancelled() && !run.is_cancelled());
    }

    #[test]
    fn unknown_memory_cancels_nothing() {
        let (endpoint, stop, mut sink) = (endpoint(), CancellationToken::default(), |_: Second| {});
        let mut sampler = Sampler::new(&endpoint, None, true, 0, &stop, &mut sink);
        sampler.guard(Duration::from_secs(1), &taking(1 << 20));
        assert!(sampler.stop_reason.is_none() && !stop.is_cancelled());
    }
}
