//! `stockade proxy`: answers until it is told to stop.

use std::{
    env,
    io::{self, Write},
    os::unix::process::CommandExt,
    process::Command,
    sync::Arc,
};

use stockade_load::drive::Limits;
use stockade_proxy::{
    config::{Change, Config, ConfigError, Flags},
    server::Server,
};
use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{Signal, SignalKind, signal},
    task::spawn_blocking,
};

use crate::{
    cli::ProxyArgs,
    exit::{Exit, Failure},
    lifeline::end_with_stdin,
};

/// Says where it listens on standard output, and nothing else there.
pub fn proxy(args: ProxyArgs) -> Result<Exit, Failure> {
    take_one_heap();
    // Each connection needs a file descriptor: as many as the system lets us have.
    let _ = Limits::raised();
    let config = config(&args)?;
    let args = Arc::new(args);
    let again = Arc::clone(&args);
    let read_again = Box::new(move || self::config(&again).map_err(|failure| line(&failure)));
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let runtime = runtime().map_err(|error| Failure::Usage(format!("cannot start: {error}")))?;
    let server = runtime.block_on(Server::start(config, read_again))?;
    // Before anybody knows that there is something to stop.
    let mut signals = {
        let _inside = runtime.enter();
        Signals::new().map_err(|error| Failure::Usage(format!("cannot wait for signals: {error}")))?
    };
    if args.until_stdin_ends {
        end_with_stdin();
    }
    for address in server.addresses() {
        writeln!(io::stdout(), "{scheme}://{address}").map_err(Failure::Output)?;
    }
    server.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    if let Some(admin) = server.admin() {
        eprintln!("it is looked at, purged and reloaded at http://{admin}");
    }
    eprintln!(
        "Ctrl-C or SIGTERM ends it when those who are here have been answered; SIGHUP reads the file again"
    );
    while let Said::Reload = runtime.block_on(signals.next()) {
        tell(&runtime.block_on(server.reload()));
    }
    eprintln!("ending: nobody is taken in any more");
    // Databases live on this runtime, so it goes on.
    let drained = runtime.block_on(async { spawn_blocking(|| server.drain()).await.unwrap_or_default() });
    eprintln!("{} requests were answered to the end, {} cut off", drained.finished, drained.cut);
    Ok(Exit::Done)
}

/// Begins anew with one heap for all threads, unless somebody has said how many. glibc gives each thread its own, and
/// what bodies leave in one is not for the others: of a limit of 256 MiB 400 to 463 were resident, with one heap 270 to
/// 277 (bench/README.md). Where that cannot be, it goes on as it is.
fn take_one_heap() {
    const HEAPS: &str = "MALLOC_ARENA_MAX";
    if env::var_os(HEAPS).is_some() {
        return;
    }
    if let Ok(program) = env::current_exe() {
        let _error = Command::new(program).args(env::args_os().skip(1)).env(HEAPS, "1").exec();
    }
}

fn config(args: &ProxyArgs) -> Result<Config, Failure> {
    let flags = Flags {
        origin: args.origin.clone(),
        listen: args.listen.clone(),
        admin: args.admin,
        token_file: args.admin_token_file.clone(),
        strategy: args.strategy.as_ref().map(|strategy| strategy.name.clone()),
        max_entries: args.max_entries.map(Into::into),
        max_bytes: args.max_bytes,
        reclaim: args.reclaim,
    };
    let mut config = match &args.config {
        Some(path) => Config::load(path, &flags)?,
        None => Config::from_flags(&flags).map_err(|error| Failure::Usage(error.to_string()))?,
    };
    config.threads = args.threads.or(config.threads);
    Ok(config)
}

/// What is wrong, and where, in one line.
fn line(failure: &Failure) -> String {
    match failure {
        Failure::Config(ConfigError::File(file)) => file.line(),
        failure => failure.to_string(),
    }
}

/// What came of reading the configuration again.
fn tell(reloaded: &Result<Vec<Change>, String>) {
    match reloaded {
        Err(error) => eprintln!("the configuration stays as it was: {error}"),
        Ok(changes) if changes.is_empty() => {
            eprintln!("the configuration has been read again: nothing has changed");
        }
        Ok(changes) => {
            for Change { setting, needs_restart } in changes {
                let then = if *needs_restart { "takes a new start" } else { "is in force" };
                eprintln!("{setting}: {then}");
            }
        }
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_io().enable_time().build()
}

/// What it is told while it runs.
enum Said {
    Reload,
    Stop,
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// # Panics
    /// Outside a runtime.
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Said {
        let Self { interrupt, terminate, hangup } = self;
        tokio::select! {
            _ = interrupt.recv() => Said::Stop,
            _ = terminate.recv() => Said::Stop,
            _ = hangup.recv() => Said::Reload,
        }
    }
}
