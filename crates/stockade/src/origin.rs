//! `stockade origin`: serves until Ctrl-C or SIGTERM.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
};

use stockade_load::generator::ProcessLimits;
use stockade_model::seed::Seed;
use stockade_origin::{CertificateSource, Origin, OriginOptions, RecipeText, recipe::TEXT_BYTES_MAX};

use crate::{
    child::{Listening, report_ready},
    cli::OriginArgs,
    exit::{CommandError, Exit},
    input::Input,
};

pub fn origin(args: OriginArgs) -> Result<Exit, CommandError> {
    let certificate = match (args.cert, args.key) {
        (Some(certificates), Some(key)) => Some(CertificateSource::PemFiles { certificates, key }),
        _ => args.tls.then_some(CertificateSource::SelfSigned),
    };
    let scheme = if certificate.is_some() { "https" } else { "http" };
    // Each connection needs a file descriptor: take as many as the system allows.
    let _ = ProcessLimits::raised();
    let cores = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let origin = Origin::start(&OriginOptions {
        listen: args.listen,
        admin: args.admin,
        admin_hosts: args.admin_hosts,
        threads: args.threads.unwrap_or_else(cores),
        seed: Seed(args.seed),
        is_clock_held: args.hold,
        certificate,
        recipes: args.recipe.as_deref().map(read_recipe).transpose()?,
        script: None,
    })?;
    // Before a parent can know of this process and stop it.
    let stopped = stop_signal()?;
    let url = format!("{scheme}://{}", origin.address);
    let admin = origin.admin_address.map_or_else(|| url.clone(), |admin| format!("http://{admin}"));
    let admin = format!("{admin}/_admin");
    report_ready(&Listening { listen: vec![url], admin: Some(admin.clone()) }, &args.parent)?;
    say!("recipes: POST to {admin}/add_recipe; Ctrl-C stops the origin");
    if let Some(note) = cacheability_note(&origin.uncacheable_routes) {
        say!("{note}");
    }
    // The handler keeps the sender for as long as the program runs.
    stopped.recv().unwrap_or_default();
    Ok(Exit::Done)
}

/// Names the routes that no cache will store, and the header to add.
fn cacheability_note(routes: &[String]) -> Option<String> {
    const NAMED_MAX: usize = 5;
    let named: Vec<&str> = routes.iter().take(NAMED_MAX).map(String::as_str).collect();
    let more = match routes.len().saturating_sub(NAMED_MAX) {
        0 if routes.is_empty() => return None,
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "note: a cache that obeys headers will store nothing of {}{more}: the recipe has no cache-control, so the answers are \
         private; add \"headers\": {{\"cache-control\": \"max-age=60\"}}",
        named.join(", ")
    ))
}

fn read_recipe(path: &Path) -> Result<RecipeText, CommandError> {
    let mut input = Input::open_truncated(path, TEXT_BYTES_MAX as u64)?;
    let folder = path.parent().map(PathBuf::from).unwrap_or_default();
    Ok(RecipeText { text: input.text()?, name: input.name, folder })
}

/// Receives a message on Ctrl-C or SIGTERM.
fn stop_signal() -> Result<mpsc::Receiver<()>, CommandError> {
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || stop.send(()).unwrap_or_default())
        .map_err(|error| CommandError::Usage(format!("cannot wait for Ctrl-C: {error}")))?;
    Ok(stopped)
}
