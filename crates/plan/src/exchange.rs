//! The effect of a request and its response on the cache: which are answered, and which are loads whatever the cache.
//!
//! The rules are those of the proxy with the block that a plan prints, for a response that is loaded:
//!
//! | request, response | effect |
//! |---|---|
//! | GET, `Cache-Control` with `no-store`, `no-cache` or `private`, or 200 with a lifetime of 0 | not stored; a marker of that is |
//! | GET, 200, 203, 204, 301 | stored for `route.ttl`, or as the origin declares |
//! | GET, 206, 304 | as the whole response, which the proxy loads |
//! | GET, 404, 410 | stored for `negative_ttl`, or as the origin declares |
//! | GET, another status | stored as the origin declares, otherwise not |
//! | HEAD | answered by what is stored and fresh, which does not count for the eviction policy; otherwise it goes to the origin |
//! | HEAD, 200, which has gone to the origin | makes a stored 200 that is stale, within `swr`, fresh again (RFC 9111, 4.3.5) |
//! | POST and other unsafe methods | goes to the origin; with success the stored response is not used any more (RFC 9111, 4.4) |
//! | OPTIONS and other safe methods | goes to the origin |
//!
//! Of a client that went away (499 of nginx) the response is not known, so that it counts as one of 200.

use stockade_logs::{LoggedKey, LoggedRequest, Operation};

/// The effect of a request and its response on the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exchange {
    /// Stored for the ttl of the plan.
    Planned,
    /// 404 or 410 without a lifetime: stored for the ttl of the plan, as `negative_ttl`.
    NotFound,
    /// Stored for the lifetime that the log has, whatever the ttl of the plan.
    Declared,
    /// `no-store`, `no-cache` or `private`: not stored.
    NotShareable,
    /// A status that is stored only with a lifetime, and has none.
    NoLifetime,
    /// HEAD with 200: answered by a fresh response; otherwise it goes to the origin, and freshens what is stored.
    Head,
    /// HEAD with another response: answered by a fresh response, without another effect.
    HeadOther,
    /// Goes to the origin, and ends the use of what is stored.
    Write,
    /// Goes to the origin, without an effect on what is stored.
    Passed,
}

impl Exchange {
    /// All of them, by number.
    pub(crate) const ALL: [Self; 9] = [
        Self::Planned,
        Self::NotFound,
        Self::Declared,
        Self::NotShareable,
        Self::NoLifetime,
        Self::Head,
        Self::HeadOther,
        Self::Write,
        Self::Passed,
    ];

    /// That of a number below 9.
    pub(crate) fn from_number(number: u8) -> Self {
        Self::ALL[usize::from(number)]
    }

    /// True if the answer may come from the cache.
    #[must_use]
    pub fn is_lookup(self) -> bool {
        !matches!(self, Self::Write | Self::Passed)
    }

    /// True if the response may be stored.
    #[must_use]
    pub fn is_storable(self) -> bool {
        matches!(self, Self::Planned | Self::NotFound | Self::Declared)
    }

    /// True for HEAD.
    #[must_use]
    pub fn is_head(self) -> bool {
        matches!(self, Self::Head | Self::HeadOther)
    }

    /// True if each request is a load, unless a fresh response is there from before: nothing stores its response, and it is not HEAD.
    #[must_use]
    pub fn is_never_stored(self) -> bool {
        !self.is_storable() && !self.is_head()
    }

    /// The effect of a logged request; `None`: it is not one for a cache in front of an origin, such as a write of a trace.
    pub(crate) fn of(request: &LoggedRequest<'_>) -> Option<Self> {
        let LoggedKey::Url { method, .. } = request.key else {
            return (request.operation == Operation::Read).then_some(Self::Planned);
        };
        match method {
            "GET" | "HEAD" => {}
            // To a proxy itself, or no request: the preface of HTTP/2.
            "CONNECT" | "PURGE" | "BAN" | "PRI" => return None,
            method => {
                let is_successful = request.status.is_none_or(|status| (200..400).contains(&status));
                return Some(if is_successful && !is_safe(method) { Self::Write } else { Self::Passed });
            }
        }
        if method == "HEAD" {
            let is_ok = matches!(request.status, None | Some(..=200 | 499));
            return Some(if is_ok && request.is_shareable { Self::Head } else { Self::HeadOther });
        }
        Some(match (request.status, request.ttl) {
            _ if !request.is_shareable => Self::NotShareable,
            (None | Some(..=200 | 203 | 204 | 206 | 301 | 304 | 499), _) => Self::Planned,
            (Some(404 | 410), None) => Self::NotFound,
            (_, Some(ttl)) if !ttl.is_zero() => Self::Declared,
            _ => Self::NoLifetime,
        })
    }
}

/// The number of requests by exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeCounts([u64; Exchange::ALL.len()]);

impl ExchangeCounts {
    pub(crate) fn add(&mut self, exchange: Exchange, count: u64) {
        self.0[exchange as usize] += count;
    }

    /// Requests with this exchange.
    #[must_use]
    pub fn of(&self, exchange: Exchange) -> u64 {
        self.0[exchange as usize]
    }

    /// Requests with a method other than GET and HEAD.
    #[must_use]
    pub fn other_methods(&self) -> u64 {
        self.of(Exchange::Write) + self.of(Exchange::Passed)
    }

    /// Requests whose responses are [never stored](Exchange::is_never_stored).
    #[must_use]
    pub fn never_stored(&self) -> u64 {
        Exchange::ALL
            .into_iter()
            .filter(|exchange| exchange.is_never_stored())
            .map(|exchange| self.of(exchange))
            .sum()
    }
}

/// The safe methods other than GET and HEAD (RFC 9110, 9.2.1, and the method registry).
fn is_safe(method: &str) -> bool {
    matches!(method, "OPTIONS" | "TRACE" | "PROPFIND" | "QUERY" | "REPORT" | "SEARCH")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn effects_are_those_of_the_proxy() {
        use Exchange::{
            Declared, Head, HeadOther, NoLifetime, NotFound, NotShareable, Passed, Planned, Write,
        };
        for (method, status, ttl_s, is_shareable, expected) in [
            ("GET", Some(200), None, true, Some(Planned)),
            ("GET", None, None, true, Some(Planned)),
            ("GET", Some(200), Some(60), true, Some(Planned)),
            ("GET", Some(200), Some(0), true, Some(Planned)),
            ("GET", Some(200), Some(60), false, Some(NotShareable)),
            ("GET", Some(206), None, true, Some(Planned)),
            ("GET", Some(304), None, true, Some(Planned)),
            ("GET", Some(499), None, true, Some(Planned)),
            ("GET", Some(301), None, true, Some(Planned)),
            ("GET", Some(302), None, true, Some(NoLifetime)),
            ("GET", Some(302), Some(60), true, Some(Declared)),
            ("GET", Some(404), None, true, Some(NotFound)),
            ("GET", Some(410), None, false, Some(NotShareable)),
            ("GET", Some(404), Some(0), true, Some(NoLifetime)),
            ("GET", Some(404), Some(9), true, Some(Declared)),
            ("GET", Some(500), None, true, Some(NoLifetime)),
            ("GET", Some(403), None, true, Some(NoLifetime)),
            ("HEAD", Some(200), None, true, Some(Head)),
            ("HEAD", Some(499), None, true, Some(Head)),
            ("HEAD", Some(200), None, false, Some(HeadOther)),
            ("HEAD", Some(304), None, true, Some(HeadOther)),
            ("HEAD", Some(404), Some(60), true, Some(HeadOther)),
            ("HEAD", Some(500), None, true, Some(HeadOther)),
            ("POST", Some(200), None, true, Some(Write)),
            ("POST", Some(303), Some(60), true, Some(Write)),
            ("DELETE", None, None, true, Some(Write)),
            ("POST", Some(422), None, true, Some(Passed)),
            ("OPTIONS", Some(204), None, true, Some(Passed)),
            ("PURGE", Some(200), None, true, None),
            ("CONNECT", Some(200), None, true, None),
        ] {
            let request = LoggedRequest {
                operation: Operation::of_method(method),
                status,
                ttl: ttl_s.map(Duration::from_secs),
                is_shareable,
                ..LoggedRequest::read(LoggedKey::Url { method, host: None, url: "/" })
            };
            assert_eq!(Exchange::of(&request), expected, "{method} {status:?} {ttl_s:?} {is_shareable}");
        }
    }

    #[test]
    fn writes_of_traces_do_not_count() {
        for (operation, expected) in
            [(Operation::Read, Some(Exchange::Planned)), (Operation::Write, None), (Operation::Delete, None)]
        {
            let request = LoggedRequest { operation, ..LoggedRequest::read(LoggedKey::Number(1)) };
            assert_eq!(Exchange::of(&request), expected, "{operation:?}");
        }
    }

    #[test]
    fn number_gives_the_exchange_back() {
        for exchange in Exchange::ALL {
            assert_eq!(Exchange::from_number(exchange as u8), exchange);
        }
    }
}
