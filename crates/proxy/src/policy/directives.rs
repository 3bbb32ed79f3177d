//! What `Cache-Control` says, in requests and in answers (RFC 9111, 5.2; RFC 5861; RFC 8246), or the field that is
//! targeted at this cache (RFC 9213).
//!
//! Where it is said twice, or cannot be read, the safer meaning counts: the shorter life, the wider ban. A lifetime
//! that is no number is none at all, so that the answer is stale from the beginning (RFC 9111, 4.2.1).

use std::time::Duration;

use http::{
    HeaderMap, HeaderName,
    header::{CACHE_CONTROL, PRAGMA},
};
use sfv::{BareItem, Dictionary, ListEntry, Parser};

use super::field::{self, elements, listed};

/// More fields than that are not told apart: the whole answer is meant.
const FIELDS_MOST: usize = 64;

/// What a request asks of caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    /// Store nothing of this request or of its answer.
    pub no_store: bool,
    /// Nothing stored without asking the origin.
    pub no_cache: bool,
    /// Nothing but what is stored: 504 instead of asking the origin.
    pub only_if_cached: bool,
    /// No older than this.
    pub max_age: Option<Duration>,
    /// Fresh for so long still; [`Duration::MAX`] if it could not be read.
    pub min_fresh: Option<Duration>,
    /// Stale, but for no longer than this; [`Duration::MAX`] if it may be for however long.
    pub max_stale: Option<Duration>,
}

impl RequestDirectives {
    /// Of a request's head. Without `Cache-Control`, `Pragma: no-cache` means `no-cache` (RFC 9111, 5.4).
    #[must_use]
    pub fn read(headers: &HeaderMap) -> Self {
        let mut said = Self::default();
        if headers.contains_key(CACHE_CONTROL) {
            for element in listed(headers, &CACHE_CONTROL) {
                said.take(element);
            }
        } else if headers.contains_key(PRAGMA) {
            said.no_cache = listed(headers, &PRAGMA).any(|element| element.eq_ignore_ascii_case(b"no-cache"));
        }
        said
    }

    /// Whether it asks for nothing: what nearly all requests do.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        *self == Self::default()
    }

    fn take(&mut self, element: &[u8]) {
        let (name, value) = parted(element);
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
            let asked = value.and_then(number).unwrap_or(Duration::MAX);
            self.min_fresh = Some(self.min_fresh.map_or(asked, |before| before.max(asked)));
        } else if is("max-stale") {
            match value {
                None => shorten(&mut self.max_stale, Duration::MAX),
                Some(value) => shorten(&mut self.max_stale, number(value).unwrap_or_default()),
            }
        }
    }
}

/// How much of an answer a directive is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Nothing: it was not said.
    #[default]
    Nothing,
    /// These fields of its head.
    Fields(Vec<HeaderName>),
    /// All of it.
    Whole,
}

impl Scope {
    /// The fields, if it is about some fields.
    #[must_use]
    pub fn fields(&self) -> &[HeaderName] {
        if let Self::Fields(fields) = self { fields } else { &[] }
    }

    /// Whether it is about the whole answer.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        *self == Self::Whole
    }

    /// A list of names; the whole, if that is no list of names.
    fn of(value: Option<&[u8]>) -> Self {
        let Some(value) = value else { return Self::Whole };
        let names = elements(field::unquoted(value)).take(FIELDS_MOST + 1).map(HeaderName::from_bytes);
        match names.collect::<Result<Vec<_>, _>>() {
            Ok(names) if !names.is_empty() && names.len() <= FIELDS_MOST => Self::Fields(names),
            _ => Self::Whole,
        }
    }

    fn widen(&mut self, more: Self) {
        match (&mut *self, more) {
            (Self::Whole, _) | (_, Self::Nothing) => {}
            (Self::Fields(fields), Self::Fields(more)) if fields.len() + more.len() <= FIELDS_MOST => {
                fields.extend(more);
            }
            (Self::Nothing, more) => *self = more,
            (Self::Fields(_), _) => *self = Self::Whole,
        }
    }
}

/// What an answer allows to caches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "the vocabulary of the standard")]
pub struct ResponseDirectives {
    /// Whether a targeted field says all this, so that neither `Cache-Control` nor `Expires` count.
    pub is_targeted: bool,
    /// Not to be stored.
    pub no_store: bool,
    /// Not to be used before the origin was asked.
    pub no_cache: Scope,
    /// For one user: not for a shared cache.
    pub private: Scope,
    /// For anybody, although it was asked with credentials; heuristic lifetimes are allowed to any status.
    pub public: bool,
    /// Never to be used stale.
    pub must_revalidate: bool,
    /// Never to be used stale by a shared cache.
    pub proxy_revalidate: bool,
    /// To be stored, whatever `no_store` says, if the status is understood; not, if it is not.
    pub must_understand: bool,
    /// Does not change while it is fresh (RFC 8246).
    pub immutable: bool,
    /// Fresh for so long.
    pub max_age: Option<Duration>,
    /// Fresh for so long in a shared cache.
    pub s_maxage: Option<Duration>,
    /// May be used stale for so long, while it is refreshed (RFC 5861).
    pub stale_while_revalidate: Option<Duration>,
    /// May be used stale for so long, if the origin fails (RFC 5861).
    pub stale_if_error: Option<Duration>,
}

impl ResponseDirectives {
    /// Of an answer's head: of the first targeted field that is there, not empty and a dictionary of
    /// structured fields (RFC 9213, 2.2); else of `Cache-Control`.
    #[must_use]
    pub fn read(headers: &HeaderMap, targets: &[HeaderName]) -> Self {
        targets.iter().find_map(|target| Self::targeted(headers, target)).unwrap_or_else(|| {
            let mut said = Self::default();
            for element in listed(headers, &CACHE_CONTROL) {
                let (name, value) = parted(element);
                said.take(name, &Value::Text(value));
            }
            said
        })
    }

    /// The life that it gives to an answer in a shared cache.
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
        let mut said = Self { is_targeted: true, ..Self::default() };
        for (name, member) in &members {
            let value = match member {
                ListEntry::Item(item) => Value::Item(&item.bare_item),
                ListEntry::InnerList(_) => Value::Other,
            };
            said.take(name.as_str().as_bytes(), &value);
        }
        Some(said)
    }

    fn take(&mut self, name: &[u8], value: &Value<'_>) {
        if value.is_denied() {
            return;
        }
        let is = |directive: &str| name.eq_ignore_ascii_case(directive.as_bytes());
        if is("max-age") {
            shorten(&mut self.max_age, value.lifetime());
        } else if is("s-maxage") {
            shorten(&mut self.s_maxage, value.lifetime());
        } else if is("no-store") {
            self.no_store = true;
        } else if is("no-cache") {
            self.no_cache.widen(value.scope());
        } else if is("private") {
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

/// What stands behind a directive's name.
enum Value<'a> {
    /// In `Cache-Control`: a token or a quoted string.
    Text(Option<&'a [u8]>),
    /// In a targeted field; nothing is there as true.
    Item(&'a BareItem),
    /// Anything else.
    Other,
}

impl Value<'_> {
    /// Whether it says that the directive is not meant, as only structured fields can.
    fn is_denied(&self) -> bool {
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
                Duration::from_secs(seconds.min(field::SECONDS_MOST))
            }
            Self::Item(_) | Self::Other => Duration::ZERO,
        }
    }

    fn scope(&self) -> Scope {
        match self {
            Self::Text(value) => Scope::of(*value),
            Self::Item(BareItem::String(names)) => Scope::of(Some(names.as_str().as_bytes())),
            Self::Item(BareItem::Token(name)) => Scope::of(Some(name.as_str().as_bytes())),
            Self::Item(_) | Self::Other => Scope::Whole,
        }
    }
}

/// `name` or `name=value`. White space beside the `=` belongs to neither and makes the value unreadable.
fn parted(element: &[u8]) -> (&[u8], Option<&[u8]>) {
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

fn shorten(before: &mut Option<Duration>, said: Duration) {
    *before = Some(before.map_or(said, |before| before.min(said)));
}

#[cfg(test)]
mod tests;
