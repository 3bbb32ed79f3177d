//! The outcome that a cache reports in the head of a response.

use stockade_model::outcome::Outcome;

/// The response headers that caches set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheHeaders<'a> {
    /// `Cache-Status` (RFC 9211).
    pub cache_status: Option<&'a [u8]>,
    /// `X-Cache`, set by Varnish, Squid and CDNs.
    pub x_cache: Option<&'a [u8]>,
    /// `X-Cache-Status`, by convention nginx's `$upstream_cache_status`: its `HIT` is never stale.
    pub x_cache_status: Option<&'a [u8]>,
    /// `Age` (RFC 9111).
    pub age: Option<&'a [u8]>,
    /// Up to two lines of `Cache-Control`.
    pub cache_control: [Option<&'a [u8]>; 2],
}

/// The report of a cache about one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheReport {
    /// The outcome. A hit that may be stale is a `Hit`.
    pub outcome: Outcome,
    /// True for a hit if the headers do not tell whether it is fresh.
    pub may_be_stale: bool,
}

impl CacheReport {
    /// False: the cache states that the origin has not failed, since it states fallbacks as such or as stale.
    pub(crate) fn may_be_fallback(self) -> bool {
        self.may_be_stale || matches!(self.outcome, Outcome::Fallback | Outcome::Stale)
    }

    /// A report that tells fresh from stale.
    fn of(outcome: Outcome) -> Self {
        Self { outcome, may_be_stale: false }
    }
}

impl<'a> CacheHeaders<'a> {
    /// Stores a header if it is one of these; returns whether it is. The last of several with the same name counts: the
    /// nearest cache has added it.
    pub(crate) fn record(&mut self, name: &str, value: &'a [u8]) -> bool {
        let header = match name.len() {
            3 if name.eq_ignore_ascii_case("age") => &mut self.age,
            7 if name.eq_ignore_ascii_case("x-cache") => &mut self.x_cache,
            12 if name.eq_ignore_ascii_case("cache-status") => &mut self.cache_status,
            13 if name.eq_ignore_ascii_case("cache-control") => {
                &mut self.cache_control[usize::from(self.cache_control[0].is_some())]
            }
            14 if name.eq_ignore_ascii_case("x-cache-status") => &mut self.x_cache_status,
            _ => return false,
        };
        *header = Some(value);
        true
    }

    /// The report of the nearest cache, if the headers have one.
    ///
    /// `Cache-Status` takes precedence over `X-Cache-Status`, and that over `X-Cache`. An `Age` above zero alone means a stored
    /// response, fresh or not. Where the word is a plain hit, an `Age` that has reached the lifetime in `Cache-Control`
    /// means that it is stale.
    #[must_use]
    pub fn report(&self) -> Option<CacheReport> {
        if let Some((outcome, has_ttl)) = self.cache_status.and_then(parse_cache_status) {
            return Some(if has_ttl { CacheReport::of(outcome) } else { self.judged_by_age(outcome) });
        }
        if let Some(outcome) = self.x_cache_status.and_then(parse_x_cache) {
            return Some(CacheReport::of(outcome));
        }
        if let Some(outcome) = self.x_cache.and_then(parse_x_cache) {
            return Some(self.judged_by_age(outcome));
        }
        // A stored answer in its first second has an age of 0, too: hits and stale answers cannot be counted.
        self.age_s().filter(|age| *age > 0).map(|_| CacheReport { outcome: Outcome::Hit, may_be_stale: true })
    }

    fn judged_by_age(&self, outcome: Outcome) -> CacheReport {
        if outcome != Outcome::Hit {
            return CacheReport::of(outcome);
        }
        match self.age_s().zip(self.lifetime_s()) {
            // RFC 9111, 4.2: fresh as long as the lifetime exceeds the age.
            Some((age, lifetime)) if age >= lifetime => CacheReport::of(Outcome::Stale),
            Some(_) => CacheReport::of(Outcome::Hit),
            None => CacheReport { outcome, may_be_stale: true },
        }
    }

    /// `Age`, if it is a number.
    pub(crate) fn age_s(&self) -> Option<u64> {
        std::str::from_utf8(self.age?).ok()?.trim().parse().ok()
    }

    /// `s-maxage`, or else `max-age` (RFC 9111, 4.2.1).
    fn lifetime_s(&self) -> Option<u64> {
        let lines = self.cache_control.iter().flatten().filter_map(|line| std::str::from_utf8(line).ok());
        let of = |wanted: &str| {
            lines.clone().flat_map(|line| split_unquoted(line, ',')).find_map(|directive| {
                let (name, value) = directive.split_once('=')?;
                let is_wanted = name.trim().eq_ignore_ascii_case(wanted);
                is_wanted.then(|| value.trim().trim_matches('"').parse().ok()).flatten()
            })
        };
        of("s-maxage").or_else(|| of("max-age"))
    }
}

/// The outcome, and whether it tells fresh from stale. The last member is that of the nearest cache.
fn parse_cache_status(value: &[u8]) -> Option<(Outcome, bool)> {
    let text = std::str::from_utf8(value).ok()?;
    let member = split_unquoted(text, ',').filter(|member| !member.trim().is_empty()).last()?;
    let mut parameters = split_unquoted(member, ';').skip(1).map(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        (name.trim(), value.trim().trim_matches('"'))
    });
    let detail = parameters.clone().find(|(name, _)| *name == "detail").map(|(_, value)| value);
    if let Some(outcome) = Outcome::ALL.into_iter().find(|outcome| Some(outcome.name()) == detail) {
        return Some((outcome, true));
    }
    let has = |wanted: &str| parameters.clone().any(|(name, _)| name == wanted);
    if has("hit") {
        let ttl = parameters.clone().find(|(name, _)| *name == "ttl").map(|(_, value)| value);
        let is_expired = ttl.is_some_and(|ttl| ttl.starts_with('-'));
        return Some((if is_expired { Outcome::Stale } else { Outcome::Hit }, ttl.is_some()));
    }
    let is_collapsed = has("collapsed");
    let outcome = match parameters.find(|(name, _)| *name == "fwd")?.1 {
        "bypass" | "method" | "request" => Outcome::Bypass,
        _ if is_collapsed => Outcome::Coalesced,
        _ => Outcome::Miss,
    };
    Some((outcome, true))
}

fn split_unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> + Clone {
    let mut is_quoted = false;
    text.split(move |c| {
        is_quoted ^= c == '"';
        c == separator && !is_quoted
    })
}

/// Reads `HIT`, `TCP_MISS`, `Hit from cloudfront`, `HIT from HOST`, `MISS, HIT` (the last is the nearest): only the first
/// word is similar in all caches.
fn parse_x_cache(value: &[u8]) -> Option<Outcome> {
    const WORDS: [(&str, Outcome); 11] = [
        // The client waited until the origin had confirmed the entry.
        ("REVALIDATED", Outcome::Miss),
        ("REFRESH", Outcome::Miss),
        ("EXPIRED", Outcome::Miss),
        ("MISS", Outcome::Miss),
        ("STALE", Outcome::Stale),
        ("UPDATING", Outcome::Stale),
        ("BYPASS", Outcome::Bypass),
        ("DYNAMIC", Outcome::Bypass),
        ("PASS", Outcome::Bypass),
        ("ERROR", Outcome::Error),
        ("HIT", Outcome::Hit),
    ];
    let text = std::str::from_utf8(value).ok()?;
    let nearest = text.rsplit(',').next()?.trim_start();
    let word = nearest.split([' ', ';', ':']).next()?.to_ascii_uppercase();
    WORDS.into_iter().find(|(known, _)| word.contains(known)).map(|(_, outcome)| outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_is_read_from_the_headers_of_many_caches() {
        use Outcome::{Bypass, Coalesced, Fallback, Hit, Miss, Stale};
        for (cache_status, x_cache, age, outcome) in [
            ("stockade; hit; ttl=12; detail=hit", "", "", Some(Hit)),
            ("stockade; hit; ttl=-3; detail=fallback", "", "", Some(Fallback)),
            ("ExampleCache; hit; ttl=30; detail=\"a;b, c\"", "", "", Some(Hit)),
            ("ExampleCache; hit; ttl=-30", "", "", Some(Stale)),
            ("ExampleCache; fwd=uri-miss; stored", "", "", Some(Miss)),
            ("ExampleCache; fwd=stale; fwd-status=304; collapsed", "", "", Some(Coalesced)),
            ("ExampleCache; fwd=bypass; detail=\"hit; hit\"", "", "", Some(Bypass)),
            ("Origin; hit; ttl=1100, \"CDN, Inc\"; fwd=uri-miss", "HIT", "", Some(Miss)),
            ("ExampleCache", "HIT", "", Some(Hit)),
            ("", "MISS", "7", Some(Miss)),
            ("", "Hit from cloudfront", "", Some(Hit)),
            ("", "RefreshHit from cloudfront", "", Some(Miss)),
            ("", "TCP_MEM_HIT", "", Some(Hit)),
            ("", "MISS, HIT", "", Some(Hit)),
            ("", "HIT from missouri-cache1", "", Some(Hit)),
            ("", "MISS from dynamic-bypass.example", "", Some(Miss)),
            ("", "UPDATING", "", Some(Stale)),
            ("", "BYPASS", "", Some(Bypass)),
            ("", "unheard of", "", None),
            ("", "", "7", Some(Hit)),
            ("", "", "0", None),
            ("", "", "-7", None),
        ] {
            fn header(text: &str) -> Option<&[u8]> {
                (!text.is_empty()).then_some(text.as_bytes())
            }
            let headers = CacheHeaders {
                cache_status: header(cache_status),
                x_cache: header(x_cache),
                age: header(age),
                ..CacheHeaders::default()
            };
            let found = headers.report().map(|report| report.outcome);
            assert_eq!(found, outcome, "{cache_status} {x_cache} {age}");
        }
    }

    #[test]
    fn age_above_the_lifetime_is_stale_and_without_both_a_hit_may_be() {
        use Outcome::{Hit, Miss, Stale};
        for (lines, outcome, may_be_stale) in [
            (&["X-Cache: HIT", "Age: 9", "Cache-Control: public, max-age=10"][..], Hit, false),
            (&["X-Cache: HIT", "Age: 10", "Cache-Control: public, max-age=10"], Stale, false),
            (&["X-Cache: HIT", "Age: 11", "Cache-Control: public, max-age=10"], Stale, false),
            (&["X-Cache: HIT", "Age: 11", "Cache-Control: max-age=10, s-maxage=20"], Hit, false),
            (&["X-Cache: HIT", "Age: 21", "Cache-Control: Max-Age=100, S-MaxAge=\"20\""], Stale, false),
            (
                &["X-Cache: HIT", "Age: 11", "Cache-Control: max-age=10", "Cache-Control: public"],
                Stale,
                false,
            ),
            (&["X-Cache: HIT", "Cache-Control: max-age=10"], Hit, true),
            (&["X-Cache: HIT", "Age: 3", "Cache-Control: public"], Hit, true),
            (&["X-Cache: HIT"], Hit, true),
            (&["X-Cache: STALE"], Stale, false),
            (&["X-Cache: MISS", "Age: 11", "Cache-Control: max-age=10"], Miss, false),
            (&["Age: 11", "Cache-Control: max-age=10"], Hit, true),
            (&["Age: 11"], Hit, true),
            (&["X-Cache-Status: HIT"], Hit, false),
            (&["X-Cache-Status: STALE", "X-Cache: HIT"], Stale, false),
            (&["Cache-Status: a; hit"], Hit, true),
            (&["Cache-Status: a; hit; ttl=-3"], Stale, false),
            (&["Cache-Status: a; hit", "Age: 5", "Cache-Control: max-age=4"], Stale, false),
            (&["Cache-Status: a; hit; ttl=1", "Age: 5", "Cache-Control: max-age=4"], Hit, false),
        ] {
            let mut headers = CacheHeaders::default();
            for (name, value) in lines.iter().filter_map(|line| line.split_once(": ")) {
                assert!(headers.record(name, value.as_bytes()), "{name}");
            }
            assert_eq!(headers.report(), Some(CacheReport { outcome, may_be_stale }), "{lines:?}");
        }
    }
}
