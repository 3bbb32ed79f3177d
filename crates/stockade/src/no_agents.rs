//! Agents in a build without them.

use std::sync::Arc;

use stockade_lab::engine::CancellationToken;
use stockade_load::generator::LoadRunner;

use crate::{
    cli::{AgentArgs, OnArgs},
    exit::{CommandError, Exit},
};

/// Refuses.
pub fn agent(_: AgentArgs) -> Result<Exit, CommandError> {
    Err(unavailable())
}

impl OnArgs {
    /// Refuses if agents are asked for.
    pub fn connect(&self, _: &CancellationToken) -> Result<Option<Arc<dyn LoadRunner>>, CommandError> {
        if self.on.is_some() { Err(unavailable()) } else { Ok(None) }
    }
}

fn unavailable() -> CommandError {
    CommandError::Usage("this build has no agents: build it with `--features agents`".to_owned())
}
