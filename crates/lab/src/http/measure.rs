//! One measurement over HTTP, for every target: origin, load, samples, figures.

use std::{collections::BTreeMap, env, fs, path::Path, sync::Arc, time::Duration};

use stockade_load::{generator::LoadTestRun, report::REPORT_OUTCOMES, summary::Summary, tally::Tally};
use stockade_model::{
    outcome::Outcomes,
    seed::Seed,
    units::{format_count, milliseconds},
};
use stockade_record::{
    record::{self, Calls, HttpFigures, OpenFigures, Role},
    server::{ServerOrder, StartedServer},
};

use super::{
    HttpError, HttpLoad, RecipeSpec,
    fetch::send,
    probe,
    sampler::{CacheReadings, Observations, Sampler, StopReason, TargetEndpoint, outcomes},
    settings::file_error,
};
use crate::target::{Environment, MeasureContext, Measurement};

impl HttpLoad {
    /// Starts the origin and the target, sends the load, and stops both. Unique URLs are drawn from `url_seed`.
    /// `None`: it was cancelled.
    pub(super) fn measure(
        &self,
        environment: &Environment,
        context: MeasureContext<'_>,
        url_seed: Seed,
        start: impl FnOnce(Option<&Arc<dyn StartedServer>>, &Path) -> Result<TargetEndpoint, HttpError>,
    ) -> Result<Option<Measurement>, HttpError> {
        let MeasureContext { seed, folder, cancel, sink } = context;
        fs::create_dir_all(folder).map_err(file_error(folder))?;
        let origin =
            self.origin.as_ref().map(|recipe| start_origin(recipe, environment, folder)).transpose()?;
        let endpoint = start(origin.as_ref(), folder)?;
        let load = self.traffic.load(&endpoint.url, &environment.folder, seed, url_seed)?;
        let ready = environment.loads.prepare(&load)?;
        // Cancelled with the run, and when a child ends.
        let cancel_load = cancel.child_token();
        let memory_mib = environment.memory_mib;
        let is_load_here = environment.loads.is_this_process();
        for server in origin.iter().chain(&endpoint.started) {
            let cancel_load = cancel_load.clone();
            server.when_lost(Box::new(move || cancel_load.cancel()));
        }
        let mut sampler =
            Sampler::new(&endpoint, origin.as_ref(), is_load_here, memory_mib, &cancel_load, sink);
        sampler.window = self.accounting;
        sampler.start_probes(&self.probes, url_seed);
        if let Some(origin) = &origin {
            // The clock of the origin's stages starts with the load.
            origin.page("/start").map_err(|error| origin.unresponsive(&error))?;
        }
        let LoadTestRun { summary, end } = ready.run(&mut sampler, &cancel_load)?;
        let Observations { readings, probes, stop_reason, accounting, mut notes, disturbed } =
            sampler.finish();
        let late = summary.generator.late.clone();
        // Lateness is a part of the response times, and known: each claim is judged with it.
        let is_other = |reason: &&String| Some(*reason) != late.as_ref();
        let mut invalid: Vec<_> =
            summary.generator.invalid_reasons.iter().filter(is_other).cloned().collect();
        let of_times = summary.generator.time_reason_count - usize::from(late.is_some());
        notes.extend(late.clone());
        notes.extend(disturbed.clone());
        match stop_reason {
            _ if cancel.is_cancelled() => return Ok(None),
            Some(StopReason::Ended(error)) => return Err(error),
            Some(StopReason::Unreachable(reason)) => return Err(HttpError::Unreachable(reason)),
            Some(StopReason::Memory(reason)) => invalid.push(reason),
            None if end.was_cancelled => return Ok(None),
            None => {}
        }
        if endpoint.stats.is_some() && !readings.is_last {
            invalid
                .push("the last counters of the cache could not be read: its figures are older".to_owned());
        }
        invalid.extend(probes.iter().filter_map(probe::mismatch));
        notes.extend(note_of_unknown_freshness(summary.measured.hits_of_unknown_freshness));
        notes.extend(note_of_unreported(&outcomes(&summary.measured)));
        let has_invalid_counts = invalid.len() > of_times;
        let started = [(Role::Origin, origin.as_ref()), (Role::Proxy, endpoint.started.as_ref())];
        let remote =
            started.into_iter().filter(|(_, server)| server.is_some_and(|of| of.process().is_none()));
        let servers = remote
            .filter_map(|(role, _)| Some((role, environment.machine(role).name()?.to_owned())))
            .collect();
        let http = HttpFigures {
            users: self.traffic.users(),
            stats_provider: readings.stats_provider,
            accounting,
            probes,
            disturbed,
            invalid,
            has_invalid_counts,
            notes,
            servers,
            ..http_figures(&summary)
        };
        let (name, schedule) = (self.name.clone(), load.plan.to_string());
        Ok(Some(measurement(name, self.traffic.duration(), &summary, &readings, schedule, http)))
    }

    /// Starts the origin and the target and stops both again, so that a setup that cannot work is refused before any load. A
    /// target that runs already has to pass a request on to the origin of this run.
    pub(super) fn check_setup(
        &self,
        environment: &Environment,
        start: impl FnOnce(Option<&Arc<dyn StartedServer>>, &Path) -> Result<TargetEndpoint, HttpError>,
    ) -> Result<(), HttpError> {
        let folder = tempfile::tempdir().map_err(file_error(&env::temp_dir()))?;
        let Some(recipe) = &self.origin else { return start(None, folder.path()).map(drop) };
        drop(start_origin(recipe, environment, folder.path())?);
        let nonce = format!("stockade-{:016x}", Seed::from_entropy().0);
        let origin = start_origin(&recipe.answering(&nonce), environment, folder.path())?;
        origin.page("/start").map_err(|error| origin.unresponsive(&error))?;
        let endpoint = start(Some(&origin), folder.path())?;
        if endpoint.started.is_some() {
            // Our proxy has the origin's address from this run.
            return Ok(());
        }
        let load = self.traffic.load(&endpoint.url, &environment.folder, Seed(0), Seed(0))?;
        let request = load.traffic.request(0);
        let (path, server) = (&request.path, &request.template.url);
        let joint = if path.contains('?') { '&' } else { '?' };
        let authority = server.authority().map_or("", |authority| authority.as_str());
        let url = format!("{}://{authority}{path}{joint}{nonce}", server.scheme_str().unwrap_or("http"));
        let reason = match send("GET", &url) {
            Ok((_, body)) if body.contains(&nonce) => return Ok(()),
            Ok((status, _)) => format!("the answer, with status {status}, is not from it"),
            Err(error) => error,
        };
        Err(HttpError::Unreachable(format!(
            "a request to {url} does not reach the origin of this run at {}: {reason}; let the cache forward to that address",
            origin.url()
        )))
    }
}

/// The figures of the load itself.
pub(super) fn http_figures(summary: &Summary) -> HttpFigures {
    HttpFigures {
        agents: summary.agents.clone(),
        status_codes: summary.measured.status_codes.clone(),
        connections: summary.connections,
        in_flight_at_end: summary.in_flight_at_end,
        sent_after_end: summary.sent_after_end,
        attack_ms: milliseconds(summary.attack_duration()),
        wait_ms: milliseconds(summary.wait_duration()),
        wire_bytes_in: summary.measured.wire_bytes_in,
        steal: summary.generator.steal,
        hits_of_unknown_freshness: summary.measured.hits_of_unknown_freshness,
        late: summary.generator.late.clone(),
        ..HttpFigures::default()
    }
}

/// A load of this duration, with the counters of its cache.
pub(super) fn measurement(
    name: String,
    duration: Duration,
    summary: &Summary,
    readings: &CacheReadings,
    schedule: String,
    http: HttpFigures,
) -> Measurement {
    let tally = &summary.measured;
    let response = &tally.times_of_successes.response;
    let extremes = response.min().zip(response.max());
    let whole = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let counted = readings.last;
    let open = OpenFigures {
        strategy: name,
        schedule,
        duration_ms: milliseconds(duration),
        documents: None,
        distinct_keys: None,
        finished_ms: milliseconds(tally.end.map_or(Duration::ZERO, |end| end - summary.measured_from)),
        calls: Calls { fetch_doc: counted.requests.loads, ..Calls::default() },
        waiters: whole(counted.requests.waiters),
        response: extremes
            .map(|(min, max)| record::Extremes { min_ms: milliseconds(min), max_ms: milliseconds(max) }),
        retries: tally.retries,
        dropped: summary.dropped,
        in_flight_max: whole(summary.in_flight_max),
        source_concurrent_max: None,
        audit: None,
    };
    Measurement {
        load: record::LoadFigures::Open(open),
        whole_ms_sum: None,
        outcomes: outcomes(tally),
        bytes_in: tally.bytes_in,
        service_sum: service_sum(tally),
        counters: counted,
        bytes_max: readings.bytes_max.map(whole),
        errors: errors(tally),
        http: Some(http),
    }
}

/// Starts the origin on any free port, or at the address of the recipe. Its stages start at `/start`.
fn start_origin(
    recipe: &RecipeSpec,
    environment: &Environment,
    folder: &Path,
) -> Result<Arc<dyn StartedServer>, HttpError> {
    let settings = recipe.text(&environment.folder).map_err(HttpError::Recipe)?;
    let order = ServerOrder { role: Role::Origin, settings, listen: recipe.listen };
    Ok(environment.machine(Role::Origin).start(&order, folder)?.into())
}

/// The answers without an outcome, and how to have it.
fn note_of_unreported(outcomes: &Outcomes) -> Option<String> {
    (outcomes.unreported > 0).then(|| {
        format!(
            "{} of {} answers do not state what a cache did, so their outcomes are absent; {REPORT_OUTCOMES}",
            format_count(outcomes.unreported),
            format_count(outcomes.requests() - outcomes.error),
        )
    })
}

/// Why freshness is absent from the figures.
fn note_of_unknown_freshness(hits: u64) -> Option<String> {
    (hits > 0).then(|| {
        format!(
            "{} hits may be stale: their responses have no `Cache-Status` with `ttl`, no `X-Cache-Status`, and no `X-Cache` beside \
             `Age` and `max-age`; hits and hit ratio are absent",
            format_count(hits)
        )
    })
}

/// The sum of the service times of all requests, failed ones included.
fn service_sum(tally: &Tally) -> Duration {
    tally.response_sum.saturating_sub(tally.send_lag_sum)
}

/// Failed requests by error.
fn errors(tally: &Tally) -> BTreeMap<String, u64> {
    let failures = tally.failures.iter().map(|(class, count)| ((*class).to_owned(), *count));
    let statuses =
        tally.status_codes.iter().filter(|(status, _)| !(200..400).contains(*status) && **status != 0);
    failures.chain(statuses.map(|(status, count)| (format!("status {status}"), *count))).collect()
}
