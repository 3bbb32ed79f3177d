//! `stockade mcp`: tools for coding agents, which speak the Model Context Protocol on standard input and output.
//!
//! A tool runs a command of this program in the current directory, one at a time: two loads at once would measure each other.

mod child;
mod tools;

use std::{path::PathBuf, sync::Arc};

use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, Implementation, ListToolsResult, PaginatedRequestParams,
        ServerCapabilities, ServerConfig,
    },
    service::RequestContext,
};
use stockade_model::time::{Live, Runtime, before};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    cli::McpArgs,
    exit::{CommandError, Exit},
    progress::stop_on_signals,
    run::own_program,
};

const INSTRUCTIONS: &str = "Stockade says what an HTTP cache or a caching strategy does under load and in an outage. For a cache that exists: \
    `audit`, with `preset` for an installed server and `config` for its configuration. Each answer has a mark (best, good, weak, wrong) and, where \
    one is known, a remedy: change the configuration, then audit again with `against`. For a question of your own: `init` writes an experiment, \
    `check` reads it, `run` judges its hypotheses, `compare` judges a change. For traffic in an access log: `plan`.";

/// Serves until standard input ends or a signal arrives. The tool that runs is interrupted then, and has time to stop what it started.
pub fn mcp(args: McpArgs) -> Result<Exit, CommandError> {
    let failed = |error: &dyn std::fmt::Display| CommandError::Protocol(error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| failed(&error))?.block_on(async {
        let (stop, turn) = (stop_on_signals(), Arc::default());
        let server = Server { args, program: own_program(), turn: Arc::clone(&turn), stop: stop.clone() };
        let served = async {
            let server = server.serve(rmcp::transport::stdio()).await.map_err(|error| failed(&error))?;
            server.waiting().await.map_err(|error| failed(&error))
        };
        let served = stop.run_until_cancelled(served).await;
        stop.cancel();
        let time = Live::new();
        before(&time, time.now() + child::GRACE, turn.lock()).await;
        served.transpose().map(|_| Exit::Done)
    })
}

struct Server {
    args: McpArgs,
    /// This program, also if an update replaces its file.
    program: PathBuf,
    /// Held by the tool that runs.
    turn: Arc<Mutex<()>>,
    /// Cancelled at the end of the session.
    stop: CancellationToken,
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
        let turn = Arc::clone(&self.turn).lock_owned();
        let turn = context.ct.run_until_cancelled(turn).await.ok_or_else(cancelled)?;
        let (program, stop) = (self.program.clone(), self.stop.child_token());
        let interrupt = stop.clone();
        // A task of its own: at the end of the session this call is dropped, and the command still ends in order.
        #[expect(clippy::disallowed_methods, reason = "a process ends in real time")]
        let mut tool = tokio::spawn(async move {
            let ended = child::run(&program, &arguments, &stop).await;
            drop(turn);
            ended
        });
        let ended = match context.ct.run_until_cancelled(&mut tool).await {
            Some(ended) => ended,
            None => {
                interrupt.cancel();
                tool.await
            }
        };
        let failed = |error: &dyn std::fmt::Display| ErrorData::internal_error(error.to_string(), None);
        let ended = ended.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
        Ok(ended.result(&request.name).into())
    }
}
