//! `stockade mcp`: tools for coding agents, which speak the Model Context Protocol on standard input and output.
//!
//! A tool runs a command of this program in the current directory, one at a time: two loads at once would measure each other.

mod child;
mod tools;

use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, Implementation, ListToolsResult, PaginatedRequestParams,
        ServerCapabilities, ServerConfig,
    },
    service::RequestContext,
};
use tokio::sync::Mutex;

use crate::{
    cli::McpArgs,
    exit::{CommandError, Exit},
};

const INSTRUCTIONS: &str = "Stockade says what an HTTP cache or a caching strategy does under load and in an outage. For a cache that exists: \
    `audit`, with `preset` for an installed server and `config` for its configuration. Each answer has a mark (best, good, weak, wrong) and, where \
    one is known, a remedy: change the configuration, then audit again with `against`. For a question of your own: `init` writes an experiment, \
    `check` reads it, `run` judges its hypotheses, `compare` judges a change. For traffic in an access log: `plan`.";

/// Serves until standard input ends.
pub fn mcp(args: McpArgs) -> Result<Exit, CommandError> {
    let failed = |error: &dyn std::fmt::Display| CommandError::Protocol(error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| failed(&error))?.block_on(async {
        let server = Server { args, turn: Mutex::default() }.serve(rmcp::transport::stdio());
        let server = server.await.map_err(|error| failed(&error))?;
        server.waiting().await.map_err(|error| failed(&error))?;
        Ok(Exit::Done)
    })
}

struct Server {
    args: McpArgs,
    /// Held by the tool that runs.
    turn: Mutex<()>,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("stockade", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(INSTRUCTIONS.to_owned());
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult { tools: tools::list(), ..ListToolsResult::default() })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = tools::arguments(&request.name, request.arguments.unwrap_or_default(), &self.args)
            .map_err(|reason| ErrorData::invalid_params(reason, None))?;
        let cancelled = || ErrorData::internal_error("cancelled", None);
        let turn = context.ct.run_until_cancelled(self.turn.lock()).await.ok_or_else(cancelled)?;
        let ended = child::run(&arguments, &context.ct).await;
        drop(turn);
        let ended = ended.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        Ok(ended.result(&request.name).into())
    }
}
