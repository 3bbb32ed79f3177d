//! The outcome that a cache reports in the head of a response.

use stockade_model::outcome::Outcome;

/// The response headers that caches set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheHeaders<'a> {
    /// `Cache-Status` (RFC 9211).
    pub cache_status: Option<&'a [u8]>,
    /// `X-Cache`, set by Varnish, Squid, nginx and CDNs.
    pub x_cache: Option<&'a [u8]>,
    /// `Age` (RFC 9111).
    pub age: Option<&'a [u8]>,
}

impl<'a> CacheHeaders<'a> {
    /// Stores a header if it is one of these; returns whether it is. The last of several with the same name counts: the
    /// nearest cache has added it.
    pub(crate) fn record(&mut self, name: &str, value: &'a [u8]) -> bool {
        let header = match name.len() {
            3 if name.eq_ignore_ascii_case("age") => &mut self.age,
            7 if name.eq_ignore_ascii_case("x-cache") => &mut self.x_cache,
            12 if name.eq_ignore_ascii_case("cache-status") => &mut self.cache_status,
            _ => return false,
        };
        *header = Some(value);
        true
    }

    /// The outcome in the nearest cache, if the headers state one.
    ///
    /// `Cache-Status` takes precedence over `X-Cache`. An `Age` above zero alone means a stored response.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        let stated =
            self.cache_status.and_then(parse_cache_status).or_else(|| self.x_cache.and_then(parse_x_cache));
        stated.or_else(|| {
            let age: u64 = std::str::from_utf8(self.age?).ok()?.trim().parse().ok()?;
            (age > 0).then_some(Outcome::Hit)
        })
    }
}

/// The last member is that of the nearest cache.
fn parse_cache_status(value: &[u8]) -> Option<Outcome> {
    let text = std::str::from_utf8(value).ok()?;
    let member = split_unquoted(text, ',').filter(|member| !member.trim().is_empty()).last()?;
    let mut parameters = split_unquoted(member, ';').skip(1).map(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        (name.trim(), value.trim().trim_matches('"'))
    });
    let detail = parameters.clone().find(|(name, _)| *name == "detail").map(|(_, value)| value);
    if let Some(outcome) = Outcome::ALL.into_iter().find(|outcome| Some(outcome.name()) == detail) {
        return Some(outcome);
    }
    let has = |wanted: &str| parameters.clone().any(|(name, _)| name == wanted);
    let is_expired = parameters.clone().any(|(name, value)| name == "ttl" && value.starts_with('-'));
    if has("hit") {
        return Some(if is_expired { Outcome::Stale } else { Outcome::Hit });
    }
    let is_collapsed = has("collapsed");
    match parameters.find(|(name, _)| *name == "fwd")?.1 {
        "bypass" | "method" | "request" => Some(Outcome::Bypass),
        _ if is_collapsed => Some(Outcome::Coalesced),
        _ => Some(Outcome::Miss),
    }
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
            };
            assert_eq!(headers.outcome(), outcome, "{cache_status} {x_cache} {age}");
        }
    }
}
