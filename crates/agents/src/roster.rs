//! The agents of one run: their readiness, their records, their faults. Pure.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use stockade_load::{
    generator::{GeneratorEnd, GeneratorSecond, SecondMerger, lateness_allowed},
    summary::GeneratorHealth,
};
use stockade_model::{message::shown, time::Time};
use stockade_record::histogram::Histogram;

use crate::{
    rebalance::SecondLag,
    wire::{AgentStatus, LOST_AFTER, RecordPart, lost_agent_fault},
};

/// The agents of a run, by index.
#[derive(Debug)]
pub(crate) struct Roster {
    agents: Vec<AgentState>,
    merger: SecondMerger,
    /// The most processor time of all agents in a second.
    cpu_max: Duration,
}

#[derive(Debug)]
struct AgentState {
    name: String,
    /// The last sign of life, by the coordinator's clock.
    seen: Duration,
    /// The last segment for which it is ready.
    ready: Option<usize>,
    /// The next second of its record.
    next: u64,
    /// Records that came before their turn.
    early: BTreeMap<u64, RecordPart>,
    end: Option<GeneratorEnd>,
    fault: Option<String>,
    requests: u64,
    send_lag: Histogram,
    /// For each second that some agent has not sent: the lag of this one in it.
    lags: VecDeque<SecondLag>,
}

/// The part of one agent in a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AgentTotals {
    pub(crate) requests: u64,
    pub(crate) send_lag: Histogram,
    pub(crate) health: Option<GeneratorHealth>,
}

/// The seconds by which a record may be behind.
const BEHIND_MAX_S: u64 = 30;
/// Records that may wait for an earlier one. More are lost: the run is invalid anyway.
const EARLY_RECORDS_MAX: usize = 1_000;

impl Roster {
    /// Agents with these names; all have just been seen.
    pub(crate) fn new(names: impl IntoIterator<Item = String>, now: Duration) -> Self {
        let state = |name| AgentState {
            name,
            seen: now,
            ready: None,
            next: 0,
            early: BTreeMap::new(),
            end: None,
            fault: None,
            requests: 0,
            send_lag: Histogram::new(),
            lags: VecDeque::new(),
        };
        let agents: Vec<_> = names.into_iter().map(state).collect();
        Self { merger: SecondMerger::new(agents.len()), agents, cpu_max: Duration::ZERO }
    }

    pub(crate) fn status(&mut self, agent: usize, status: AgentStatus, now: Duration) {
        let agent = &mut self.agents[agent];
        agent.seen = now;
        match status {
            AgentStatus::Alive { ready } => agent.ready = agent.ready.max(ready),
            AgentStatus::Failed { reason } => agent.fail(shown(&reason)),
        }
    }

    /// Adds a part of an agent's record. Repeated parts change nothing.
    pub(crate) fn record(&mut self, agent: usize, record: RecordPart, now: Duration) {
        let state = &mut self.agents[agent];
        state.seen = now;
        if !record.is_plausible() {
            state.fail("its record cannot be right".to_owned());
            return;
        }
        if record.number() < state.next || state.end.is_some() || state.early.len() >= EARLY_RECORDS_MAX {
            return;
        }
        state.early.insert(record.number(), record);
        while let Some(record) = state.early.remove(&state.next) {
            match record {
                RecordPart::Second(second) => {
                    state.next += 1;
                    state.add(&second);
                    self.merger.add(agent, &second);
                }
                RecordPart::End { end, fault, .. } => {
                    if let Some(fault) = fault {
                        state.fail(shown(&fault));
                    }
                    state.end = Some(*end);
                    self.merger.end(agent);
                }
            }
        }
    }

    /// The next second that all agents have sent, and the lag of each in it.
    pub(crate) fn next_second(&mut self) -> Option<(GeneratorSecond, Vec<SecondLag>)> {
        let second = self.merger.next_complete()?;
        self.cpu_max = self.cpu_max.max(second.cpu);
        let lags = self.agents.iter_mut().map(|agent| agent.lags.pop_front().unwrap_or_default());
        Some((second, lags.collect()))
    }

    /// The next second of an interrupted run, which some agent has not sent.
    pub(crate) fn next_partial_second(&mut self) -> Option<GeneratorSecond> {
        self.merger.next_open()
    }

    /// Forgives a time in which nothing was received.
    pub(crate) fn excuse(&mut self, pause: Duration) {
        self.agents.iter_mut().for_each(|agent| agent.seen += pause);
    }

    /// Notes agents whose records do not arrive: they would be missing at the end. `elapsed` counts from the start.
    pub(crate) fn note_behind(&mut self, elapsed: Duration) {
        for agent in self.agents.iter_mut().filter(|agent| agent.end.is_none()) {
            let behind = elapsed.as_secs().saturating_sub(agent.next);
            if behind > BEHIND_MAX_S {
                agent.fail(format!(
                    "its record is {behind} s behind: NATS does not take or pass it on in time"
                ));
            }
        }
    }

    /// Notes agents that gave no sign of life for too long.
    pub(crate) fn note_lost(&mut self, now: Duration, is_connected: bool) {
        for agent in self.agents.iter_mut().filter(|agent| agent.end.is_none()) {
            if now.saturating_sub(agent.seen) >= LOST_AFTER {
                agent.fail(lost_agent_fault(is_connected));
            }
        }
    }

    /// Notes agents that are not ready for the segment.
    pub(crate) fn note_unready(&mut self, segment: usize) {
        for agent in self.agents.iter_mut().filter(|agent| agent.end.is_none() && agent.ready < Some(segment))
        {
            agent.fail("it is not ready in time: it opens connections, or waits for responses".to_owned());
        }
    }

    /// Notes agents whose record is not complete.
    pub(crate) fn note_missing(&mut self) {
        for agent in &mut self.agents {
            if agent.end.is_none() {
                agent.fail(format!("its record ends after {} s, without its end", agent.next));
            }
        }
    }

    /// True if some agent failed.
    pub(crate) fn has_fault(&self) -> bool {
        self.agents.iter().any(|agent| agent.fault.is_some())
    }

    /// True if some agent waits for the start of the segment, and all that have not ended do.
    pub(crate) fn are_ready(&self, segment: usize) -> bool {
        self.is_awaited(segment)
            && self.agents.iter().all(|agent| agent.end.is_some() || agent.ready >= Some(segment))
    }

    /// True if some agent waits for the start of the segment.
    pub(crate) fn is_awaited(&self, segment: usize) -> bool {
        self.agents.iter().any(|agent| agent.end.is_none() && agent.ready >= Some(segment))
    }

    /// True if the agent has sent the end of its record.
    pub(crate) fn has_ended(&self, agent: usize) -> bool {
        self.agents[agent].end.is_some()
    }

    /// True if each agent has ended or failed.
    pub(crate) fn have_ended(&self) -> bool {
        self.agents.iter().all(|agent| agent.end.is_some() || agent.fault.is_some())
    }

    /// `agent b: no sign of life for 1.5 s: ...`
    pub(crate) fn faults(&self) -> Vec<String> {
        let fault = |agent: &AgentState| Some(format!("agent {}: {}", agent.name, agent.fault.as_ref()?));
        self.agents.iter().filter_map(fault).collect()
    }

    /// The end of the whole load, with the health of all generators.
    pub(crate) fn end(&self, was_cancelled: bool) -> GeneratorEnd {
        let ends = || self.agents.iter().filter_map(|agent| agent.end.as_ref());
        let sum = |of: fn(&GeneratorEnd) -> u64| ends().map(of).sum();
        let mut rest = GeneratorSecond::default();
        ends().for_each(|end| rest.merge(&end.rest));
        GeneratorEnd {
            rest,
            schedule_end: ends().map(|end| end.schedule_end).max().unwrap_or(Time::ZERO),
            in_flight_at_end: sum(|end| end.in_flight_at_end),
            in_flight_max: sum(|end| end.in_flight_max),
            health: self.health(),
            was_cancelled,
        }
    }

    /// Reasons name their agents. Those that concern times only come first.
    fn health(&self) -> GeneratorHealth {
        let healths = || self.agents.iter().filter_map(|agent| Some((agent, &agent.end.as_ref()?.health)));
        let named = |agent: &AgentState, reason: &String| format!("agent {}: {reason}", agent.name);
        // Each of these two is one reason, of all agents that have it.
        let joined = |of: fn(&GeneratorHealth) -> &Option<String>| {
            let reasons: Vec<_> =
                healths().filter_map(|(agent, health)| Some(named(agent, of(health).as_ref()?))).collect();
            (!reasons.is_empty()).then(|| reasons.join("; "))
        };
        let (late, in_flight_limit) =
            (joined(|health| &health.late), joined(|health| &health.in_flight_limit));
        let mut of_times = Vec::new();
        let mut others = Vec::new();
        for (agent, health) in healths() {
            let (times, rest) =
                health.invalid_reasons.split_at(health.time_reason_count.min(health.invalid_reasons.len()));
            let busy = times.iter().filter(|reason| Some(*reason) != health.late.as_ref());
            of_times.extend(busy.map(|reason| named(agent, reason)));
            let short = rest.iter().filter(|reason| Some(*reason) != health.in_flight_limit.as_ref());
            others.extend(short.map(|reason| named(agent, reason)));
        }
        of_times.extend(late.clone());
        others.extend(in_flight_limit.clone());
        let resident =
            |of: fn(&GeneratorHealth) -> Option<u64>| healths().map(|(_, health)| of(health)).sum();
        let cpu_mean = healths().map(|(_, health)| health.cpu_mean).fold(0.0, |sum, cpu| sum + cpu);
        GeneratorHealth {
            cpu_mean,
            cpu_max: self.cpu_max.as_secs_f64().max(cpu_mean),
            cpu_total: healths().map(|(_, health)| health.cpu_total).sum(),
            resident_bytes_max: resident(|health| health.resident_bytes_max),
            resident_bytes_last: resident(|health| health.resident_bytes_last),
            steal: healths().filter_map(|(_, health)| health.steal).reduce(f64::max),
            late,
            in_flight_limit,
            is_incomplete: self.has_fault(),
            time_reason_count: of_times.len(),
            invalid_reasons: of_times.into_iter().chain(others).chain(self.faults()).collect(),
        }
    }

    pub(crate) fn totals(&self) -> impl Iterator<Item = AgentTotals> {
        self.agents.iter().map(|agent| AgentTotals {
            requests: agent.requests,
            send_lag: agent.send_lag.clone(),
            health: agent.end.as_ref().map(|end| end.health.clone()),
        })
    }
}

impl AgentState {
    /// The first reason counts: others follow from it.
    fn fail(&mut self, reason: String) {
        self.fault.get_or_insert(reason);
    }

    fn add(&mut self, second: &GeneratorSecond) {
        self.requests += second.measured.requests();
        self.send_lag.merge(&second.measured.times.send_lag);
        self.lags.push_back(lag(second));
    }
}

fn lag(second: &GeneratorSecond) -> SecondLag {
    let (mut send_lag, mut response) = (Histogram::new(), Histogram::new());
    for tally in [&second.measured, &second.warmup] {
        send_lag.merge(&tally.times.send_lag);
        response.merge(&tally.times.response);
    }
    let allowed = lateness_allowed(response.quantile(0.99));
    SecondLag { p99: send_lag.quantile(0.99).unwrap_or_default(), allowed }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn second(second: u64, dropped: u64) -> RecordPart {
        RecordPart::Second(Box::new(GeneratorSecond { second, dropped, ..GeneratorSecond::default() }))
    }

    fn end(seconds: u64, reasons: &[&str], time_reason_count: usize) -> RecordPart {
        let health = GeneratorHealth {
            invalid_reasons: reasons.iter().map(ToString::to_string).collect(),
            time_reason_count,
            cpu_mean: 0.25,
            ..GeneratorHealth::default()
        };
        let (schedule_end, in_flight_at_end, in_flight_max) = (Time::from_nanos(seconds), 1, 2);
        let rest = GeneratorSecond { dropped: 1_000, ..GeneratorSecond::default() };
        let was_cancelled = false;
        let end = GeneratorEnd { rest, schedule_end, in_flight_at_end, in_flight_max, health, was_cancelled };
        RecordPart::End { seconds, end: Box::new(end), fault: None }
    }

    fn roster() -> Roster {
        Roster::new(["a".to_owned(), "b".to_owned()], Duration::ZERO)
    }

    #[test]
    fn seconds_count_once_in_any_order() {
        let mut roster = roster();
        roster.record(0, second(1, 10), S);
        roster.record(0, second(0, 1), S);
        roster.record(0, second(0, 1), S);
        roster.record(0, end(2, &[], 0), S);
        assert_eq!(roster.next_second(), None, "b has sent none");
        roster.record(1, end(1, &[], 0), S);
        roster.record(1, second(0, 100), S);
        let dropped = [roster.next_second(), roster.next_second(), roster.next_second()]
            .map(|second| second.map(|(second, _)| second.dropped));
        assert_eq!(dropped, [Some(101), Some(10), None]);
        roster.note_missing();
        assert!(roster.have_ended() && !roster.has_fault());
        let end = roster.end(false);
        assert_eq!(end.rest.dropped, 2_000);
        assert_eq!((end.schedule_end, end.in_flight_at_end, end.in_flight_max), (Time::from_nanos(2), 2, 4));
        assert!((end.health.cpu_mean - 0.5).abs() < 1e-9);
    }

    #[test]
    fn missing_second_is_a_fault_that_names_its_agent() {
        let mut roster = roster();
        roster.record(0, end(0, &[], 0), S);
        roster.record(1, second(0, 0), S);
        roster.record(1, end(2, &[], 0), S);
        assert!(!roster.have_ended());
        roster.note_missing();
        assert_eq!(roster.faults(), ["agent b: its record ends after 1 s, without its end"]);
    }

    #[test]
    fn silent_agent_is_lost_and_one_that_ended_is_not() {
        let mut roster = roster();
        roster.record(0, end(0, &[], 0), S);
        roster.status(1, AgentStatus::Alive { ready: None }, S);
        roster.note_lost(S + LOST_AFTER.saturating_sub(Duration::from_millis(1)), true);
        assert!(!roster.has_fault());
        roster.note_lost(S + LOST_AFTER, true);
        let faults = roster.faults();
        assert_eq!(faults.len(), 1);
        assert!(faults[0].starts_with("agent b: no sign of life for 1.5 s"), "{faults:?}");
        assert!(roster.have_ended());
        // It may come back, and stays lost.
        roster.record(1, second(0, 0), 9 * S);
        assert!(roster.has_fault());
    }

    #[test]
    fn reasons_of_times_come_first() {
        let mut roster = roster();
        roster.record(0, end(0, &["busy", "no ports"], 1), S);
        roster.record(1, end(0, &["busy"], 1), S);
        let health = roster.end(false).health;
        assert_eq!(health.invalid_reasons, ["agent a: busy", "agent b: busy", "agent a: no ports"]);
        assert_eq!(health.time_reason_count, 2);
    }

    #[test]
    fn late_and_unsent_requests_are_one_reason_each() {
        let mut roster = roster();
        for agent in 0..2 {
            let RecordPart::End { mut end, .. } = end(0, &["late", "unsent"], 1) else { unreachable!() };
            (end.health.late, end.health.in_flight_limit) =
                (Some("late".to_owned()), Some("unsent".to_owned()));
            roster.record(agent, RecordPart::End { seconds: 0, end, fault: None }, S);
        }
        let health = roster.end(false).health;
        assert_eq!(
            health.invalid_reasons,
            ["agent a: late; agent b: late", "agent a: unsent; agent b: unsent"]
        );
        assert_eq!(
            (health.late.as_ref(), health.in_flight_limit.as_ref()),
            (health.invalid_reasons.first(), health.invalid_reasons.last())
        );
    }

    #[test]
    fn absurd_records_are_faults() {
        let mut roster = roster();
        let mut absurd = GeneratorSecond::default();
        absurd.measured.successes = 1;
        roster.record(0, RecordPart::Second(Box::new(absurd)), S);
        let seconds = [(u64::MAX, stockade_load::summary::SecondCounts::default())].into();
        let absurd = GeneratorSecond { seconds, ..GeneratorSecond::default() };
        roster.record(1, RecordPart::Second(Box::new(absurd)), S);
        assert_eq!(
            roster.faults(),
            ["agent a: its record cannot be right", "agent b: its record cannot be right"]
        );
    }

    #[test]
    fn record_that_does_not_arrive_is_a_fault_before_the_end() {
        let mut roster = roster();
        (0..40).for_each(|at| roster.record(0, second(at, 0), S));
        roster.note_behind(30 * S);
        assert!(!roster.has_fault());
        roster.note_behind(31 * S);
        assert_eq!(roster.faults().len(), 1, "{:?}", roster.faults());
        assert!(roster.faults()[0].starts_with("agent b: its record is 31 s behind"));
    }

    #[test]
    fn segment_starts_when_all_are_ready() {
        let mut roster = roster();
        roster.status(0, AgentStatus::Alive { ready: Some(0) }, S);
        assert!(!roster.are_ready(0));
        roster.status(1, AgentStatus::Alive { ready: Some(0) }, S);
        roster.status(1, AgentStatus::Alive { ready: None }, S);
        assert!(roster.are_ready(0) && !roster.are_ready(1));
        // One that has ended is not waited for.
        roster.status(1, AgentStatus::Alive { ready: Some(1) }, S);
        assert!(roster.is_awaited(1) && !roster.are_ready(1));
        roster.record(0, end(0, &[], 0), S);
        assert!(roster.are_ready(1));
    }
}
