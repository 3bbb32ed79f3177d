//! The target `app`: the document app of the published Node test, as `stockade app`.

use std::sync::Arc;

use serde_json::{Map, Value};
use stockade_record::record::OriginStage;

use super::{HttpError, HttpLoad, sampler::TargetEndpoint, settings::start_with_settings};
use crate::{
    engine::TrafficLimitError,
    services::RunService,
    target::{Environment, Facts, MeasureContext, Measurement, ScaledDimension, Target, TargetError},
};

#[derive(Clone, Debug)]
pub struct AppTarget {
    pub load: HttpLoad,
    /// `[origin]` and `[cache]`, as written.
    pub settings: Map<String, Value>,
}

impl Target for AppTarget {
    fn facts(&self) -> Facts {
        let source = self.settings.get("origin").and_then(|origin| origin.get("source")?.as_str());
        let database = source.and_then(|source| Some(RunService::from_url(source)?.0));
        Facts { database, ..self.load.traffic.facts() }
    }

    fn stages(&self, environment: &Environment) -> Vec<OriginStage> {
        self.load.stages(&environment.folder)
    }

    fn check(&self, environment: &Environment) -> Result<(), TargetError> {
        Ok(self.load.check_files(&environment.folder)?)
    }

    fn measure(
        &self,
        environment: &Environment,
        context: MeasureContext<'_>,
    ) -> Result<Option<Measurement>, TargetError> {
        let (seed, path) = (context.seed, context.folder.join("app.toml"));
        let measured = self.load.measure(environment, context, seed, |_, _| {
            let settings = self.resolved_settings(environment)?;
            let child = start_with_settings(&environment.program, &["app"], &settings, &path)?;
            Ok(TargetEndpoint::of_started(Arc::new(child)))
        });
        Ok(measured?)
    }

    fn scale(&mut self, dimension: ScaledDimension, factor: f64) -> Result<(), TrafficLimitError> {
        if dimension == ScaledDimension::LoadDuration {
            self.load.scale_duration(factor)?;
        }
        Ok(())
    }
}

impl AppTarget {
    /// The settings, with the addresses of the servers that this run starts.
    fn resolved_settings(&self, environment: &Environment) -> Result<Map<String, Value>, HttpError> {
        let mut settings = self.settings.clone();
        for (table, key) in [("origin", "source"), ("cache", "shared")] {
            if let Some(url) = settings.get_mut(table).and_then(|table| table.get_mut(key))
                && let Some(written) = url.as_str()
            {
                *url = environment.services().resolve(written)?.into();
            }
        }
        Ok(settings)
    }
}
