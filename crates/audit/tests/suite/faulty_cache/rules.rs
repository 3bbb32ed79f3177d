//! The rules of RFC 9110 and RFC 9111 that depend on fields alone.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::fault::{Fault, Faults};

const DAY: Duration = Duration::from_hours(24);
/// Statuses with a lifetime if the origin states none, as in RFC 9110, section 15.1. Server errors need an explicit one.
const HEURISTIC: [u16; 10] = [200, 203, 204, 300, 301, 308, 404, 405, 410, 414];

const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Fields of clients that an origin might write into its page, although the key lacks them.
const UNKEYED: [&str; 5] =
    ["forwarded", "x-host", "x-http-method-override", "x-original-url", "x-rewrite-url"];

/// All lines of a field as one value.
pub fn combined(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let lines: Vec<_> =
        headers.get_all(name).iter().filter_map(|line| line.to_str().ok()).map(str::trim).collect();
    headers.contains_key(name).then(|| lines.join(", "))
}

/// The parts between the commas that are not in quotes.
fn parts(list: &str) -> Vec<&str> {
    let mut in_quotes = false;
    let is_comma = |c: char| {
        in_quotes ^= c == '"';
        c == ',' && !in_quotes
    };
    list.split(is_comma).map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// Removes the fields that are meant for the next hop alone.
pub fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named = combined(headers, &header::CONNECTION).unwrap_or_default().to_ascii_lowercase();
    for name in parts(&named).into_iter().chain(HOP_BY_HOP) {
        headers.remove(name);
    }
}

pub fn remove_if(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
    let names: Vec<_> = headers.keys().filter(|name| is_removed(name)).cloned().collect();
    names.iter().for_each(|name| _ = headers.remove(name));
}

/// Removes fields that could change a page which other clients get.
pub fn remove_unkeyed(headers: &mut HeaderMap, faults: &Faults) {
    let is_kept = |name: &str| name == "x-forwarded-host" && faults.has(Fault::UnkeyedField);
    let is_unkeyed = |name: &str| name.starts_with("x-forwarded-") || UNKEYED.contains(&name);
    remove_if(headers, |name| is_unkeyed(name.as_str()) && !is_kept(name.as_str()));
}

/// The directives of `Cache-Control`, with names in lower case.
pub struct Directives(Vec<(String, Option<String>)>);

impl Directives {
    pub fn of(headers: &HeaderMap, faults: &Faults) -> Self {
        let text = if faults.has(Fault::ReadsOneCacheControlLine) {
            headers.get(header::CACHE_CONTROL).and_then(|line| line.to_str().ok()).map(str::to_owned)
        } else {
            combined(headers, &header::CACHE_CONTROL)
        };
        let directive = |part: &str| match part.split_once('=') {
            Some((name, value)) => (name.trim().to_ascii_lowercase(), Some(value.trim().replace('"', ""))),
            None => (part.to_ascii_lowercase(), None),
        };
        Self(parts(&text.unwrap_or_default()).into_iter().map(directive).collect())
    }

    /// `private="field"` counts as `private`.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(directive, _)| directive == name)
    }

    /// The shortest time that the directive states. An invalid one is 0.
    fn seconds(&self, name: &str) -> Option<Duration> {
        let values = self.0.iter().filter(|(directive, _)| directive == name).map(|(_, value)| value);
        // RFC 9111, section 1.2.2: larger numbers are 2^31.
        let seconds = |text: &String| match text.parse::<u64>() {
            Ok(seconds) => seconds.min(1 << 31),
            Err(_) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => 1 << 31,
            Err(_) => 0,
        };
        values.map(|value| Duration::from_secs(value.as_ref().map_or(0, seconds))).min()
    }
}

fn date(headers: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok()
}

/// When a response arrived, and how long it may be used.
#[derive(Clone, Copy)]
pub struct Freshness {
    received: SystemTime,
    initial_age: Duration,
    lifetime: Duration,
    stale_while_revalidate: Duration,
    stale_if_error: Duration,
}

impl Freshness {
    pub fn age(&self, now: SystemTime) -> Duration {
        self.initial_age + now.duration_since(self.received).unwrap_or_default()
    }

    pub fn is_fresh(&self, now: SystemTime) -> bool {
        self.age(now) < self.lifetime
    }

    pub fn may_serve_during_refresh(&self, now: SystemTime) -> bool {
        self.age(now) < self.lifetime + self.stale_while_revalidate
    }

    pub fn may_hide_errors(&self, now: SystemTime) -> bool {
        self.age(now) < self.lifetime + self.stale_if_error
    }
}

/// The lifetime that the response states.
fn explicit_lifetime(headers: &HeaderMap, directives: &Directives, received: SystemTime) -> Option<Duration> {
    let expires = || {
        headers.get(header::EXPIRES)?;
        // An invalid date, as `0`, has passed.
        let end = date(headers, header::EXPIRES).unwrap_or(SystemTime::UNIX_EPOCH);
        Some(end.duration_since(date(headers, header::DATE).unwrap_or(received)).unwrap_or_default())
    };
    directives.seconds("s-maxage").or_else(|| directives.seconds("max-age")).or_else(expires)
}

/// A tenth of the time since the last change.
fn heuristic_lifetime(headers: &HeaderMap, received: SystemTime) -> Option<Duration> {
    let changed = date(headers, header::LAST_MODIFIED)?;
    let sent = date(headers, header::DATE).unwrap_or(received);
    Some((sent.duration_since(changed).unwrap_or_default() / 10).min(DAY))
}

/// If a response may be stored and how long it may be used. `delay` is the time from the request to the response.
pub fn classify(
    faults: &Faults,
    request: &HeaderMap,
    (status, headers): (StatusCode, &HeaderMap),
    (received, delay): (SystemTime, Duration),
) -> (bool, Freshness) {
    let directives = Directives::of(headers, faults);
    let mut explicit = explicit_lifetime(headers, &directives, received);
    let mut is_forbidden = directives.has("no-store") || directives.has("private");
    if is_forbidden && faults.has(Fault::IgnoresNoStore) {
        is_forbidden = false;
        explicit = explicit.or(Some(Duration::from_secs(10)));
    }
    if [500, 503].contains(&status.as_u16()) && explicit.is_none() && faults.has(Fault::StoresErrors) {
        explicit = Some(Duration::from_mins(1));
    }
    let is_heuristic = HEURISTIC.contains(&status.as_u16());
    let heuristic = || heuristic_lifetime(headers, received).filter(|_| is_heuristic);
    if explicit.or_else(heuristic).is_none() && is_heuristic && faults.has(Fault::DefaultLifetime) {
        explicit = Some(Duration::from_mins(1));
    }
    let is_for_one_user = request.contains_key(header::AUTHORIZATION)
        && !["public", "s-maxage", "must-revalidate"].iter().any(|name| directives.has(name))
        && !faults.has(Fault::StoresAuthorized);
    let is_partial = [StatusCode::PARTIAL_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
    let varies_by_all = combined(headers, &header::VARY).is_some_and(|fields| parts(&fields).contains(&"*"));
    let may_store = !is_forbidden
        && !is_for_one_user
        && !is_partial
        && !varies_by_all
        && (is_heuristic || explicit.is_some());

    let mut lifetime = explicit.or_else(heuristic).unwrap_or_default();
    if !lifetime.is_zero() && faults.has(Fault::ServesPastLimit) {
        lifetime += Duration::from_secs(10);
    }
    if directives.has("no-cache") {
        lifetime = Duration::ZERO;
    }
    // `s-maxage` alone also forbids stale answers; a stated `stale-…` next to it permits them, as in CDNs.
    let forbids_stale = directives.has("no-cache")
        || (directives.has("must-revalidate") || directives.has("proxy-revalidate"))
            && !faults.has(Fault::StaleDespiteMustRevalidate);
    let stale = |name| directives.seconds(name).filter(|_| !forbids_stale).unwrap_or_default();
    let freshness = Freshness {
        received,
        initial_age: initial_age(faults, headers, received, delay),
        lifetime,
        stale_while_revalidate: stale("stale-while-revalidate"),
        stale_if_error: stale("stale-if-error"),
    };
    let can_be_revalidated =
        headers.contains_key(header::ETAG) || headers.contains_key(header::LAST_MODIFIED);
    let is_useful = can_be_revalidated
        || freshness.may_serve_during_refresh(received)
        || freshness.may_hide_errors(received);
    (may_store && is_useful, freshness)
}

/// RFC 9111, section 4.2.3. The delay counts behind another cache, which states an `Age`.
fn initial_age(faults: &Faults, headers: &HeaderMap, received: SystemTime, delay: Duration) -> Duration {
    if faults.has(Fault::ForgetsOriginAge) {
        return Duration::ZERO;
    }
    let stated = headers.get(header::AGE).and_then(|age| age.to_str().ok()?.trim().parse().ok());
    let stated = stated.map_or(Duration::ZERO, |seconds| Duration::from_secs(seconds).min(DAY * 365) + delay);
    let sent = date(headers, header::DATE).unwrap_or(received);
    // `Date` has whole seconds.
    let apparent = received.duration_since(sent).unwrap_or_default().as_secs();
    stated.max(Duration::from_secs(apparent))
}

/// The names in `Vary`.
pub fn varying_fields(headers: &HeaderMap, faults: &Faults) -> Vec<HeaderName> {
    if faults.has(Fault::IgnoresVary) {
        return Vec::new();
    }
    let fields = combined(headers, &header::VARY).unwrap_or_default();
    parts(&fields).into_iter().filter_map(|name| name.parse().ok()).collect()
}

fn opaque(tag: &str) -> &str {
    tag.trim_start_matches("W/")
}

/// True if the client has this page: its answer is a 304.
pub fn client_has(request: &HeaderMap, page: &HeaderMap) -> bool {
    if let Some(tags) = combined(request, &header::IF_NONE_MATCH) {
        let own = combined(page, &header::ETAG);
        return parts(&tags)
            .into_iter()
            .any(|tag| tag == "*" || own.as_deref().is_some_and(|own| opaque(own) == opaque(tag)));
    }
    let seen = date(request, header::IF_MODIFIED_SINCE);
    let changed = date(page, header::LAST_MODIFIED).or_else(|| date(page, header::DATE));
    seen.zip(changed).is_some_and(|(seen, changed)| changed <= seen)
}

/// True if the part that the client has is of this page, or the client has no part.
pub fn range_applies(request: &HeaderMap, page: &HeaderMap) -> bool {
    let Some(part_of) = request.get(header::IF_RANGE) else { return true };
    let is_weak = part_of.as_bytes().starts_with(b"W/");
    !is_weak && [header::ETAG, header::LAST_MODIFIED].iter().any(|name| page.get(name) == Some(part_of))
}

/// The first byte and the byte after the last one. `None` for other units, several ranges and invalid ones: the answer is the
/// whole page. An empty range cannot be satisfied.
pub fn range(request: &HeaderMap, length: usize) -> Option<(usize, usize)> {
    let text = request.get(header::RANGE)?.to_str().ok()?.strip_prefix("bytes=")?;
    let (first, last) = text.trim().split_once('-')?;
    if first.is_empty() {
        return last.parse().ok().map(|suffix: usize| (length - suffix.min(length), length));
    }
    let first: usize = first.parse().ok()?;
    let last = if last.is_empty() { usize::MAX } else { last.parse().ok()? };
    let range = if first < length { (first, last.saturating_add(1).min(length)) } else { (0, 0) };
    (first <= last).then_some(range)
}

/// Fields that a 304 neither has nor changes.
pub fn is_of_body(name: &HeaderName) -> bool {
    ["content-encoding", "content-length", "content-range", "content-type"].contains(&name.as_str())
}

/// The fields of a stored page after a 304: RFC 9111, section 3.2.
pub fn updated_fields(faults: &Faults, old: &HeaderMap, new: &HeaderMap) -> HeaderMap {
    let mut fields = old.clone();
    fields.remove(header::AGE);
    if faults.has(Fault::MergesNotModifiedWrongly) {
        fields.remove(header::DATE);
        return fields;
    }
    for name in new.keys().filter(|name| !is_of_body(name)) {
        let values: Vec<HeaderValue> = new.get_all(name).iter().cloned().collect();
        fields.remove(name);
        values.into_iter().for_each(|value| _ = fields.append(name, value));
    }
    fields
}

/// A 304 with another strong tag is about another page: RFC 9111, section 4.3.4.
pub fn is_about(not_modified: &HeaderMap, page: &HeaderMap) -> bool {
    let new = not_modified.get(header::ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/"));
    new.is_none() || new == page.get(header::ETAG)
}
