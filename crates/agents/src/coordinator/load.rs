//! One load on agents: it is prepared, started, followed and ended, and its seconds are merged.

use std::time::{Duration, SystemTime};

use async_nats::{
    Client, Message, Subscriber,
    connection::State,
    jetstream::consumer::pull::{Ordered, OrderedConfig},
};
use futures_util::{StreamExt, future::join_all};
use serde::de::DeserializeOwned;
use stockade_load::{
    generator::{
        CancellationToken, LoadTest, LoadTestError, LoadTestRun, Observer, ReadyLoad, Share, SummaryFold,
    },
    plan::Segment,
    schedule::Schedule,
};
use stockade_model::{time::Time, units::format_duration};
use stockade_record::record::{AgentClockFigures, AgentFigures, ShareMoveFigures};
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    CHECK_INTERVAL, Coordinator, CoordinatorError, PAUSE_MAX, SHORT_REQUEST_TIMEOUT, request_of,
    send_signs_of_life, weights,
};
use crate::{
    clock::{AgentClock, ClockEstimate, Nanos, Ping, duration},
    connection::reason,
    rebalance::{Rebalance, SecondLag},
    roster::Roster,
    wait::{Ticks, pause, within},
    wire::{AgentInfo, AgentReply, AgentRequest, AgentStatus, RunId},
};

/// How long agents may take to open their connections.
const READY_TIMEOUT: Duration = Duration::from_mins(1);
/// From the message that starts a segment to its start.
const START_DELAY: Duration = Duration::from_millis(200);
/// From the message that moves shares to the first request that they divide.
const MOVE_DELAY: Duration = Duration::from_millis(1_500);
/// How long agents may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// The readings of each clock before and after a load, and between two of them during it.
const PINGS: usize = 40;
const PING_INTERVAL: Duration = Duration::from_millis(250);
/// The allowed uncertainty of a clock, and as a share of the response p99.
const UNCERTAINTY_MAX: Duration = Duration::from_millis(1);
const UNCERTAINTY_SHARE: f64 = 0.1;

/// A load that all agents have prepared.
pub(super) struct AgentsLoad<'a> {
    coordinator: &'a Coordinator,
    load: &'a LoadTest,
    run: RunId,
    statuses: Subscriber,
    records: Ordered,
    clocks: Vec<ClockEstimate>,
    pings: mpsc::Receiver<(usize, Ping)>,
    /// Sends signs of life to the agents.
    signs_of_life: JoinSet<()>,
    /// Reads their clocks.
    _readers: JoinSet<()>,
    rebalance: Option<Rebalancing<'a>>,
}

/// The moves of shares in a load.
struct Rebalancing<'a> {
    schedule: &'a Schedule,
    state: Rebalance,
    /// When each began, in seconds since the start, and the parts of the agents from then on.
    moves: Vec<(f64, Vec<f64>)>,
}

/// The start of a load.
struct Start {
    /// By the coordinator's clock.
    at: Nanos,
    /// By the clock of each agent, as it was told.
    told: Vec<Nanos>,
}

impl<'a> AgentsLoad<'a> {
    pub(super) async fn prepare(
        coordinator: &'a Coordinator,
        load: &'a LoadTest,
    ) -> Result<Self, CoordinatorError> {
        let Coordinator { client, jetstream, subject, agents, .. } = coordinator;
        if let Some(reason) = coordinator.misplaced(load) {
            return Err(CoordinatorError::Refused(vec![reason]));
        }
        let rebalance = match (coordinator.moves_late_shares, load.plan.segments()) {
            (false, _) => None,
            (true, [Segment::Open(schedule)]) => {
                Some(Rebalancing { schedule, state: Rebalance::new(&weights(agents)), moves: Vec::new() })
            }
            (true, _) => {
                let reason =
                    "--rebalance needs a load of rates, ramps or bursts alone: connections cannot move";
                return Err(CoordinatorError::Refused(vec![reason.to_owned()]));
            }
        };
        let run = RunId::random();
        let unstored = |error: &dyn std::error::Error| CoordinatorError::Load(reason(error));
        let statuses = client.subscribe(subject.status(&run, "*")).await.map_err(|error| unstored(&error))?;
        let stream =
            jetstream.get_stream(subject.records_stream()).await.map_err(|error| unstored(&error))?;
        let config = OrderedConfig { filter_subject: subject.record(&run, "*"), ..OrderedConfig::default() };
        let consumer = stream.create_consumer(config).await.map_err(|error| unstored(&error))?;
        let records = consumer.messages().await.map_err(|error| unstored(&error))?;
        let mut signs_of_life = JoinSet::new();
        signs_of_life.spawn(send_signs_of_life(client.clone(), subject.control(&run)));
        // The load may have secrets: it is stored only until all agents have it.
        let bundle = numbered_for(load, agents).to_bundle().map_err(|error| unstored(&error))?;
        let store =
            jetstream.get_object_store(subject.loads_store()).await.map_err(|error| unstored(&error))?;
        let stored = store.put(run.as_str(), &mut bundle.as_slice()).await;
        let refused = match stored {
            Ok(_) => coordinator.hand_out(&run).await,
            Err(error) => vec![unstored(&error).to_string()],
        };
        let _ = within(SHORT_REQUEST_TIMEOUT, store.delete(run.as_str())).await;
        if !refused.is_empty() {
            coordinator.stop(&run).await;
            return Err(CoordinatorError::Refused(refused));
        }
        let (read, pings) = mpsc::channel(1024);
        let mut readers = JoinSet::new();
        for (index, agent) in agents.iter().enumerate() {
            let subject = subject.agent(&agent.id);
            readers.spawn(read_clock(client.clone(), subject, coordinator.clock, index, read.clone()));
        }
        let clocks = vec![ClockEstimate::default(); agents.len()];
        Ok(Self {
            coordinator,
            load,
            run,
            statuses,
            records,
            clocks,
            pings,
            signs_of_life,
            _readers: readers,
            rebalance,
        })
    }

    fn now(&self) -> Duration {
        duration(self.coordinator.clock.now())
    }

    /// The index of the agent whose id ends the subject, and its message.
    fn received<M: DeserializeOwned>(&self, message: &Message) -> Option<(usize, M)> {
        let id = message.subject.rsplit('.').next()?;
        let agent = self.coordinator.agents.iter().position(|agent| agent.id == id)?;
        Some((agent, serde_json::from_slice(&message.payload).ok()?))
    }

    async fn run(
        &mut self,
        observer: &mut dyn Observer,
        cancel: &CancellationToken,
    ) -> Result<LoadTestRun, LoadTestError> {
        let names = self.coordinator.agents.iter().map(|agent| agent.name.clone());
        let mut roster = Roster::new(names, self.now());
        let mut fold = None::<SummaryFold>;
        let mut start = None;
        let (mut segment, mut waits_since) = (0, self.now());
        let mut stopped_at = None::<Duration>;
        let mut last_pass = self.now();
        let mut ticks = Ticks::every(CHECK_INTERVAL);
        while !roster.have_ended() {
            tokio::select! {
                Some(message) = self.statuses.next() => {
                    if let Some((agent, status)) = self.received(&message) {
                        roster.status(agent, status, self.now());
                    }
                }
                Some(Ok(message)) = self.records.next() => {
                    if let Some((agent, part)) = self.received(&message) {
                        roster.record(agent, part, self.now());
                    }
                }
                Some((agent, ping)) = self.pings.recv() => self.clocks[agent].add(ping),
                () = cancel.cancelled(), if stopped_at.is_none() => stopped_at = Some(self.now()),
                () = ticks.tick() => {}
            }
            while let Some(fold) = &mut fold
                && let Some((second, lags)) = roster.next_second()
            {
                fold.second(&second, observer);
                if stopped_at.is_none() {
                    self.rebalance(second.second, &lags, start.as_ref(), &mut roster).await;
                }
            }
            // An observer may have taken long, or this process was suspended.
            let now = self.now();
            let pause = now.saturating_sub(last_pass);
            last_pass = now;
            if pause > PAUSE_MAX {
                roster.excuse(pause);
                continue;
            }
            let is_connected = self.coordinator.client.connection_state() == State::Connected;
            roster.note_lost(now, is_connected);
            if let Some(Start { at, .. }) = start {
                roster.note_behind(now.saturating_sub(duration(at)));
            }
            let are_clocks_read = self.clocks.iter().all(|clock| clock.count() >= PINGS);
            let is_awaited = segment == 0 || roster.is_awaited(segment);
            if !is_awaited {
                waits_since = now;
            } else if now.saturating_sub(waits_since) > READY_TIMEOUT {
                roster.note_unready(segment);
                self.note_unread(&mut roster, now);
            }
            if roster.has_fault() {
                stopped_at.get_or_insert(now);
            }
            match stopped_at {
                None if roster.are_ready(segment) && are_clocks_read => {
                    let told = self.start_segment(segment, &mut roster).await;
                    if segment == 0 {
                        let mut summary = SummaryFold::new(self.load, time_of_day(told.at));
                        summary.start(Time::ZERO, observer);
                        (fold, start) = (Some(summary), Some(told));
                    }
                    segment += 1;
                }
                None => {}
                Some(at) if now.saturating_sub(at) > STOP_TIMEOUT => break,
                Some(_) => self.stop().await,
            }
        }
        let is_cancelled = cancel.is_cancelled() && !roster.has_fault();
        if roster.has_fault() || is_cancelled {
            self.stop().await;
        }
        self.last_readings().await;
        roster.note_missing();
        let mut fold =
            fold.unwrap_or_else(|| SummaryFold::new(self.load, time_of_day(self.coordinator.clock.now())));
        std::iter::from_fn(|| roster.next_partial_second()).for_each(|second| fold.second(&second, observer));
        let run = self.finish(&roster, fold, start.as_ref(), is_cancelled);
        self.remove_records().await;
        Ok(run)
    }

    /// Judges the clocks, and completes the summary.
    fn finish(
        &self,
        roster: &Roster,
        mut fold: SummaryFold,
        start: Option<&Start>,
        is_cancelled: bool,
    ) -> LoadTestRun {
        let agents = &self.coordinator.agents;
        let mut end = roster.end(is_cancelled);
        fold.add(&end.rest);
        let clocks: Vec<_> = (0..agents.len()).map(|agent| self.clock_at_start(agent, start?)).collect();
        let p99 = fold.summary().measured.times.response.quantile(0.99);
        for (agent, clock) in agents.iter().zip(&clocks) {
            if let Some(reason) = clock.and_then(|clock| uncertainty_reason(clock, p99)) {
                end.health.invalid_reasons.insert(0, format!("agent {}: {reason}", agent.name));
                end.health.time_reason_count += 1;
            }
        }
        let mut summary = fold.finish(&end);
        let figures = agents.iter().zip(roster.totals()).zip(clocks).enumerate().map(
            |(at, ((agent, totals), clock))| AgentFigures {
                name: agent.name.clone(),
                requests: totals.requests,
                clock,
                cpu: totals.health.as_ref().map(|health| health.cpu_mean),
                steal: totals.health.and_then(|health| health.steal),
                send_lag: totals.send_lag,
                moves: self.moves_of(at),
            },
        );
        summary.agents = figures.collect();
        LoadTestRun { summary, end }
    }

    /// The clock of an agent at the start. Its uncertainty bounds the error of the start that the agent was told.
    fn clock_at_start(&self, agent: usize, start: &Start) -> Option<AgentClockFigures> {
        let (clock, told) = (&self.clocks[agent], start.told.get(agent)?);
        let figures = clock.figures(start.at)?;
        let shift_ms = clock.to_agent(start.at)?.abs_diff(*told) as f64 / 1e6;
        Some(AgentClockFigures { uncertainty_ms: figures.uncertainty_ms + shift_ms, ..figures })
    }

    /// Tells all agents when the segment starts.
    async fn start_segment(&self, segment: usize, roster: &mut Roster) -> Start {
        let delay = Nanos::try_from(START_DELAY.as_nanos()).unwrap_or_default();
        let at = self.coordinator.clock.now().saturating_add(delay);
        let told: Vec<_> = self.clocks.iter().map(|clock| clock.to_agent(at).unwrap_or(at)).collect();
        let starts = self.coordinator.agents.iter().zip(&told).map(|(agent, told)| async move {
            let request =
                AgentRequest::Start { run: self.run.clone(), segment, at: *told, by_coordinator: at };
            self.coordinator.accepted(agent, &request, SHORT_REQUEST_TIMEOUT).await.err()
        });
        let now = self.now();
        for (agent, reason) in join_all(starts).await.into_iter().enumerate() {
            if let Some(reason) = reason
                && !roster.has_ended(agent)
            {
                roster.status(agent, AgentStatus::Failed { reason }, now);
            }
        }
        Start { at, told }
    }

    /// Moves shares, if an agent cannot hold its own: from a place of the schedule that is not due yet.
    async fn rebalance(
        &mut self,
        second: u64,
        lags: &[SecondLag],
        start: Option<&Start>,
        roster: &mut Roster,
    ) {
        let (Some(rebalance), Some(Start { at, .. })) = (&mut self.rebalance, start) else { return };
        let begins = duration(self.coordinator.clock.now() - at) + MOVE_DELAY;
        if begins + MOVE_DELAY >= rebalance.schedule.duration() {
            return;
        }
        let Some(weights) = rebalance.state.second(second, lags) else { return };
        let shares = Share::by_weight(weights);
        let due_before = rebalance.schedule.due_times(self.load.seed).take_while(|due| *due < begins);
        let from = due_before.count() as u64;
        let number = rebalance.moves.len();
        rebalance.moves.push((begins.as_secs_f64(), rebalance.state.parts().collect()));
        let moves = self.coordinator.agents.iter().zip(shares).map(|(agent, share)| async {
            let request = AgentRequest::Move { run: self.run.clone(), number, from, share };
            self.coordinator.accepted(agent, &request, SHORT_REQUEST_TIMEOUT).await.err()
        });
        let now = self.now();
        for (agent, reason) in join_all(moves).await.into_iter().enumerate() {
            if let Some(reason) = reason {
                roster.status(agent, AgentStatus::Failed { reason }, now);
            }
        }
    }

    /// The moves of the share of an agent.
    fn moves_of(&self, agent: usize) -> Vec<ShareMoveFigures> {
        let moves = self.rebalance.iter().flat_map(|rebalance| &rebalance.moves);
        moves
            .filter_map(|(at_s, parts)| Some(ShareMoveFigures { at_s: *at_s, share: *parts.get(agent)? }))
            .collect()
    }

    /// Notes agents whose clocks are not known.
    fn note_unread(&self, roster: &mut Roster, now: Duration) {
        for (agent, clock) in self.clocks.iter().enumerate() {
            if clock.count() < PINGS {
                let reason = "its clock does not answer".to_owned();
                roster.status(agent, AgentStatus::Failed { reason }, now);
            }
        }
    }

    /// Ends the load everywhere.
    async fn stop(&mut self) {
        self.signs_of_life.abort_all();
        self.coordinator.stop(&self.run).await;
    }

    /// Reads the clocks once more, with the load over.
    async fn last_readings(&mut self) {
        let (pings, clocks) = (&mut self.pings, &mut self.clocks);
        let reading = async {
            while let Some((agent, ping)) = pings.recv().await {
                clocks[agent].add(ping);
            }
        };
        let _ = within(2 * PING_INTERVAL, reading).await;
    }

    /// The records expire if that fails.
    async fn remove_records(&self) {
        let Coordinator { jetstream, subject, .. } = self.coordinator;
        let removing = async {
            if let Ok(stream) = jetstream.get_stream(subject.records_stream()).await {
                let _ = stream.purge().filter(subject.record(&self.run, "*")).await;
            }
        };
        let _ = within(SHORT_REQUEST_TIMEOUT, removing).await;
    }
}

impl ReadyLoad for AgentsLoad<'_> {
    fn run(
        mut self: Box<Self>,
        observer: &mut dyn Observer,
        cancel: &CancellationToken,
    ) -> Result<LoadTestRun, LoadTestError> {
        let coordinator = self.coordinator;
        let ran = coordinator.runtime.block_on(AgentsLoad::run(&mut self, observer, cancel));
        // The tasks end within the runtime.
        let _guard = coordinator.runtime.enter();
        drop(self);
        ran
    }
}

fn time_of_day(nanos: Nanos) -> SystemTime {
    SystemTime::UNIX_EPOCH + duration(nanos)
}

/// The load with a number of its first request that is the first of a round over all agents.
fn numbered_for(load: &LoadTest, agents: &[AgentInfo]) -> LoadTest {
    let round = weights(agents).iter().map(|weight| u64::from(weight.get())).sum();
    LoadTest { first_request: load.first_request.next_multiple_of(round), ..load.clone() }
}

/// Why a clock is not known well enough for times with this p99.
fn uncertainty_reason(clock: AgentClockFigures, p99: Option<Duration>) -> Option<String> {
    let uncertainty = Duration::from_secs_f64(clock.uncertainty_ms / 1e3);
    let allowed = p99.map_or(UNCERTAINTY_MAX, |p99| p99.mul_f64(UNCERTAINTY_SHARE).min(UNCERTAINTY_MAX));
    (uncertainty > allowed).then(|| {
        format!(
            "its clock is known to {}, and {} would be enough{}: use a NATS server that is nearer",
            format_duration(uncertainty),
            format_duration(allowed),
            p99.map(|p99| format!(" for a response p99 of {}", format_duration(p99))).unwrap_or_default()
        )
    })
}

/// Reads the clock of an agent, often at first.
async fn read_clock(
    client: Client,
    subject: String,
    clock: AgentClock,
    agent: usize,
    to: mpsc::Sender<(usize, Ping)>,
) {
    for count in 0_usize.. {
        let sent = clock.now();
        if let Ok(AgentReply::Clock(shown)) =
            request_of(&client, subject.clone(), &AgentRequest::Clock, SHORT_REQUEST_TIMEOUT).await
        {
            let ping = Ping { sent, agent: shown, received: clock.now() };
            if to.send((agent, ping)).await.is_err() {
                return;
            }
        }
        if count >= PINGS {
            pause(PING_INTERVAL).await;
        }
    }
}
