//! `stockade origin`: serves until it is told to stop.

use std::{
    fs,
    io::{self, Read, Write},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stockade_model::seed::Seed;
use stockade_origin::{Identity, Options, Origin, Text, recipe::TEXT_BYTES_MAX};

use crate::{
    cli::OriginArgs,
    exit::{Exit, Failure},
};

/// Says where it listens on standard output, and nothing else there.
pub fn origin(args: OriginArgs) -> Result<Exit, Failure> {
    let identity = match (args.cert, args.key) {
        (Some(certificates), Some(key)) => Some(Identity::Given { certificates, key }),
        _ => args.tls.then_some(Identity::Made),
    };
    let scheme = if identity.is_some() { "https" } else { "http" };
    raise_limit();
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
    writeln!(io::stdout(), "{scheme}://{}", origin.address).map_err(Failure::Output)?;
    let admin =
        origin.admin.map_or(format!("{scheme}://{}", origin.address), |admin| format!("http://{admin}"));
    eprintln!("recipes are taken at {admin}/_admin/add_recipe; Ctrl-C stops it");
    // The handler keeps its end for as long as the program runs.
    stopped.recv().unwrap_or_default();
    Ok(Exit::Done)
}

/// Each connection needs a file descriptor: as many as the system lets us have.
fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    // What cannot be raised stays, and bounds the connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

fn text(path: &Path) -> Result<Text, Failure> {
    let is_stdin = path == Path::new("-");
    let name = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
    let unreadable = |error: io::Error| Failure::Usage(format!("cannot read {name}: {error}"));
    let source: Box<dyn Read> = if is_stdin {
        Box::new(io::stdin().lock())
    } else {
        Box::new(fs::File::open(path).map_err(unreadable)?)
    };
    let mut text = String::new();
    // One more than there may be: whoever reads it says that it is too much.
    source.take(TEXT_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(unreadable)?;
    let folder = path.parent().map(PathBuf::from).unwrap_or_default();
    Ok(Text { name, text, folder })
}

/// Tells when somebody wants it to end.
fn stop_signal() -> Result<mpsc::Receiver<()>, Failure> {
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || stop.send(()).unwrap_or_default())
        .map_err(|error| Failure::Usage(format!("cannot wait for Ctrl-C: {error}")))?;
    Ok(stopped)
}
