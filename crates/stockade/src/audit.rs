//! `stockade audit`: examines a cache.

pub mod record;

use std::{fs, net::Ipv4Addr, path::Path, sync::Arc};

use http::Uri;
use stockade_audit::{
    AuditComparison, AuditError, AuditOrigin, AuditReport, Control, Examination, FailingAnswer, Mark,
    OwnParts, Preset, StartedCommand, Template,
    report::{self, ReportOptions},
};
use stockade_http::{
    client::{HttpUrl, UrlFault},
    server::runtime,
};
use stockade_load::{AllowedTargets, generator::ProcessLimits};
use stockade_model::{seed::Seed, time::Live};

use crate::{
    cli::AuditArgs,
    exit::{CommandError, Exit},
    run::print,
};

pub fn audit(args: &AuditArgs) -> Result<Exit, CommandError> {
    let against = args.against.as_deref();
    let earlier = against.map(record::read).transpose()?;
    if earlier.is_none() && args.fail_on.contains(&FailingAnswer::Worse) {
        return Err(CommandError::Usage("--fail-on worse needs --against, with an earlier audit".to_owned()));
    }
    // Each user has a connection, and so has each load.
    let _ = ProcessLimits::raised();
    let id = format!("{:08x}", Seed::from_entropy().0 & 0xffff_ffff);
    let runtime = runtime().map_err(AuditError::Runtime)?;
    let examined = async {
        tokio::select! {
            report = examine(args, id) => report.map(Some),
            Ok(()) = tokio::signal::ctrl_c() => Ok(None),
        }
    };
    let Some(report) = runtime.block_on(examined)? else {
        say!("interrupted: without the remaining questions there is no report");
        return Ok(Exit::Undecided);
    };
    if !args.no_record {
        match record::write(&report::json(&report, &ReportOptions::default())) {
            Ok(path) => say!("record: {}", path.display()),
            Err(error) => say!("the audit has no record: {error}"),
        }
    }
    let comparison = against
        .zip(earlier)
        .map(|(path, earlier)| AuditComparison::new(path.display().to_string(), &earlier, &report));
    let options = ReportOptions { against: comparison.as_ref(), fail_on: &args.fail_on };
    print(&(args.format.render)(&report, &options))?;
    Ok(exit(&report, &options))
}

/// Starts the origin, and the cache if it is a preset or has a command, and examines the cache.
async fn examine(args: &AuditArgs, id: String) -> Result<AuditReport, CommandError> {
    let (purge, reset, reload) = (args.purge.clone(), args.reset.clone(), args.reload.clone());
    let mut control = Control { purge, server: None, reset, reload };
    let (origin, url) = match args.preset {
        Some(preset) => {
            let template = args.config.as_deref().map(|path| template(preset, path)).transpose()?;
            let origin = AuditOrigin::start((Ipv4Addr::LOCALHOST, 0).into(), id, Live::new())?;
            let own = OwnParts { template, program: args.program.as_deref() };
            let server = preset.start_with(&own, origin.address())?;
            let url = format!("http://127.0.0.1:{}", server.port());
            say!("{}: {url}, origin: http://{}", preset.name, origin.address());
            control.purge = control.purge.or_else(|| preset.purge());
            control.server = Some(Arc::new(server));
            (origin, parsed(&url)?)
        }
        None => {
            let url = url(args)?;
            let origin = AuditOrigin::start(args.origin_listen, id, Live::new())?;
            say!("origin: http://{}", origin.address());
            if let Some(command) = &args.command {
                let started = StartedCommand::start(command, &url, origin.address())?;
                control.server = Some(Arc::new(started));
            }
            (origin, url)
        }
    };
    let ask: Vec<_> = args.ask.iter().map(|what| what.0).collect();
    let server_name = args.preset.map(|preset| preset.name);
    let examination = Examination { url: &url, server_name, control: &control, ask: &ask };
    Ok(origin.examine(&examination, progress).await?)
}

fn progress(group: &str) {
    say!("{group} ...");
}

/// The configuration of a user for a preset.
fn template(preset: &Preset, path: &Path) -> Result<Template, CommandError> {
    let refused = |reason: String| CommandError::Usage(format!("{}: {reason}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    preset.template(text).map_err(|fault| refused(fault.to_string()))
}

/// The URL of the cache, which has to be on this machine or allowed.
fn url(args: &AuditArgs) -> Result<HttpUrl, CommandError> {
    let text = args.url.as_deref().unwrap_or_default();
    let url = parsed(text)?;
    let allowed = match &args.allow_target[..] {
        [] => AllowedTargets::default(),
        patterns => patterns.to_vec().into(),
    };
    let uri: Uri = url.origin().parse().map_err(|_| usage(text, "is not a URL"))?;
    if allowed.has_server(&uri) {
        return Ok(url);
    }
    Err(CommandError::Usage(format!(
        "{} is not on this machine: an audit sends hundreds of requests at once. If the cache is yours, add --allow-target {}",
        url.origin(),
        url.authority
    )))
}

fn parsed(text: &str) -> Result<HttpUrl, CommandError> {
    HttpUrl::parse(text).map_err(|fault| match fault {
        UrlFault::Malformed => usage(text, "is not a URL: write one such as http://127.0.0.1:8080"),
        UrlFault::Credentials => {
            CommandError::Usage("the URL has a user or a password: leave them out".to_owned())
        }
    })
}

fn usage(text: &str, reason: &str) -> CommandError {
    CommandError::Usage(format!("`{text}` {reason}"))
}

fn exit(report: &AuditReport, options: &ReportOptions<'_>) -> Exit {
    match () {
        () if report.fails(options) => Exit::Refuted,
        () if report.answers.iter().any(|(_, answer)| answer.mark == Mark::Unknown) => Exit::Undecided,
        () => Exit::Done,
    }
}
