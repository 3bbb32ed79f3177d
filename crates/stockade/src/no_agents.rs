//! Agents in a build without them.

use std::collections::BTreeMap;

use stockade_lab::engine::CancellationToken;
use stockade_record::record::Role;

use crate::{
    cli::{AgentArgs, OnArgs},
    exit::{CommandError, Exit},
    run::Placement,
};

/// Refuses.
pub fn agent(_: AgentArgs) -> Result<Exit, CommandError> {
    Err(unavailable())
}

impl OnArgs {
    /// Refuses if agents are asked for.
    pub fn connect(
        &self,
        _: BTreeMap<Role, String>,
        _: &CancellationToken,
    ) -> Result<Option<Placement>, CommandError> {
        if self.on.is_some() { Err(unavailable()) } else { Ok(None) }
    }
}

fn unavailable() -> CommandError {
    CommandError::Usage("this build has no agents: build it with `--features agents`".to_owned())
}
