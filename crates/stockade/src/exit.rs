//! What the program ends with. The codes are a contract: scripts and CI depend on them.

use std::process::ExitCode;

use stockade_lab::{engine::EngineError, run::RunError, spec::LoadError, storage::StorageError};
use stockade_load::{drive, plan};
use stockade_model::record::{Record, Verdict};
use stockade_origin::{Refused, StartError};
use stockade_proxy::{admin, config::ConfigError, front, serve::routes::RulesError, server};
use stockade_source::{documents::ReadError, secrets::masked_message};

/// How the program ends when nothing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done, and every hypothesis supported.
    Done,
    /// 98: invalid, interrupted or inconclusive.
    Undecided,
    /// 99: a hypothesis refuted.
    Refuted,
}

/// What went wrong. What was typed, and files that were written to be read here, end with 2;
/// everything else (a database, a disk, a record) with 1.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
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
    Origin(#[from] StartError),
    #[error(transparent)]
    Generator(#[from] drive::LoadError),
    #[error(transparent)]
    Plan(#[from] plan::ReadError),
    #[error(transparent)]
    Proxy(#[from] server::StartError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{0}")]
    Usage(String),
    #[error("cannot write to standard output: {0}")]
    Output(std::io::Error),
}

impl Exit {
    /// What a run ends with. An interrupted one has not shown all it was to show.
    pub fn of(record: &Record) -> Self {
        match record.verdict {
            _ if record.interrupted => Self::Undecided,
            Verdict::Supported => Self::Done,
            Verdict::Refuted => Self::Refuted,
            Verdict::Inconclusive | Verdict::Invalid => Self::Undecided,
        }
    }
}

/// Says what is wrong with what was typed, which may hold a secret; or the help that was asked for.
pub fn usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        eprint!("{}", masked_message(&error.render().to_string()));
    } else {
        // A reader that has seen enough is no failure.
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Says on standard error what went wrong.
pub fn explain(failure: Failure) -> ExitCode {
    let code = failure.code();
    match failure {
        Failure::Load(LoadError::Spec(spec)) | Failure::Run(RunError::Spec(spec)) => {
            eprintln!("{:?}", miette::Report::new(*spec));
        }
        Failure::Origin(StartError::Refused(Refused::Recipe(recipe))) => {
            eprintln!("{:?}", miette::Report::new(*recipe));
        }
        Failure::Plan(plan::ReadError::Plan(plan)) => eprintln!("{:?}", miette::Report::new(*plan)),
        Failure::Config(ConfigError::File(file)) => eprintln!("{:?}", miette::Report::new(*file)),
        Failure::Generator(drive::LoadError::Samples(error))
            if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        // A reader that has seen enough is no failure worth a word.
        Failure::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        // A path that was typed may be a URL in the wrong place.
        failure @ (Failure::Load(_) | Failure::Documents(_)) => {
            eprintln!("error: {}", masked_message(&failure.to_string()));
        }
        failure => eprintln!("error: {failure}"),
    }
    ExitCode::from(code)
}

impl Exit {
    /// The code, as the contract has it.
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

impl Failure {
    fn code(&self) -> u8 {
        let is_usage = match self {
            Self::Usage(_)
            | Self::Origin(StartError::Tls(_))
            | Self::Run(
                RunError::MixedClocks
                | RunError::NothingToScale
                | RunError::Scale(_)
                | RunError::Spec(_)
                | RunError::Documents(_)
                | RunError::Memory { .. }
                | RunError::Storage(StorageError::Taken { .. }),
            )
            | Self::Storage(StorageError::Taken { .. })
            | Self::Load(_)
            | Self::Documents(_)
            | Self::Plan(_)
            | Self::Config(_)
            // What the configuration names, or says, cannot be used; what does not listen is not its fault.
            | Self::Proxy(
                server::StartError::Rules(RulesError::Limit(_) | RulesError::Strategy { .. })
                | server::StartError::Front(front::StartError::Tls(_))
                | server::StartError::Admin(admin::StartError::Open(_) | admin::StartError::Token(_))
                | server::StartError::Log(_),
            )
            | Self::Generator(drive::LoadError::Trust(_) | drive::LoadError::TooMany(_)) => true,
            Self::Origin(StartError::Refused(refused)) => !matches!(refused, Refused::Unavailable(_)),
            Self::Run(RunError::Http(error)) => error.is_usage(),
            Self::Engine(error) | Self::Run(RunError::Engine(error) | RunError::Cell { error, .. }) => {
                error.is_usage()
            }
            _ => false,
        };
        if is_usage { 2 } else { 1 }
    }
}
