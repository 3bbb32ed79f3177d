//! `stockade proxy`: serves until Ctrl-C or SIGTERM.

use std::{
    io::{self, Write},
    sync::Arc,
};

use stockade_http::server::runtime;
use stockade_load::generator::ProcessLimits;
use stockade_model::units::format_duration;
use stockade_proxy::{
    check::{self, CheckResult},
    config::{Change, Config, ConfigError, Flags},
    server::ProxyServer,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::spawn_blocking,
};

use crate::{
    child::{Listening, report_ready},
    cli::ProxyArgs,
    exit::{CommandError, Exit},
};

pub fn proxy(args: ProxyArgs) -> Result<Exit, CommandError> {
    if args.check {
        return check(&args);
    }
    // Each connection needs a file descriptor: take as many as the system allows.
    let _ = ProcessLimits::raised();
    let config = config(&args)?;
    let args = Arc::new(args);
    let again = Arc::clone(&args);
    let reload = Box::new(move || self::config(&again).map_err(|failure| line(&failure)));
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let runtime = runtime().map_err(|error| CommandError::Usage(format!("cannot start: {error}")))?;
    let mut server = runtime.block_on(ProxyServer::start(config, reload))?;
    // Before a parent can know of this process and stop it.
    let mut signals = {
        let _inside = runtime.enter();
        Signals::new().map_err(|error| CommandError::Usage(format!("cannot wait for signals: {error}")))?
    };
    let listen = server.addresses().iter().map(|address| format!("{scheme}://{address}")).collect();
    let admin = server.admin().map(|admin| format!("http://{admin}"));
    report_ready(&Listening { listen, admin: admin.clone() }, &args.parent)?;
    server.warnings.iter().for_each(|warning| say!("warning: {warning}"));
    if let Some(admin) = admin {
        say!("admin API (metrics, purge, reload): {admin}");
    }
    say!("Ctrl-C or SIGTERM stops the proxy after requests in progress; SIGHUP reloads the configuration");
    server
        .keep_snapshots(|note| say!("{note}"))
        .map_err(|error| CommandError::Usage(format!("cannot start the thread of snapshots: {error}")))?;
    drop(runtime.spawn(server.keep_memory_bound()));
    drop(runtime.spawn(server.watch_health(|event| say!("{event}"))));
    while let SignalAction::Reload = runtime.block_on(signals.next()) {
        report_reload(&runtime.block_on(server.reload()));
    }
    runtime.block_on(leave(&server, &mut signals));
    say!("stopping: no new connections are accepted");
    // The clients of databases run on this runtime, so it continues.
    let drained = runtime.block_on(async { spawn_blocking(|| server.drain()).await.unwrap_or_default() });
    say!("{} requests in progress were completed, {} aborted", drained.finished, drained.aborted);
    Ok(Exit::Done)
}

/// Waits for `timeouts.shutdown_delay`, or for a second signal to stop.
async fn leave(server: &ProxyServer, signals: &mut Signals) {
    let (left, delay) = (server.leave(), server.shutdown_delay());
    if !delay.is_zero() {
        let delay = format_duration(delay);
        say!("not ready: new connections are accepted for {delay}, or until a second signal");
    }
    let second_stop = async { while let SignalAction::Reload = signals.next().await {} };
    tokio::select! {
        biased;
        () = left => {}
        () = second_stop => {}
    }
}

/// Prints `ok`, or all problems. It can run while the proxy with this file runs.
fn check(args: &ProxyArgs) -> Result<Exit, CommandError> {
    let config = config(args)?;
    let runtime = runtime().map_err(|error| CommandError::Usage(format!("cannot start: {error}")))?;
    let _inside = runtime.enter();
    let CheckResult { problems, warnings } = check::check(&config);
    warnings.iter().for_each(|warning| say!("warning: {warning}"));
    if problems.is_empty() {
        writeln!(io::stdout(), "ok").map_err(CommandError::Output)?;
        return Ok(Exit::Done);
    }
    let file = args.config.as_ref().map(|path| format!("{}: ", path.display())).unwrap_or_default();
    let lines: Vec<String> = problems.iter().map(|problem| format!("{file}{problem}")).collect();
    Err(CommandError::Usage(lines.join("\nerror: ")))
}

fn config(args: &ProxyArgs) -> Result<Config, CommandError> {
    let flags = Flags {
        origin: args.origin.clone(),
        listen: args.listen.clone(),
        admin: args.admin,
        token_file: args.admin_token_file.clone(),
        strategy: args.strategy.as_ref().map(|strategy| strategy.name.clone()),
        max_entries: args.max_entries.map(Into::into),
        max_bytes: args.max_bytes,
        reclaim: args.reclaim,
        snapshot: args.snapshot.clone(),
        shadow: args.shadow,
    };
    let mut config = match &args.config {
        Some(path) => Config::load(path, &flags)?,
        None => Config::from_flags(&flags).map_err(|error| CommandError::Usage(error.to_string()))?,
    };
    config.threads = args.threads.or(config.threads);
    Ok(config)
}

/// The error and its place, on one line.
fn line(failure: &CommandError) -> String {
    match failure {
        CommandError::Config(ConfigError::File(file)) => file.line(),
        failure => failure.to_string(),
    }
}

/// Reports the result of a reload.
fn report_reload(reloaded: &Result<Vec<Change>, String>) {
    match reloaded {
        Err(error) => say!("reload failed, the configuration stays in force: {error}"),
        Ok(changes) if changes.is_empty() => {
            say!("reloaded: no setting has changed");
        }
        Ok(changes) => {
            for Change { setting, needs_restart } in changes {
                let then = if *needs_restart { "needs a restart" } else { "is in force" };
                say!("{setting}: {then}");
            }
        }
    }
}

enum SignalAction {
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

    async fn next(&mut self) -> SignalAction {
        let Self { interrupt, terminate, hangup } = self;
        tokio::select! {
            _ = interrupt.recv() => SignalAction::Stop,
            _ = terminate.recv() => SignalAction::Stop,
            _ = hangup.recv() => SignalAction::Reload,
        }
    }
}
