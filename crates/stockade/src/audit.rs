//! `stockade audit`: examines a cache.

use std::net::{Ipv4Addr, SocketAddr};

use http::Uri;
use stockade_audit::{Answer, Audit, AuditReport, Mark, Question};
use stockade_http::{
    client::{HttpUrl, UrlFault},
    server::runtime,
};
use stockade_load::{AllowedTargets, generator::ProcessLimits};
use stockade_model::{seed::Seed, time::Live};

use crate::{
    cli::{AuditArgs, FailingAnswer},
    exit::{CommandError, Exit},
    run::print,
};

pub fn audit(args: &AuditArgs) -> Result<Exit, CommandError> {
    // Each user has a connection, and so has each load.
    let _ = ProcessLimits::raised();
    let id = format!("{:08x}", Seed::from_entropy().0 & 0xffff_ffff);
    let runtime =
        runtime().map_err(|error| CommandError::Usage(format!("cannot start a runtime: {error}")))?;
    let report = runtime.block_on(async {
        let time = Live::new();
        let Some(preset) = args.preset else {
            let audit = Audit::start(url(args)?, args.origin_listen, id, time)?;
            say!("origin: http://{}", audit.origin());
            return Ok::<_, CommandError>(audit.run(progress).await?);
        };
        // The server needs the address of the origin, and the audit the URL of the server.
        let origin: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        let mut audit = Audit::start(parsed("http://127.0.0.1:1")?, origin, id, time)?;
        let server = preset.start(audit.origin())?;
        say!("{}: {}, origin: http://{}", preset.name, server.url(), audit.origin());
        audit.examine(parsed(&server.url())?, preset.name)?;
        Ok(audit.run(progress).await?)
    })?;
    print(&(args.format.render)(&report))?;
    Ok(exit(&report, &args.fail_on))
}

fn progress(group: &str) {
    say!("{group} ...");
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

fn exit(report: &AuditReport, fail_on: &[FailingAnswer]) -> Exit {
    let is_bad = |answer: &Answer| matches!(answer.mark, Mark::Weak | Mark::Wrong);
    let fails = |(question, answer): &(&Question, Answer)| {
        fail_on.iter().any(|what| match what {
            FailingAnswer::Mark(mark) => is_bad(answer) && answer.mark >= *mark,
            FailingAnswer::Question(id) => question.id == *id && is_bad(answer),
        })
    };
    let is_unknown = |(_, answer): &(&Question, Answer)| answer.mark == Mark::Unknown;
    match () {
        () if report.answers.iter().any(fails) => Exit::Refuted,
        () if report.answers.iter().any(is_unknown) => Exit::Undecided,
        () => Exit::Done,
    }
}
