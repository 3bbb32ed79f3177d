//! Logs and traces in every format, through the public interface.

#![allow(missing_docs, reason = "tests")]

mod access;
mod compressed;
mod formats;
mod generated;
mod guessed;
mod patterns;
mod published;
mod reading;
mod vendors;

use stockade_logs::{Format, LogError, LogReader, LogSummary, LoggedKey, LoggedRequest, Operation};

/// Each request as text, without what it does not have:
/// `@SECONDS write POST|HOST|URL status=200 17B ttl=60s not-shareable took=3ms x2`.
fn shown(request: &LoggedRequest<'_>) -> String {
    let mut parts = Vec::new();
    parts.extend(request.at_ns.map(|at| format!("@{}.{:09}", at / 1_000_000_000, at % 1_000_000_000)));
    parts.push(
        match request.operation {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Delete => "delete",
        }
        .to_owned(),
    );
    parts.push(match request.key {
        LoggedKey::Url { method, host, url } => format!("{method}|{}|{url}", host.unwrap_or_default()),
        LoggedKey::Text(text) => String::from_utf8_lossy(text).into_owned(),
        LoggedKey::Number(number) => format!("#{number}"),
    });
    parts.extend(request.status.map(|status| status.to_string()));
    parts.extend(request.bytes.map(|bytes| format!("{bytes}B")));
    parts.extend(request.ttl.map(|ttl| format!("ttl={ttl:?}")));
    parts.extend((!request.is_shareable).then(|| "not-shareable".to_owned()));
    parts.extend(request.service_time.map(|took| format!("took={took:?}")));
    if request.repeats != 1 {
        parts.push(format!("x{}", request.repeats));
    }
    parts.join(" ").replace(".000000000 ", " ")
}

fn try_read(text: impl AsRef<[u8]>, format: Option<&str>) -> Result<(Vec<String>, LogSummary), LogError> {
    let format = format.map(|format| format.parse::<Format>().unwrap_or_else(|error| panic!("{error}")));
    let mut requests = Vec::new();
    let reader = LogReader::from_reader("log", text.as_ref(), format)?;
    let summary = reader.for_each(|request| requests.push(shown(&request)))?;
    assert_eq!(requests.len() as u64, summary.requests);
    Ok((requests, summary))
}

/// The requests of a log without bad lines.
#[track_caller]
fn read(text: impl AsRef<[u8]>, format: &str) -> Vec<String> {
    let (requests, summary) = try_read(text, Some(format)).unwrap();
    assert_eq!(summary.first_bad, [], "{summary:?}");
    requests
}

/// The message about the only line of a log, which is bad.
#[track_caller]
fn problem(line: impl AsRef<[u8]>, format: &str) -> String {
    match try_read(line, Some(format)).unwrap_err() {
        LogError::TooManyBadLines { first, .. } => first.message,
        error => panic!("{error}"),
    }
}
