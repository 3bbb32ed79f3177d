//! Compares a response with the resource. Pure.

use hyper::{
    HeaderMap,
    header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderName},
};

use super::{
    content::{GENERATED, Representation, Resource, parse_etag},
    incident::{Incident, IncidentKind},
    traffic::Action,
};

/// Clocks of one machine, read by two processes.
const CLOCK_TOLERANCE_MS: u64 = 2_000;

/// The head of a response and its circumstances.
pub struct Received<'a> {
    pub status: u16,
    pub headers: &'a HeaderMap,
    /// When the request was sent, in ms since the epoch.
    pub sent_ms: u64,
    /// When the head was there.
    pub head_ms: u64,
    pub seed: u64,
    /// The `ETag` of the request.
    pub if_none_match: Option<&'a str>,
    /// The range of the request.
    pub range: Option<(u64, u64)>,
    /// The start of the last purge of this resource that had ended when the request was sent.
    pub purged_ms: Option<u64>,
}

/// The bytes that have to follow a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedBody {
    pub one: Representation,
    pub first: u64,
    pub bytes: u64,
}

/// How the proxy answered: the `detail` of `Cache-Status`.
#[must_use]
pub fn cache_detail(headers: &HeaderMap) -> &str {
    let value = headers.get("cache-status").and_then(|value| value.to_str().ok()).unwrap_or_default();
    value
        .rsplit_once("detail=")
        .map_or("none", |(_, detail)| detail.split([';', ',']).next().unwrap_or("none"))
}

/// The body that belongs to a head, `None` if it is the proxy's own error, or what is wrong with the head.
pub fn expected_body(
    resource: &Resource,
    action: Action,
    received: &Received<'_>,
) -> Result<Option<ExpectedBody>, Incident> {
    let Received { status, headers, .. } = *received;
    let wrong = |detail: String| Incident::new(IncidentKind::WrongBody, detail);
    let Some(etag) = text(headers, &ETAG) else {
        // Not from the origin. The breaker of the failing route is open, or a waiting request got the leader's error.
        if matches!(status, 500 | 503) && resource.status() >= 500 {
            return Ok(None);
        }
        return Err(Incident::new(IncidentKind::Status(status), format!("without ETag, {headers:?}")));
    };
    let (version, hash) = parse_etag(etag).ok_or_else(|| wrong(format!("ETag {etag}")))?;
    let one = resource.representation(received.seed, version);
    if one.body.0 != hash {
        return Err(wrong(format!("ETag {etag} belongs to another resource; {} was expected", one.etag())));
    }
    if version > resource.version_at(received.head_ms + CLOCK_TOLERANCE_MS) {
        return Err(wrong(format!("version {version} is from the future")));
    }
    check_age(resource, received)?;
    if status == 304 {
        return if received.if_none_match == Some(etag) {
            Ok(Some(ExpectedBody { one, first: 0, bytes: 0 }))
        } else {
            Err(wrong(format!("304 with ETag {etag} for {:?}", received.if_none_match)))
        };
    }
    if status == 206 {
        return partial(one, received).map(Some);
    }
    if status == 416 && received.range.is_some_and(|(first, _)| first >= one.body_bytes) {
        return Ok(Some(ExpectedBody { one, first: 0, bytes: 0 }));
    }
    if status != resource.status() {
        return Err(Incident::new(IncidentKind::Status(status), format!("{headers:?}")));
    }
    if let Some(length) = text(headers, &CONTENT_LENGTH)
        && length != one.body_bytes.to_string()
    {
        let kind = if action == Action::Head { IncidentKind::WrongHead } else { IncidentKind::WrongBody };
        return Err(Incident::new(kind, format!("length {length} instead of {}", one.body_bytes)));
    }
    let bytes = if action == Action::Head { 0 } else { one.body_bytes };
    Ok(Some(ExpectedBody { one, first: 0, bytes }))
}

fn partial(one: Representation, received: &Received<'_>) -> Result<ExpectedBody, Incident> {
    let wrong = |detail: String| Err(Incident::new(IncidentKind::WrongBody, detail));
    let Some((first, last)) = received.range else { return wrong("206 without a range".to_owned()) };
    let found = text(received.headers, &CONTENT_RANGE).unwrap_or_default();
    if first >= one.body_bytes {
        return wrong(format!("{found:?}: the range starts behind the end"));
    }
    let last = last.min(one.body_bytes - 1);
    let expected = format!("bytes {first}-{last}/{}", one.body_bytes);
    if found == expected {
        Ok(ExpectedBody { one, first, bytes: last - first + 1 })
    } else {
        wrong(format!("Content-Range {found:?} instead of {expected:?}"))
    }
}

/// A hit has to be fresh, a stale response within its period, and both newer than the last purge.
fn check_age(resource: &Resource, received: &Received<'_>) -> Result<(), Incident> {
    let detail = cache_detail(received.headers);
    let stored = matches!(detail, "hit" | "negative" | "stale");
    let generated =
        text(received.headers, &HeaderName::from_static(GENERATED)).and_then(|ms| ms.parse::<u64>().ok());
    let Some(generated) = generated else {
        return Err(Incident::new(IncidentKind::WrongBody, format!("no {GENERATED}")));
    };
    if !stored {
        return Ok(());
    }
    let Some(fresh) = resource.class.fresh_seconds else {
        return Err(Incident::new(
            IncidentKind::TooStale,
            format!("{detail} of a response that must not be stored"),
        ));
    };
    let seconds = if detail == "stale" { fresh + resource.class.stale_seconds } else { fresh };
    let age_ms = received.sent_ms.saturating_sub(generated);
    // A late head is fresh from its arrival on.
    let tolerance_ms = CLOCK_TOLERANCE_MS + 2_000;
    if age_ms > seconds * 1_000 + tolerance_ms {
        return Err(Incident::new(
            IncidentKind::TooStale,
            format!("{detail}, {age_ms} ms old of {seconds} s"),
        ));
    }
    match received.purged_ms {
        Some(purged) if generated < purged => Err(Incident::new(
            IncidentKind::Purged,
            format!("{detail}, generated {} ms before the purge", purged - generated),
        )),
        _ => Ok(()),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 1;
    const NOW: u64 = 1_800_000_000_000;

    fn resource(path: &str) -> Resource {
        Resource::parse(path, 0).expect("a known class")
    }

    fn check(
        path: &str,
        status: u16,
        more: &[(&'static str, String)],
        change: fn(&mut Received<'_>),
    ) -> Result<ExpectedBody, IncidentKind> {
        let resource = resource(path);
        let one = resource.representation(SEED, resource.version_at(NOW));
        let mut headers = HeaderMap::new();
        headers.insert(ETAG, one.etag().parse().expect("a header value"));
        headers.insert(GENERATED, (NOW - 1_000).into());
        for (name, value) in more {
            headers.insert(*name, value.parse().expect("a header value"));
        }
        let mut received = Received {
            status,
            headers: &headers,
            sent_ms: NOW,
            head_ms: NOW,
            seed: SEED,
            if_none_match: None,
            range: None,
            purged_ms: None,
        };
        change(&mut received);
        let body = expected_body(&resource, Action::Get, &received).map_err(|incident| incident.kind)?;
        Ok(body.expect("a response of the origin"))
    }

    fn hit(detail: &str) -> (&'static str, String) {
        ("cache-status", format!("stockade; hit; ttl=4; detail={detail}"))
    }

    #[test]
    fn a_response_has_the_body_that_its_etag_names() {
        let body = check("/plain/1", 200, &[], |_| ()).expect("a good response");
        assert_eq!((body.first, body.bytes), (0, body.one.body_bytes));
        let other = resource("/plain/2").representation(SEED, 0).etag();
        assert_eq!(check("/plain/1", 200, &[("etag", other)], |_| ()), Err(IncidentKind::WrongBody));
        let length = ("content-length", "1".to_owned());
        assert_eq!(check("/plain/1", 200, &[length], |_| ()), Err(IncidentKind::WrongBody));
        assert_eq!(check("/plain/1", 404, &[], |_| ()), Err(IncidentKind::Status(404)));
        assert!(check("/missing/1", 404, &[], |_| ()).is_ok());
        let future = check("/plain/1", 200, &[], |received| received.head_ms -= 3_600_000);
        assert_eq!(future, Err(IncidentKind::WrongBody));
    }

    #[test]
    fn stored_responses_have_to_be_fresh_and_newer_than_a_purge() {
        let age = |seconds: u64| ("x-generated", (NOW - seconds * 1_000).to_string());
        assert!(check("/plain/1", 200, &[hit("hit"), age(29)], |_| ()).is_ok());
        assert_eq!(check("/plain/1", 200, &[hit("hit"), age(36)], |_| ()), Err(IncidentKind::TooStale));
        assert!(check("/plain/1", 200, &[hit("stale"), age(36)], |_| ()).is_ok());
        assert_eq!(check("/plain/1", 200, &[hit("stale"), age(50)], |_| ()), Err(IncidentKind::TooStale));
        assert!(check("/plain/1", 200, &[hit("fallback"), age(500)], |_| ()).is_ok());
        assert_eq!(check("/no-store/1", 200, &[hit("hit")], |_| ()), Err(IncidentKind::TooStale));
        let purged = |received: &mut Received<'_>| received.purged_ms = Some(NOW - 500);
        assert_eq!(check("/plain/1", 200, &[hit("hit")], purged), Err(IncidentKind::Purged));
        assert!(check("/plain/1", 200, &[hit("hit"), age(0)], purged).is_ok());
        assert!(check("/plain/1", 200, &[hit("miss")], purged).is_ok());
    }

    #[test]
    fn ranges_and_conditions_are_those_of_the_request() {
        let resource = resource("/plain/1");
        let one = resource.representation(SEED, resource.version_at(NOW));
        let range = ("content-range", format!("bytes 10-19/{}", one.body_bytes));
        let asked = |received: &mut Received<'_>| received.range = Some((10, 19));
        let body = check("/plain/1", 206, std::slice::from_ref(&range), asked).expect("the range");
        assert_eq!((body.first, body.bytes), (10, 10));
        let other = |received: &mut Received<'_>| received.range = Some((10, 20));
        assert_eq!(check("/plain/1", 206, &[range], other), Err(IncidentKind::WrongBody));
        assert_eq!(check("/plain/1", 206, &[], |_| ()), Err(IncidentKind::WrongBody));
        assert_eq!(check("/plain/1", 304, &[], |_| ()), Err(IncidentKind::WrongBody));
    }
}
