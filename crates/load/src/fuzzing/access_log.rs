//! Access logs.

#![allow(clippy::missing_panics_doc, reason = "a property that does not hold panics")]

use std::io::{self, Read};

use http::header::HOST;
use stockade_model::seed::Seed;

use crate::{
    targets::log::{AccessLog, HostHeader, LogError, LogReader, ReplayError, SkipReason},
    traffic::RequestOrder,
    url::BaseUrl,
};

/// A log in any format, told by its lines.
///
/// - The result does not depend on how the log is split into reads.
/// - No request is counted twice; due times ascend from zero.
/// - Every request has one of the templates, which are distinct, below the base URL.
/// - An error has a message of one line.
pub fn check(data: &[u8]) {
    for base in ["http://localhost:8080", "https://localhost/v2"] {
        let base: BaseUrl = base.parse().expect("a URL");
        for hosts in [HostHeader::OfUrl, HostHeader::Logged] {
            let read = read(data, &base, hosts);
            let slowly = self::read(OneByte(data), &base, hosts);
            // The lines before the damage of a compressed log are read or not, depending on the reads.
            let is_damaged =
                |result: &Result<_, _>| matches!(result, Err(ReplayError::Log(LogError::Read { .. })));
            let differs_by_damage =
                is_damaged(&read) && slowly.is_err() || is_damaged(&slowly) && read.is_err();
            assert!(differs_by_damage || format!("{read:?}") == format!("{slowly:?}"));
            match read {
                Ok(log) => check_log(&log, &base),
                Err(error) => {
                    let message = error.to_string();
                    assert!(!message.contains(char::is_control), "{message:?}");
                }
            }
        }
    }
}

fn read(from: impl Read, base: &BaseUrl, hosts: HostHeader) -> Result<AccessLog, ReplayError> {
    AccessLog::read(LogReader::from_reader("access.log", from, None)?, base, hosts)
}

fn check_log(log: &AccessLog, base: &BaseUrl) {
    let skipped: u64 = SkipReason::ALL.into_iter().map(|reason| log.skipped().count(reason)).sum();
    assert_eq!(skipped, log.skipped().total());
    // Lines of an ARC trace are many requests.
    assert!(log.requests() > 0 && log.lines() > 0 && log.without_host() < log.requests() as u64 + skipped);
    let due = log.due_times();
    assert!(due.first().is_some_and(std::time::Duration::is_zero) && due.is_sorted());
    assert_eq!((due.len(), due.last()), (log.requests(), Some(&log.duration())));
    let RequestOrder::Listed(order) = log.order() else { panic!("a log lists its requests") };
    assert!(order.iter().all(|index| (*index as usize) < log.templates().len()));
    let mut urls = std::collections::BTreeSet::new();
    for template in log.templates() {
        assert!(
            urls.insert((
                template.method.to_string(),
                template.headers.get(HOST).cloned().map(|host| host.as_bytes().to_vec()),
                template.url.to_string()
            )),
            "{template:?} is there twice"
        );
        let path = template.url.path();
        assert!(path.strip_prefix(base.prefix()).is_some_and(|path| path.starts_with('/')), "{path}");
    }
    let fast = log.clone().at_speed(2.0).expect("a speed");
    assert!(fast.due_times().is_sorted() && fast.duration() <= log.duration());
    let half = log.clone().with_share(0.5, Seed(1)).expect("a share");
    assert!(half.requests() <= log.requests());
}

/// Reads a byte at a time.
struct OneByte<'a>(&'a [u8]);

impl Read for OneByte<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(1);
        self.0.read(&mut buffer[..length])
    }
}
