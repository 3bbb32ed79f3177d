//! From a log to a [`Trace`]: the requests that count, and their keys.

use std::{borrow::Cow, time::Duration};

use stockade_logs::{LogError, LogReader, LogSummary, LoggedKey, LoggedRequest, Operation};
use stockade_model::units::format_count;
use stockade_record::histogram::Histogram;

use crate::{
    diagnosis::UrlSample,
    exchange::{Exchange, ExchangeCounts},
    trace::{NewRequest, Trace, TraceBuilder, hash_of},
    traffic::{Traffic, TrafficCounter},
};

/// Requests that are kept in memory at most: 16 bytes each, 16 more if the log has lifetimes, and for each key 17 to 34. Of a longer log a
/// sample is kept.
pub const REQUESTS_MAX: usize = 14_000_000;
/// The least number of keys of that sample.
const KEYS_MIN: usize = 65_536;
/// Requests without those of bots, which are kept as a second trace: their number at most, and the least number of their keys.
const REQUESTS_WITHOUT_BOTS_MAX: usize = 250_000;
const KEYS_WITHOUT_BOTS_MIN: usize = 16_384;
/// After this number of requests without a user agent the log is taken for one without them.
const REQUESTS_WITHOUT_AGENT_MAX: u64 = 1_000;

/// A trace without times gets this one between two requests.
const STEP_NS: u64 = 1_000_000;

/// Selects the requests of a log that count, and defines their keys.
#[derive(Clone, Debug, Default)]
pub struct KeyRules {
    /// Statuses whose requests count; empty: all. Requests without a status always do.
    pub statuses: Vec<u16>,
    /// The host is part of the key.
    pub by_host: bool,
    /// Parameters of the query that are not part of the key.
    pub dropped_parameters: DroppedParameters,
}

/// Parameters that are not part of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DroppedParameters {
    /// The whole query is part of the key.
    #[default]
    None,
    /// No part of the query is.
    All,
    /// All but the parameters with these names are; `utm_*` stands for each that begins like it.
    Named(Vec<String>),
}

/// The requests of a log, and figures of all its lines.
#[derive(Debug)]
pub struct LogContent {
    /// The requests that count.
    pub trace: Trace,
    /// Those of them that a cache does not store, and why.
    pub exchanges: ExchangeCounts,
    /// The requests that do not count, repeats included.
    pub left_out: u64,
    /// The writes of a trace among them.
    pub writes_left_out: u64,
    /// The lines.
    pub summary: LogSummary,
    /// The log says when requests came.
    pub has_times: bool,
    /// The median of the times that the server took, where the log has them.
    pub service_time: Option<Duration>,
    /// All requests, those that do not count included.
    pub traffic: Traffic,
    /// The requests that count and are not by bots, or a sample of them; `None`: no user agent is logged, or the keys are too few
    /// for a sample.
    pub without_bots: Option<Trace>,
    /// The host is part of the keys.
    pub is_by_host: bool,
    pub(crate) urls: UrlSample,
}

/// Why a log cannot be planned for. The message names the remedy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// It does not fit into memory, and has too few keys for a sample.
    #[error("the log has more than {} requests for fewer than 2,000 keys: plan for a part of it, such as a day", format_count(*.requests))]
    TooManyRequests {
        /// The requests that were read.
        requests: u64,
    },
}

/// Reads all requests of a log.
pub fn read(reader: LogReader<'_>, rules: &KeyRules, requests_max: usize) -> Result<LogContent, ReadError> {
    let mut builder = TraceBuilder::new(requests_max, KEYS_MIN);
    let mut without_bots =
        TraceBuilder::new(requests_max.min(REQUESTS_WITHOUT_BOTS_MAX), KEYS_WITHOUT_BOTS_MIN);
    let (mut traffic, mut urls) = (TrafficCounter::default(), UrlSample::default());
    let (mut left_out, mut writes_left_out) = (0, 0);
    let mut exchanges = ExchangeCounts::default();
    let mut service_times = Histogram::new();
    let mut key = Vec::new();
    let (mut count, mut last_ns, mut timeless) = (0_u64, None, 0_u64);
    let summary = reader.try_for_each(|request| {
        let repeats = u64::from(request.repeats);
        let is_bot = traffic.add(&request);
        let is_kept_without_bots = !is_bot && (traffic.has_agents() || count < REQUESTS_WITHOUT_AGENT_MAX);
        let counted = Exchange::of(&request).filter(|_| rules.counts(request.status));
        let Some(exchange) = counted else {
            left_out += repeats;
            let is_trace = !matches!(request.key, LoggedKey::Url { .. });
            let is_write = is_trace && request.operation != Operation::Read;
            writes_left_out += if is_write { repeats } else { 0 };
            return Ok(());
        };
        exchanges.add(exchange, repeats);
        rules.write_key(&request, &mut key);
        let hash = hash_of(&key);
        if let Some(time) = request.service_time {
            service_times.record(time);
        }
        // A 304 has no body, and a 206 has a part of it.
        let bytes = request.bytes.filter(|_| !matches!(request.status, Some(206 | 304)));
        // Nor has a response of HEAD.
        let bytes =
            if matches!(request.key, LoggedKey::Url { method: "HEAD", .. }) { Some(0) } else { bytes };
        let ttl = request.ttl.filter(|_| exchange.is_storable());
        let ttl_ns = ttl.map(|ttl| u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX));
        let host = match request.key {
            LoggedKey::Url { host, .. } => Some(host.unwrap_or_default()),
            _ => None,
        };
        for _ in 0..repeats {
            // A line without a time follows the one before it.
            let at_ns = request.at_ns.or(last_ns).unwrap_or(count * STEP_NS);
            let counted = NewRequest { at_ns, key: &key, bytes, exchange, ttl_ns };
            builder.push_hashed(&counted, hash);
            urls.add(&counted, hash, host);
            if is_kept_without_bots {
                without_bots.push_hashed(&counted, hash);
            }
            count += 1;
            if builder.is_full() {
                return Err(ReadError::TooManyRequests { requests: count });
            }
        }
        last_ns = request.at_ns.or(last_ns);
        timeless += u64::from(request.at_ns.is_none());
        Ok(())
    })?;
    let service_time = service_times.quantile(0.5);
    let has_times = timeless == 0 || last_ns.is_some();
    let without_bots = Some(without_bots).filter(|builder| traffic.has_agents() && !builder.is_full());
    Ok(LogContent {
        trace: builder.finish(),
        exchanges,
        left_out,
        writes_left_out,
        summary,
        service_time,
        has_times,
        traffic: traffic.finish(),
        without_bots: without_bots.map(TraceBuilder::finish),
        is_by_host: rules.by_host,
        urls,
    })
}

impl KeyRules {
    fn counts(&self, status: Option<u16>) -> bool {
        self.statuses.is_empty() || status.is_none_or(|status| self.statuses.contains(&status))
    }

    /// Writes the key of a request.
    fn write_key(&self, request: &LoggedRequest<'_>, key: &mut Vec<u8>) {
        key.clear();
        match request.key {
            LoggedKey::Text(text) => key.extend_from_slice(text),
            LoggedKey::Number(number) => key.extend_from_slice(&number.to_le_bytes()),
            LoggedKey::Url { host, url, .. } => {
                if let Some(host) = host.filter(|_| self.by_host) {
                    key.extend_from_slice(host.as_bytes());
                    key.push(b' ');
                }
                key.extend_from_slice(self.dropped_parameters.applied(url).as_bytes());
            }
        }
    }
}

impl DroppedParameters {
    /// A URL without them.
    pub(crate) fn applied<'a>(&self, url: &'a str) -> Cow<'a, str> {
        if *self == Self::None {
            return url.into();
        }
        let Some((path, query)) = url.split_once('?') else { return url.into() };
        match self {
            Self::None => url.into(),
            Self::All => path.into(),
            Self::Named(names) => {
                let is_kept = |parameter: &&str| {
                    let name = parameter.split_once('=').map_or(*parameter, |(name, _)| name);
                    !names.iter().any(|dropped| match dropped.strip_suffix('*') {
                        Some(prefix) => name.starts_with(prefix),
                        None => dropped == name,
                    })
                };
                let kept: Vec<&str> = query.split('&').filter(is_kept).collect();
                if kept.is_empty() { path.into() } else { format!("{path}?{}", kept.join("&")).into() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_without_hosts_has_the_same_keys_by_host() {
        let keys = |by_host, host| {
            let rules = KeyRules { by_host, ..KeyRules::default() };
            let mut key = Vec::new();
            let url = LoggedKey::Url { method: "GET", host, url: "/a?b" };
            rules.write_key(&LoggedRequest::read(url), &mut key);
            String::from_utf8(key).expect("text")
        };
        assert_eq!(keys(true, None), keys(false, None));
        assert_eq!(
            (keys(true, Some("a.example")), keys(false, Some("a.example"))),
            ("a.example /a?b".into(), "/a?b".into())
        );
    }

    #[test]
    fn parameters_are_dropped_by_name() {
        let named =
            |names: &[&str]| DroppedParameters::Named(names.iter().map(|name| (*name).to_owned()).collect());
        for (dropped, url, key) in [
            (DroppedParameters::None, "/a?b=1&c", "/a?b=1&c"),
            (DroppedParameters::All, "/a?b=1&c", "/a"),
            (named(&["b"]), "/a?b=1&c&b", "/a?c"),
            (named(&["b", "c"]), "/a?b=1&c", "/a"),
            (named(&["b"]), "/a", "/a"),
            (named(&["B"]), "/a?b=1", "/a?b=1"),
            (named(&["utm_*"]), "/a?utm_id=1&b&utm_=2&utm", "/a?b&utm"),
            (named(&["*"]), "/a?b=1&c", "/a"),
        ] {
            assert_eq!(dropped.applied(url), key, "{dropped:?}");
        }
    }
}
