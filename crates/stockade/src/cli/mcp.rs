//! The arguments of `stockade mcp`.

use clap::Args;
use stockade_load::TargetPattern;

#[derive(Debug, Args)]
#[command(after_help = REGISTERING)]
pub struct McpArgs {
    /// Servers beyond this machine that tools may reach, such as `10.2.0.7:8080`; may be repeated [default: none]
    #[arg(long, value_name = "PATTERN")]
    pub allow_target: Vec<TargetPattern>,
}

const REGISTERING: &str = "In the settings of an agent:
  { \"mcpServers\": { \"stockade\": { \"command\": \"stockade\", \"args\": [\"mcp\"] } } }";
