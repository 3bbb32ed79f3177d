//! The target `url`: a server that runs already, or one that each measurement starts.

use std::{path::Path, sync::Arc};

use stockade_http::{client::HttpUrl, tls::Trust};
use stockade_load::AllowedTargets;
use stockade_model::seed::Seed;
use stockade_record::{
    record::{OriginStage, Role},
    server::StartedServer,
};

use stockade_services::{CommandServer, ServerPlace, ShellError};

use super::{
    HttpError, HttpLoad, commands,
    fetch::send,
    restart::CacheServer,
    sampler::{CounterPage, TargetEndpoint},
};
use crate::{
    engine::TrafficLimitError,
    target::{Environment, Facts, MeasureContext, Measurement, ScaledDimension, Target, TargetError},
};

#[derive(Clone, Debug)]
pub struct UrlTarget {
    pub load: HttpLoad,
    pub url: String,
    /// The process to sample, with its descendants.
    pub pid: Option<u32>,
    /// Runs before each measurement, and has to end.
    pub before: Option<String>,
    /// Runs during each measurement.
    pub command: Option<String>,
    /// Makes the cache cold before each measurement.
    pub reset: Option<CacheReset>,
}

/// How a cache is emptied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheReset {
    /// A request to the target.
    Purge { method: String, path: String },
    /// A shell command that has to end, with status 0.
    Command(String),
}

impl Target for UrlTarget {
    fn facts(&self) -> Facts {
        let servers: &[Role] = if self.load.origin.is_some() { &[Role::Origin] } else { &[] };
        Facts { servers, ..self.load.traffic.facts() }
    }

    fn stages(&self, environment: &Environment) -> Vec<OriginStage> {
        self.load.stages(&environment.folder)
    }

    fn check(&self, environment: &Environment) -> Result<(), TargetError> {
        self.load.check_files(&environment.folder)?;
        self.load.check_events(environment)?;
        Ok(self.load.check_setup(environment, |origin, folder| self.start(environment, origin, folder))?)
    }

    fn measure(
        &self,
        environment: &Environment,
        context: MeasureContext<'_>,
    ) -> Result<Option<Measurement>, TargetError> {
        // The server may have cached the URLs of an earlier run with the same seed.
        let url_seed = Seed::from_entropy();
        Ok(self.load.measure(environment, context, url_seed, |origin, folder| {
            self.start(environment, origin, folder)
        })?)
    }

    fn scale(&mut self, dimension: ScaledDimension, factor: f64) -> Result<(), TrafficLimitError> {
        if dimension == ScaledDimension::LoadDuration {
            self.load.scale_duration(factor)?;
        }
        Ok(())
    }
}

impl UrlTarget {
    fn start(
        &self,
        environment: &Environment,
        origin: Option<&Arc<dyn StartedServer>>,
        folder: &Path,
    ) -> Result<TargetEndpoint, HttpError> {
        let Self { url, pid, before, command, reset, .. } = self;
        let is_refused = |allowed: &&AllowedTargets| !url.parse().is_ok_and(|url| allowed.has_server(&url));
        if let Some(allowed) = environment.allowed.as_ref().filter(is_refused) {
            return Err(HttpError::Unreachable(format!(
                "loads of this run may not reach {url}; allowed: {allowed}; allow more with --allow-target"
            )));
        }
        let commands = commands(environment, origin, folder);
        if let Some(before) = before {
            commands.run("before", before)?;
        }
        let place = place_of(url)?;
        let server =
            command.as_ref().map(|command| CommandServer::start(command, place.clone(), commands.clone()));
        let server = server.transpose()?;
        if let Some(pid) = pid.filter(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            return Err(HttpError::NoProcess(pid));
        }
        if !place.is_reachable() {
            return Err(HttpError::Unreachable(format!(
                "nothing listens at {url}: start the server, write its `command`, or correct the URL"
            )));
        }
        match reset {
            Some(CacheReset::Purge { method, path }) => {
                let trust = self.load.traffic.request.client_options(&environment.folder).trust;
                purge(method, &format!("{url}{path}"), &trust)?;
            }
            Some(CacheReset::Command(command)) => commands.run("reset.command", command)?,
            None => {}
        }
        let stats = origin.map(CounterPage::of_origin);
        let server = server.map(|server| CacheServer::Command(Arc::new(server)));
        Ok(TargetEndpoint { url: url.clone(), stats, pid: *pid, started: None, server })
    }
}

fn purge(method: &str, url: &str, trust: &Trust) -> Result<(), HttpError> {
    let what = match send(method, url, trust) {
        Ok((200..300, _)) => return Ok(()),
        Ok((status, _)) => {
            format!("was answered with {status}; let the cache accept it, or write reset.command")
        }
        Err(error) => format!("failed: {error}"),
    };
    Err(ShellError(format!("`reset.purge`: {method} {url} {what}")).into())
}

fn place_of(url: &str) -> Result<ServerPlace, HttpError> {
    let parsed = HttpUrl::parse(url)
        .map_err(|_| HttpError::Unreachable(format!("`{url}` is not the URL of a server")))?;
    Ok(ServerPlace { url: url.to_owned(), host: parsed.host, port: parsed.port })
}
