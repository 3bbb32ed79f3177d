//! `Cache-Control` of requests and responses (RFC 9111, 5.2; RFC 5861; RFC 8246), and the targeted field (RFC 9213).
//!
//! Of repeated directives the stricter one counts: the shorter lifetime, the wider scope. An unreadable lifetime is zero,
//! so that the response is stale at once (RFC 9111, 4.2.1).

use std::time::Duration;

use http::{
    HeaderMap, HeaderName,
    header::{CACHE_CONTROL, PRAGMA},
};
use sfv::{BareItem, Dictionary, ListEntry, Parser};
use stockade_http::field::{self, elements, listed};

/// A directive that lists more fields applies to the whole response.
const FIELDS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    pub no_store: bool,
    pub no_cache: bool,
    /// 504 instead of a request to the origin.
    pub only_if_cached: bool,
    pub max_age: Option<Duration>,
    /// [`Duration::MAX`] if unreadable.
    pub min_fresh: Option<Duration>,
    /// [`Duration::MAX`] if without a bound.
    pub max_stale: Option<Duration>,
}

impl RequestDirectives {
    /// Without `Cache-Control`, `Pragma: no-cache` means `no-cache` (RFC 9111, 5.4).
    #[must_use]
    pub fn read(headers: &HeaderMap) -> Self {
        let mut directives = Self::default();
        if headers.contains_key(CACHE_CONTROL) {
            for element in listed(headers, &CACHE_CONTROL) {
                directives.apply(element);
            }
        } else if headers.contains_key(PRAGMA) {
            directives.no_cache =
                listed(headers, &PRAGMA).any(|element| element.eq_ignore_ascii_case(b"no-cache"));
        }
        directives
    }

    /// True if there are no directives, as in nearly all requests.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn apply(&mut self, element: &[u8]) {
        let (name, value) = split_directive(element);
        let is = |directive: &str| name.eq_ignore_ascii_case(directive.as_bytes());
        if is("no-store") {
            self.no_store = true;
        } else if is("no-cache") {
            self.no_cache = true;
        } else if is("only-if-cached") {
            self.only_if_cached = true;
        } else if is("max-age") {
            shorten(&mut self.max_age, lifetime(value));
        } else if is("min-fresh") {
            let min_fresh = value.and_then(number).unwrap_or(Duration::MAX);
            self.min_fresh = Some(self.min_fresh.map_or(min_fresh, |current| current.max(min_fresh)));
        } else if is("max-stale") {
            match value {
                None => shorten(&mut self.max_stale, Duration::MAX),
                Some(value) => shorten(&mut self.max_stale, number(value).unwrap_or_default()),
            }
        }
    }
}

/// The scope of `no-cache` or `private`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The directive is absent.
    #[default]
    Nothing,
    Fields(Vec<HeaderName>),
    Whole,
}

impl Scope {
    #[must_use]
    pub fn fields(&self) -> &[HeaderName] {
        if let Self::Fields(fields) = self { fields } else { &[] }
    }

    #[must_use]
    pub fn is_whole(&self) -> bool {
        *self == Self::Whole
    }

    /// Adds one field.
    pub fn add(&mut self, field: HeaderName) {
        self.widen(Self::Fields(vec![field]));
    }

    /// A value that is not a list of field names means the whole response, and so does one without quotes: origins that send
    /// `private=1` mean `private` (RFC 9111, 5.2.2.7 asks for quotes).
    fn parse_quoted(value: Option<&[u8]>) -> Self {
        Self::parse(value.filter(|value| value.starts_with(b"\"")))
    }

    /// A value that is not a list of field names means the whole response.
    fn parse(value: Option<&[u8]>) -> Self {
        let Some(value) = value else { return Self::Whole };
        let names = elements(field::unquoted(value)).take(FIELDS_MAX + 1).map(HeaderName::from_bytes);
        match names.collect::<Result<Vec<_>, _>>() {
            Ok(names) if !names.is_empty() && names.len() <= FIELDS_MAX => Self::Fields(names),
            _ => Self::Whole,
        }
    }

    fn widen(&mut self, more: Self) {
        match (&mut *self, more) {
            (Self::Whole, _) | (_, Self::Nothing) => {}
            (Self::Fields(fields), Self::Fields(more)) if fields.len() + more.len() <= FIELDS_MAX => {
                fields.extend(more);
            }
            (Self::Nothing, more) => *self = more,
            (Self::Fields(_), _) => *self = Self::Whole,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "the vocabulary of the standard")]
pub struct ResponseDirectives {
    /// Read from a targeted field, so that `Cache-Control` and `Expires` do not count.
    pub is_targeted: bool,
    pub no_store: bool,
    /// Each use needs validation.
    pub no_cache: Scope,
    pub private: Scope,
    /// Storable although the request had credentials; heuristic freshness applies to any status.
    pub public: bool,
    pub must_revalidate: bool,
    pub proxy_revalidate: bool,
    /// Overrides `no_store` if the status is understood, and forbids storing if it is not.
    pub must_understand: bool,
    /// RFC 8246.
    pub immutable: bool,
    pub max_age: Option<Duration>,
    pub s_maxage: Option<Duration>,
    /// RFC 5861.
    pub stale_while_revalidate: Option<Duration>,
    /// RFC 5861.
    pub stale_if_error: Option<Duration>,
}

impl ResponseDirectives {
    /// Reads the first targeted field that is a non-empty dictionary of structured fields (RFC 9213, 2.2), else
    /// `Cache-Control`.
    #[must_use]
    pub fn read(headers: &HeaderMap, targets: &[HeaderName]) -> Self {
        targets.iter().find_map(|target| Self::targeted(headers, target)).unwrap_or_else(|| {
            let mut directives = Self::default();
            for element in listed(headers, &CACHE_CONTROL) {
                let (name, value) = split_directive(element);
                directives.apply(name, &DirectiveValue::Text(value));
            }
            directives
        })
    }

    /// The freshness lifetime in a shared cache.
    #[must_use]
    pub fn lifetime(&self) -> Option<Duration> {
        self.s_maxage.or(self.max_age)
    }

    fn targeted(headers: &HeaderMap, target: &HeaderName) -> Option<Self> {
        let mut lines = headers.get_all(target).into_iter();
        let first = lines.next()?.as_bytes();
        let mut joined;
        let mut text = first;
        if headers.get_all(target).iter().nth(1).is_some() {
            joined = first.to_vec();
            for line in lines {
                joined.extend_from_slice(b", ");
                joined.extend_from_slice(line.as_bytes());
            }
            text = &joined;
        }
        let members: Dictionary = Parser::new(text).parse().ok()?;
        if members.is_empty() {
            return None;
        }
        let mut directives = Self { is_targeted: true, ..Self::default() };
        for (name, member) in &members {
            let value = match member {
                ListEntry::Item(item) => DirectiveValue::Item(&item.bare_item),
                ListEntry::InnerList(_) => DirectiveValue::Other,
            };
            directives.apply(name.as_str().as_bytes(), &value);
        }
        Some(directives)
    }

    fn apply(&mut self, name: &[u8], value: &DirectiveValue<'_>) {
        if value.is_negated() {
            return;
        }
        let is = |directive: &str| name.eq_ignore_ascii_case(directive.as_bytes());
        // `"no-store"` in quotes is not a directive, but its origin means one.
        let forbids = |directive: &str| field::unquoted(name).eq_ignore_ascii_case(directive.as_bytes());
        if is("max-age") {
            shorten(&mut self.max_age, value.lifetime());
        } else if is("s-maxage") {
            shorten(&mut self.s_maxage, value.lifetime());
        } else if forbids("no-store") {
            self.no_store = true;
        } else if forbids("no-cache") {
            self.no_cache.widen(value.scope());
        } else if forbids("private") {
            self.private.widen(value.scope());
        } else if is("public") {
            self.public |= value.is_bare();
        } else if is("must-revalidate") {
            self.must_revalidate = true;
        } else if is("proxy-revalidate") {
            self.proxy_revalidate = true;
        } else if is("must-understand") {
            self.must_understand |= value.is_bare();
        } else if is("immutable") {
            self.immutable |= value.is_bare();
        } else if is("stale-while-revalidate") {
            shorten(&mut self.stale_while_revalidate, value.lifetime());
        } else if is("stale-if-error") {
            shorten(&mut self.stale_if_error, value.lifetime());
        }
    }
}

enum DirectiveValue<'a> {
    /// In `Cache-Control`: a token or quoted string.
    Text(Option<&'a [u8]>),
    /// In a targeted field; a directive without a value is `true`.
    Item(&'a BareItem),
    /// Any other structured value.
    Other,
}

impl DirectiveValue<'_> {
    /// `?0` in a structured field negates the directive.
    fn is_negated(&self) -> bool {
        matches!(self, Self::Item(BareItem::Boolean(false)))
    }

    fn is_bare(&self) -> bool {
        matches!(self, Self::Text(None) | Self::Item(BareItem::Boolean(true)))
    }

    fn lifetime(&self) -> Duration {
        match self {
            Self::Text(value) => lifetime(*value),
            Self::Item(BareItem::Integer(seconds)) => {
                let seconds = u64::try_from(i64::from(*seconds)).unwrap_or(0);
                Duration::from_secs(seconds.min(field::SECONDS_MAX))
            }
            Self::Item(_) | Self::Other => Duration::ZERO,
        }
    }

    fn scope(&self) -> Scope {
        match self {
            Self::Text(value) => Scope::parse_quoted(*value),
            Self::Item(BareItem::String(names)) => Scope::parse(Some(names.as_str().as_bytes())),
            Self::Item(BareItem::Token(name)) => Scope::parse(Some(name.as_str().as_bytes())),
            Self::Item(_) | Self::Other => Scope::Whole,
        }
    }
}

/// `name` or `name=value`. White space next to `=` makes the value unreadable.
fn split_directive(element: &[u8]) -> (&[u8], Option<&[u8]>) {
    match element.iter().position(|byte| *byte == b'=') {
        None => (element, None),
        Some(at) => {
            let (name, value) = (&element[..at], &element[at + 1..]);
            let name_alone = field::trim(name);
            if name_alone.len() == name.len() { (name, Some(value)) } else { (name_alone, Some(b" ")) }
        }
    }
}

fn number(value: &[u8]) -> Option<Duration> {
    field::seconds(field::unquoted(value))
}

fn lifetime(value: Option<&[u8]>) -> Duration {
    value.and_then(number).unwrap_or_default()
}

fn shorten(current: &mut Option<Duration>, value: Duration) {
    *current = Some(current.map_or(value, |current| current.min(value)));
}

#[cfg(test)]
mod tests;
