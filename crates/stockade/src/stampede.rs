//! `stockade stampede`: the published load test.

use stockade_cache::{Strategy, Writer};
use stockade_lab::{
    engine::{Burst, World},
    host, stampede,
};
use stockade_model::{record::Clock, seed::Seed};
use stockade_source::documents;

use crate::{
    cli::{StampedeArgs, StampedeFormat, WriterName},
    exit::{Exit, Failure},
    progress::{Bar, stop_on_signals},
    run::print,
};

/// Runs every start. Workers that fail are data, not errors; their reasons go to standard error.
pub fn stampede(mut args: StampedeArgs) -> Result<Exit, Failure> {
    let writer = writer(&args)?;
    let memory_mib = host::host().memory_mib;
    for workers in &args.workers {
        World::check_room(workers.get(), memory_mib)?;
    }
    let url = args.source.clone().unwrap_or_default();
    let source = match &args.docs_from {
        Some(file) => url.fill(&documents::read_jsonl(file)?)?,
        None => url.open()?,
    };
    let world = World::new(if url.kind().is_simulated { Clock::Virtual } else { Clock::Live })?;
    let library = world.library(source)?;
    let strategies = args.strategies();

    let stop = stop_on_signals();
    let bar = Bar::new(args.workers.len() * strategies.len());
    let mut starts = Vec::new();
    let mut is_interrupted = false;
    for workers in args.workers.iter().map(|workers| workers.get()) {
        let bursts: Vec<Burst> = strategies
            .iter()
            .map(|named| Burst {
                name: named.name.clone(),
                strategy: Strategy { writer, ..named.strategy.clone() },
                workers,
                barrier: !args.no_barrier,
                docs: args.docs,
                latency: args.source_latency,
            })
            .collect();
        let seed = Seed(args.seed).child(&format!("{workers} workers, {}", args.docs));
        let measuring = |burst: &Burst| bar.next(format!("{workers} workers, {}", burst.name));
        let Some(start) = stampede::start(&bursts, &world, &library, seed, &stop, measuring)? else {
            is_interrupted = true;
            break;
        };
        starts.push(start);
    }
    drop(bar);
    print(&match args.format {
        StampedeFormat::Json => stampede::json(&starts),
        StampedeFormat::Text => stampede::text(&starts, args.writer == WriterName::Mailbox),
    })?;
    for (strategy, message, count) in starts.iter().flat_map(|start| &start.errors) {
        eprintln!("{strategy}: {count} workers failed: {message}");
    }
    Ok(if is_interrupted { Exit::Undecided } else { Exit::Done })
}

/// Who writes: the mailbox's settings make sense only with a mailbox.
fn writer(args: &StampedeArgs) -> Result<Writer, Failure> {
    match (args.writer, args.store_cost, args.call_timeout) {
        (WriterName::Direct, None, None) => Ok(Writer::Direct),
        (WriterName::Direct, ..) => Err(Failure::Usage(
            "--store-cost and --call-timeout are those of a mailbox: add --writer mailbox".to_owned(),
        )),
        (WriterName::Mailbox, cost, timeout) => Ok(Writer::mailbox(cost, timeout, None)),
    }
}
