//! The target `url`: a server that runs already.

use std::path::Path;

use stockade_model::seed::Seed;

use super::{HttpError, HttpLoad, sampler::TargetEndpoint};
use crate::{
    engine::TrafficLimitError,
    target::{Environment, Facts, MeasureContext, Measurement, Scaled, Target, TargetError},
};

#[derive(Clone, Debug)]
pub struct UrlTarget {
    pub load: HttpLoad,
    pub url: String,
    /// The process to sample.
    pub pid: Option<u32>,
}

impl Target for UrlTarget {
    fn facts(&self) -> Facts {
        Facts { duration: Some(self.load.traffic.duration()), ..Facts::default() }
    }

    fn check(&self, environment: &Environment) -> Result<(), TargetError> {
        Ok(self.load.check_files(&environment.folder)?)
    }

    fn measure(
        &self,
        environment: &Environment,
        context: MeasureContext<'_>,
    ) -> Result<Option<Measurement>, TargetError> {
        // The server may have cached the URLs of an earlier run with the same seed.
        let url_seed = Seed::from_entropy();
        let measured = self.load.measure(environment, context, url_seed, |origin| {
            if let Some(pid) = self.pid.filter(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
                return Err(HttpError::NoProcess(pid));
            }
            let stats = origin.map(|origin| format!("{}/current_count", origin.admin));
            Ok(TargetEndpoint { url: self.url.clone(), stats, pid: self.pid, child: None })
        });
        Ok(measured?)
    }

    fn scale(&mut self, dimension: Scaled, factor: f64) -> Result<(), TrafficLimitError> {
        if dimension == Scaled::LoadDuration {
            self.load.scale_duration(factor)?;
        }
        Ok(())
    }
}
