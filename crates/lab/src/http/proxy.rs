//! The target `proxy`: `stockade proxy` in front of the origin.

use std::{path::Path, sync::Arc};

use serde_json::{Map, Value, json};
use stockade_model::units::parse_size;
use stockade_record::{
    record::{OriginStage, Role},
    server::{ServerOrder, StartedServer},
};

use super::{
    HttpError, HttpLoad,
    cache_memory::{self, LIMIT_BYTES},
    restart::RestartableServer,
    sampler::{CounterPage, TargetEndpoint},
};
use crate::{
    engine::TrafficLimitError,
    target::{Environment, Facts, MeasureContext, Measurement, ScaledDimension, Target, TargetError},
};

#[derive(Clone, Debug)]
pub struct ProxyTarget {
    pub load: HttpLoad,
    /// As written; the run adds addresses and the origin.
    pub settings: Map<String, Value>,
}

impl Target for ProxyTarget {
    fn facts(&self) -> Facts {
        Facts { reports_reclaims: true, servers: &[Role::Origin, Role::Proxy], ..self.load.traffic.facts() }
    }

    fn stages(&self, environment: &Environment) -> Vec<OriginStage> {
        self.load.stages(&environment.folder)
    }

    fn check(&self, environment: &Environment) -> Result<(), TargetError> {
        self.load.check_files(&environment.folder)?;
        self.load.check_events(environment)?;
        let bytes = self.estimated_cache_bytes(environment).unwrap_or_default();
        cache_memory::check(bytes, environment.machine(Role::Proxy).memory_mib()).map_err(HttpError::from)?;
        Ok(self.load.check_setup(environment, |origin, folder| self.start(environment, origin, folder))?)
    }

    fn measure(
        &self,
        environment: &Environment,
        context: MeasureContext<'_>,
    ) -> Result<Option<Measurement>, TargetError> {
        let seed = context.seed;
        Ok(self
            .load
            .measure(environment, context, seed, |origin, folder| self.start(environment, origin, folder))?)
    }

    fn memory_bytes_max(&self, environment: &Environment) -> Option<u64> {
        self.estimated_cache_bytes(environment).or_else(|| self.limit_bytes())
    }

    fn scale(&mut self, dimension: ScaledDimension, factor: f64) -> Result<(), TrafficLimitError> {
        match dimension {
            ScaledDimension::LoadBurst => {}
            ScaledDimension::LoadDuration => self.load.scale_duration(factor)?,
            ScaledDimension::CacheLimitEntries => self.scale_entries(factor),
        }
        Ok(())
    }
}

impl ProxyTarget {
    fn start(
        &self,
        environment: &Environment,
        origin: Option<&Arc<dyn StartedServer>>,
        folder: &Path,
    ) -> Result<TargetEndpoint, HttpError> {
        let url =
            origin.map(|origin| ("origin".to_owned(), json!([{ "name": "origin", "url": origin.url() }])));
        let settings: Map<String, Value> = url.into_iter().chain(self.settings.clone()).collect();
        let settings = Value::from(settings).to_string();
        let order = ServerOrder { role: Role::Proxy, settings, listen: None };
        let server = RestartableServer::start(environment.machine(Role::Proxy), order, folder)?;
        let mut endpoint = TargetEndpoint::of_proxy(Arc::new(server));
        if self.load.restarts_cache() {
            // Its own counters end with it.
            endpoint.stats = origin.map(CounterPage::of_origin);
        }
        Ok(endpoint)
    }

    fn scale_entries(&mut self, factor: f64) {
        let limit = self.settings.get_mut("cache").and_then(|cache| cache.get_mut("limit"));
        if let Some(entries) = limit.and_then(|limit| limit.get_mut("entries"))
            && let Some(count) = entries.as_f64()
        {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float saturates")]
            let scaled = (count * factor).round() as u64;
            *entries = scaled.max(1).into();
        }
    }

    fn limit(&self) -> Option<&Value> {
        self.settings.get("cache")?.get("limit")
    }

    fn limit_entries(&self) -> Option<u64> {
        self.limit()?.get("entries")?.as_u64()
    }

    /// The limit of the cache in bytes; `None`: only its entries are limited.
    fn limit_bytes(&self) -> Option<u64> {
        let written = self.limit().and_then(|limit| parse_size(limit.get("bytes")?.as_str()?).ok());
        written.or_else(|| self.limit_entries().is_none().then_some(LIMIT_BYTES))
    }

    /// The bytes of the cache if each request has a unique URL; `None`: unknown.
    fn estimated_cache_bytes(&self, environment: &Environment) -> Option<u64> {
        if !self.load.traffic.request.cache_bust {
            return None;
        }
        let recipe = self.load.origin.as_ref()?.text(&environment.folder).ok()?;
        let body = cache_memory::body_bytes(&serde_json::from_str(&recipe).ok()?)?;
        let requests = self.load.traffic.requests()?;
        let bytes = requests.min(self.limit_entries().unwrap_or(u64::MAX)).saturating_mul(body);
        Some(bytes.min(self.limit_bytes().unwrap_or(u64::MAX)))
    }
}
