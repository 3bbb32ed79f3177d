//! `stockade origin`: serves until it is told to stop.

use std::{
    io::{self, Write},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
};

use stockade_load::drive::Limits;
use stockade_model::seed::Seed;
use stockade_origin::{Identity, Options, Origin, Text, recipe::TEXT_BYTES_MAX};

use crate::{
    cli::OriginArgs,
    exit::{Exit, Failure},
    input::Input,
    lifeline::end_with_stdin,
};

/// Says where it listens on standard output, and nothing else there.
pub fn origin(args: OriginArgs) -> Result<Exit, Failure> {
    let identity = match (args.cert, args.key) {
        (Some(certificates), Some(key)) => Some(Identity::Given { certificates, key }),
        _ => args.tls.then_some(Identity::Made),
    };
    let scheme = if identity.is_some() { "https" } else { "http" };
    // Each connection needs a file descriptor: as many as the system lets us have.
    let _ = Limits::raised();
    let cores = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let origin = Origin::start(&Options {
        listen: args.listen,
        admin: args.admin,
        threads: args.threads.unwrap_or_else(cores),
        seed: Seed(args.seed),
        is_held: args.hold,
        identity,
        recipes: args.recipe.as_deref().map(text).transpose()?,
    })?;
    // Before anybody knows that there is something to stop.
    let stopped = stop_signal()?;
    if args.until_stdin_ends {
        end_with_stdin();
    }
    writeln!(io::stdout(), "{scheme}://{}", origin.address).map_err(Failure::Output)?;
    let admin =
        origin.admin.map_or(format!("{scheme}://{}", origin.address), |admin| format!("http://{admin}"));
    eprintln!("recipes are taken at {admin}/_admin/add_recipe; Ctrl-C stops it");
    // The handler keeps its end for as long as the program runs.
    stopped.recv().unwrap_or_default();
    Ok(Exit::Done)
}

fn text(path: &Path) -> Result<Text, Failure> {
    let mut input = Input::open(path, TEXT_BYTES_MAX as u64)?;
    let folder = path.parent().map(PathBuf::from).unwrap_or_default();
    Ok(Text { text: input.text()?, name: input.name, folder })
}

/// Tells when somebody wants it to end.
fn stop_signal() -> Result<mpsc::Receiver<()>, Failure> {
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || stop.send(()).unwrap_or_default())
        .map_err(|error| Failure::Usage(format!("cannot wait for Ctrl-C: {error}")))?;
    Ok(stopped)
}
