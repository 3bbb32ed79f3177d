//! The exit codes, a contract with scripts and CI.

use std::process::ExitCode;

#[cfg(feature = "http")]
use stockade_http::frontend;
use stockade_lab::{engine::EngineError, run::RunError, spec::LoadError};
#[cfg(feature = "http")]
use stockade_load::{generator::LoadTestError, plan};
use stockade_model::message::printable_lines;
#[cfg(feature = "http")]
use stockade_model::units::format_count;
#[cfg(feature = "http")]
use stockade_origin::{AddRecipesError, OriginStartError};
#[cfg(feature = "http")]
use stockade_proxy::{admin, config::ConfigError, serve::router::RouterError, server};
use stockade_record::{
    record::{Record, Verdict},
    storage::StorageError,
};
use stockade_source::{documents::ReadError, secrets::masked_message};

#[cfg(feature = "http")]
use crate::{telemetry::TelemetryError, ui::UiError};

/// The exit of a program without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done, and every hypothesis supported.
    Done,
    /// 98: invalid, interrupted or inconclusive.
    Undecided,
    /// 99: a hypothesis refuted.
    Refuted,
}

/// An error. Arguments and files that are wrong exit with 2; everything else (a database, a disk, a record) with 1.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Documents(#[from] ReadError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Log(#[from] stockade_plan::LogError),
    #[error(transparent)]
    ReadLog(#[from] stockade_plan::read::ReadError),
    #[error(transparent)]
    NoPlan(#[from] stockade_plan::PlanError),
    #[cfg(feature = "http")]
    #[error(transparent)]
    Origin(#[from] OriginStartError),
    #[cfg(feature = "http")]
    #[error(transparent)]
    Generator(#[from] LoadTestError),
    #[cfg(feature = "http")]
    #[error(transparent)]
    Plan(#[from] plan::PlanFileError),
    #[cfg(feature = "http")]
    #[error(transparent)]
    Proxy(#[from] server::ProxyStartError),
    #[cfg(feature = "http")]
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[cfg(feature = "http")]
    #[error("all of {} requests failed ({classes}): check the URL, and that its server works", format_count(*.requests))]
    AllFailed { requests: u64, classes: String },
    #[cfg(feature = "http")]
    #[error(transparent)]
    Audit(#[from] stockade_audit::AuditError),
    #[cfg(feature = "http")]
    #[error("cannot start the cache: {0}")]
    Service(#[from] stockade_audit::ServiceError),
    #[cfg(feature = "http")]
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    #[cfg(feature = "http")]
    #[error(transparent)]
    Ui(#[from] UiError),
    #[cfg(feature = "agents")]
    #[error(transparent)]
    Agent(#[from] stockade_agents::AgentError),
    #[cfg(feature = "agents")]
    #[error(transparent)]
    Coordinator(#[from] stockade_agents::CoordinatorError),
    #[cfg(feature = "mcp")]
    #[error("the Model Context Protocol on standard input: {0}")]
    Protocol(String),
    #[error("{0}")]
    Usage(String),
    #[error("cannot write to standard output: {0}")]
    Output(std::io::Error),
}

impl Exit {
    /// The exit of a run. An interrupted run lacks evidence.
    pub fn of(record: &Record) -> Self {
        if record.interrupted { Self::Undecided } else { Self::of_verdict(record.verdict) }
    }

    pub fn of_verdict(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Supported => Self::Done,
            Verdict::Refuted => Self::Refuted,
            Verdict::Inconclusive | Verdict::Invalid | Verdict::NotJudged => Self::Undecided,
        }
    }
}

/// Prints the help, or the error of an argument without its secrets.
pub fn usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        eprint!("{}", printable_lines(&masked_message(&error.render().to_string())));
    } else {
        // A closed pipe is not a failure.
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Prints the error on standard error.
pub fn explain(failure: CommandError) -> ExitCode {
    let code = failure.code();
    match failure {
        CommandError::Load(LoadError::Spec(spec)) | CommandError::Run(RunError::Spec(spec)) => {
            say!("{:?}", miette::Report::new(*spec));
        }
        #[cfg(feature = "http")]
        CommandError::Origin(OriginStartError::Recipes(AddRecipesError::Recipe(recipe))) => {
            say!("{:?}", miette::Report::new(*recipe));
        }
        #[cfg(feature = "http")]
        CommandError::Plan(plan::PlanFileError::Plan(plan)) => say!("{:?}", miette::Report::new(*plan)),
        #[cfg(feature = "http")]
        CommandError::Config(ConfigError::File(file)) => say!("{:?}", miette::Report::new(*file)),
        #[cfg(feature = "http")]
        CommandError::Generator(LoadTestError::Samples(error))
            if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        // A closed pipe is not worth a message.
        CommandError::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        // A path may be a URL in the wrong place, with a password.
        failure @ (CommandError::Load(_) | CommandError::Documents(_)) => {
            say!("error: {}", masked_message(&failure.to_string()));
        }
        failure => say!("error: {failure}"),
    }
    ExitCode::from(code)
}

impl Exit {
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Undecided => 98,
            Self::Refuted => 99,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

impl CommandError {
    fn code(&self) -> u8 {
        #[cfg(feature = "agents")]
        if let Self::Coordinator(stockade_agents::CoordinatorError::Interrupted) = self {
            return Exit::Undecided.code();
        }
        let is_usage = match self {
            Self::Usage(_)
            | Self::Load(_)
            | Self::Documents(_)
            | Self::Log(_)
            | Self::ReadLog(_)
            | Self::NoPlan(_) => true,
            Self::Storage(error) => matches!(error, StorageError::Taken { .. }),
            Self::Run(error) => error.is_usage(),
            Self::Engine(error) => error.is_usage(),
            Self::Output(_) => false,
            #[cfg(feature = "mcp")]
            Self::Protocol(_) => false,
            #[cfg(feature = "agents")]
            Self::Agent(_) | Self::Coordinator(_) => false,
            // An address that is taken is not wrong usage.
            #[cfg(feature = "http")]
            Self::Telemetry(error) => error.is_usage(),
            #[cfg(feature = "http")]
            Self::Audit(_) | Self::Service(_) | Self::Ui(_) | Self::AllFailed { .. } => false,
            #[cfg(feature = "http")]
            Self::Plan(_) | Self::Config(_) => true,
            #[cfg(feature = "http")]
            Self::Generator(error) => {
                matches!(error, LoadTestError::Trust(_) | LoadTestError::ConnectionLimit(_))
            }
            #[cfg(feature = "http")]
            Self::Origin(OriginStartError::Recipes(error)) => {
                !matches!(error, AddRecipesError::ContentFetch(_))
            }
            #[cfg(feature = "http")]
            Self::Origin(error) => matches!(error, OriginStartError::Certificate(_)),
            // A configuration that cannot be used is usage; an address that is taken is not.
            #[cfg(feature = "http")]
            Self::Proxy(error) => matches!(
                error,
                server::ProxyStartError::Router(RouterError::Limit(_) | RouterError::Strategy { .. })
                    | server::ProxyStartError::Frontend(frontend::FrontendStartError::Tls(_))
                    | server::ProxyStartError::Admin(
                        admin::AdminStartError::Open(_) | admin::AdminStartError::Token(_)
                    )
                    | server::ProxyStartError::Log(_)
            ),
        };
        if is_usage { 2 } else { 1 }
    }
}
