//! One measurement over HTTP, for every target: origin, load, samples, figures.

use std::{env, fs, path::Path, sync::Arc, time::Duration};

use stockade_load::{generator::LoadTestRun, summary::Summary};
use stockade_model::seed::Seed;
use stockade_record::{
    record::{self, Calls, HttpFigures, OpenFigures, Role},
    server::{ServerOrder, StartedServer},
};

use super::{
    HttpError, HttpLoad, RecipeSpec, commands,
    event::{self, EventParts},
    fetch::send,
    probe,
    sampler::{CacheReadings, Observations, Sampler, StopReason, TargetEndpoint},
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
        let mut load = self.traffic.load(&endpoint.url, &environment.folder, seed, url_seed)?;
        load.options.allowed.clone_from(&environment.allowed);
        let is_load_here = environment.loads.is_this_process();
        let has_clock = |origin: &Arc<dyn StartedServer>| origin.process().is_some();
        load.options.checks_answers = is_load_here && origin.as_ref().is_some_and(has_clock);
        let ready = environment.loads.prepare(&load)?;
        // Cancelled with the run, and when a child ends.
        let cancel_load = cancel.child_token();
        let memory_mib = environment.memory_mib;
        for server in origin.iter().chain(&endpoint.started) {
            let cancel_load = cancel_load.clone();
            server.when_lost(Box::new(move || cancel_load.cancel()));
        }
        let parts = (!self.events.is_empty()).then(|| {
            let commands = commands(environment, origin.as_ref(), folder);
            let trust = load.options.trust.clone();
            let mut parts = EventParts::new(endpoint.url.clone(), trust, commands);
            (parts.cache, parts.cache_process) = (endpoint.server.clone(), endpoint.pid);
            (parts.origin, parts.purges) = (origin.clone(), load.options.purges.clone());
            Arc::new(parts)
        });
        let mut sampler =
            Sampler::new(&endpoint, origin.as_ref(), is_load_here, memory_mib, &cancel_load, sink);
        sampler.window = self.accounting;
        sampler.events = parts.map(|parts| (&self.events[..], parts));
        sampler.start_probes(&self.probes, url_seed, &load.options.trust);
        if let Some(origin) = &origin {
            // The clock of the origin's stages starts with the load.
            origin.page("/start").map_err(|error| origin.unresponsive(&error))?;
        }
        let LoadTestRun { summary, end } = ready.run(&mut sampler, &cancel_load)?;
        let Observations { readings, probes, events, stop_reason, accounting, notes, disturbed } =
            sampler.finish();
        let mut further = Vec::new();
        match stop_reason {
            _ if cancel.is_cancelled() => return Ok(None),
            Some(StopReason::Ended(error)) => return Err(error),
            Some(StopReason::Unreachable(reason)) => return Err(HttpError::Unreachable(reason)),
            Some(StopReason::Memory(reason)) => further.push(reason),
            None if end.was_cancelled => return Ok(None),
            None => {}
        }
        if endpoint.stats.is_some() && !readings.is_last {
            further
                .push("the last counters of the cache could not be read: its figures are older".to_owned());
        }
        further.extend(probes.iter().filter_map(probe::mismatch));
        further.extend(events.iter().filter_map(event::failure));
        let started = [(Role::Origin, origin.as_ref()), (Role::Proxy, endpoint.started.as_ref())];
        let remote =
            started.into_iter().filter(|(_, server)| server.is_some_and(|of| of.process().is_none()));
        let servers = remote
            .filter_map(|(role, _)| Some((role, environment.machine(role).name()?.to_owned())))
            .collect();
        let mut http = summary.http_figures();
        http.has_invalid_counts |= !further.is_empty();
        http.invalid.extend(further);
        http.notes.extend(disturbed.clone().into_iter().chain(notes));
        http.users = self.traffic.users();
        http.stats_provider = readings.stats_provider;
        (http.accounting, http.probes, http.disturbed, http.servers) =
            (accounting, probes, disturbed, servers);
        let (name, schedule) = (self.name.clone(), load.plan.to_string());
        let measured = measurement(name, self.traffic.duration(), &summary, &readings, schedule, http);
        Ok(Some(Measurement { events, ..measured }))
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
        let reason = match send("GET", &url, &load.options.trust) {
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
    let whole = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let counted = readings.last;
    let open = OpenFigures {
        strategy: name,
        schedule,
        calls: Calls { fetch_doc: counted.requests.loads, ..Calls::default() },
        waiters: whole(counted.requests.waiters),
        ..summary.open_figures(duration)
    };
    Measurement {
        load: record::LoadFigures::Open(open),
        whole_ms_sum: None,
        outcomes: tally.request_outcomes(),
        bytes_in: tally.bytes_in,
        service_sum: tally.service_sum(),
        counters: counted,
        peak_bytes: readings.peak_bytes.map(whole),
        errors: tally.errors_by_class(),
        events: Vec::new(),
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
