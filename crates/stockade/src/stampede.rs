//! `stockade stampede`: the published load test.

use stockade_cache::{Strategy, Writer};
use stockade_lab::{
    engine::{Burst, EngineRuntime},
    host,
    stampede::{self, BurstSeries},
};
use stockade_model::seed::Seed;
use stockade_record::record::ClockKind;
use stockade_source::{SourceUrl, documents};

use crate::{
    cli::{NamedStrategy, StampedeArgs, StampedeFormat, WriterName},
    exit::{CommandError, Exit},
    progress::{LiveScreen, stop_on_signals},
    run::print,
};

/// Runs every series of bursts. Workers that fail are data, not errors; their reasons go to standard error.
pub fn stampede(mut args: StampedeArgs) -> Result<Exit, CommandError> {
    let writer = writer(&args)?;
    let url = source(&args)?;
    let documents = args.docs_from.as_deref().map(documents::read_jsonl).transpose()?;
    let runtime =
        EngineRuntime::new(if url.kind().is_simulated { ClockKind::Virtual } else { ClockKind::Live })?;
    let document_set = runtime.open_documents(match &documents {
        Some(documents) => url.fill(documents),
        None => url.open(),
    })?;
    let strategies = args.strategies();

    let bursts = |workers: usize| -> Vec<Burst> {
        let burst = |named: &NamedStrategy| Burst {
            name: named.name.clone(),
            strategy: Strategy { writer, ..named.strategy.clone() },
            workers,
            barrier: !args.no_barrier,
            docs: args.docs,
            behavior: args.source_latency.clone().into(),
        };
        strategies.iter().map(burst).collect()
    };
    let memory_mib = host::host().memory_mib;
    for burst in args.workers.iter().flat_map(|workers| bursts(*workers)) {
        document_set.check_burst(&burst, memory_mib)?;
    }

    let stop = stop_on_signals();
    let live = LiveScreen::steps(args.workers.len() * strategies.len());
    let mut all: Vec<BurstSeries> = Vec::new();
    for workers in &args.workers {
        let seed = Seed(args.seed).child(&format!("{workers} workers, {}", args.docs));
        let measuring = |burst: &Burst| live.next(format!("{workers} workers, {}", burst.name));
        let series =
            stampede::run_bursts(&bursts(*workers), &runtime, &document_set, seed, &stop, measuring)?;
        let is_interrupted = series.interrupted;
        all.push(series);
        if is_interrupted {
            break;
        }
    }
    drop(live);
    print(&match args.format {
        StampedeFormat::Json => stampede::json(&all),
        StampedeFormat::Text => stampede::text(&all, args.writer == WriterName::Mailbox),
    })?;
    for complaint in all.iter().flat_map(|series| &series.complaints) {
        say!("{complaint}");
    }
    Ok(if all.iter().any(|series| series.interrupted) { Exit::Undecided } else { Exit::Done })
}

/// Parsed after the other arguments: clap shows an invalid argument, and a URL may contain a secret.
fn source(args: &StampedeArgs) -> Result<SourceUrl, CommandError> {
    let Some(written) = &args.source else { return Ok(SourceUrl::default()) };
    written.parse().map_err(|error| CommandError::Usage(format!("--source: {error}")))
}

/// The writer. Settings of the mailbox need a mailbox.
fn writer(args: &StampedeArgs) -> Result<Writer, CommandError> {
    match (args.writer, args.store_cost, args.call_timeout) {
        (WriterName::Direct, None, None) => Ok(Writer::Direct),
        (WriterName::Direct, ..) => Err(CommandError::Usage(
            "--store-cost and --call-timeout are those of a mailbox: add --writer mailbox".to_owned(),
        )),
        (WriterName::Mailbox, cost, timeout) => Ok(Writer::mailbox(cost, timeout, None)),
    }
}
