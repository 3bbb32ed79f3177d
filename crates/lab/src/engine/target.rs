//! The two targets in this process: a burst and an open load.

use stockade_model::units::{milliseconds, stretched};
use stockade_record::record::OriginStage;
use stockade_source::{Availability, SourceStage, SourceUrl};

use super::{Burst, OpenLoad, TrafficLimitError};
use crate::target::{Environment, Facts, MeasureContext, Measurement, ScaledDimension, Target, TargetError};

/// A cache in this process, in front of a source of documents, under a load.
#[derive(Clone, Debug)]
pub struct EngineTarget<L> {
    /// Where the documents come from.
    pub source: SourceUrl,
    /// The cache and its load.
    pub load: L,
}

impl Target for EngineTarget<Burst> {
    fn facts(&self) -> Facts {
        Facts { requests_max: Some(self.load.workers as u64), ..Facts::default() }
    }

    fn check(&self, environment: &Environment) -> Result<(), TargetError> {
        Ok(environment.documents(&self.source)?.check_burst(&self.load, environment.memory_mib)?)
    }

    fn measure(
        &self,
        environment: &Environment,
        context: MeasureContext<'_>,
    ) -> Result<Option<Measurement>, TargetError> {
        let MeasureContext { seed, cancel, sink, .. } = context;
        let documents = environment.documents(&self.source)?;
        Ok(environment.runtime.burst(&self.load, &documents, seed, cancel, sink)?)
    }

    fn memory_bytes_max(&self, _: &Environment) -> Option<u64> {
        Some(self.load.worker_bytes_max())
    }

    fn scale(&mut self, dimension: ScaledDimension, factor: f64) -> Result<(), TrafficLimitError> {
        if dimension == ScaledDimension::LoadBurst {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a float saturates, and a burst has one worker at least"
            )]
            let workers = (self.load.workers as f64 * factor).round() as usize;
            self.load.workers = workers.max(1);
        }
        Ok(())
    }
}

impl Target for EngineTarget<OpenLoad> {
    fn facts(&self) -> Facts {
        let schedule = &self.load.traffic.schedule;
        let (duration, requests_max) = (Some(schedule.duration()), Some(schedule.requests_max()));
        Facts { duration, requests_max, is_audited: true, ..Facts::default() }
    }

    fn stages(&self, _: &Environment) -> Vec<OriginStage> {
        let stages: Vec<_> = self.load.behavior.stages.iter().map(origin_stage).collect();
        if stages.len() > 1 { stages } else { Vec::new() }
    }

    fn check(&self, environment: &Environment) -> Result<(), TargetError> {
        Ok(environment.documents(&self.source)?.check_open(&self.load, environment.memory_mib)?)
    }

    fn measure(
        &self,
        environment: &Environment,
        context: MeasureContext<'_>,
    ) -> Result<Option<Measurement>, TargetError> {
        let MeasureContext { seed, cancel, sink, .. } = context;
        let documents = environment.documents(&self.source)?;
        let tier = self.load.shared.as_ref().map(|tier| environment.tier(tier)).transpose()?;
        Ok(environment.runtime.open(&self.load, &documents, tier.as_ref(), seed, cancel, sink)?)
    }

    fn memory_bytes_max(&self, _: &Environment) -> Option<u64> {
        self.load.request_and_cache_bytes_max()
    }

    fn scale(&mut self, dimension: ScaledDimension, factor: f64) -> Result<(), TrafficLimitError> {
        if dimension != ScaledDimension::LoadDuration {
            return Ok(());
        }
        let OpenLoad { traffic, behavior, events, .. } = &mut self.load;
        traffic.schedule = traffic.schedule.stretched(factor);
        behavior.stages = behavior.stages.stretched(factor);
        events.iter_mut().for_each(|event| event.at = stretched(event.at, factor));
        traffic.check()
    }
}

fn origin_stage(stage: &SourceStage) -> OriginStage {
    let errors = (stage.errors > 0.0).then(|| format!("errors {} %", (stage.errors * 1e4).round() / 1e2));
    let behavior = match stage.state {
        Availability::Up => [Some(format!("latency {}", stage.latency)), errors],
        Availability::Refusing => [Some("refusing".to_owned()), None],
        Availability::Silent => [Some("silent".to_owned()), None],
    };
    let behavior: Vec<String> = behavior.into_iter().flatten().collect();
    OriginStage { at_ms: milliseconds(stage.at), behavior: behavior.join(", ") }
}
