//! `Vary`: the request fields that select a response, and their values (RFC 9110, 12.5.5; RFC 9111, 4.1).
//!
//! Values are normalised: white space and line breaks do not matter, nor the order of weighted choices, nor the case of
//! their names. `User-Agent`, `Cookie` and other fields whose commas do not separate elements are compared as they are.

use std::fmt;

use http::{
    HeaderMap, HeaderName,
    header::{
        ACCEPT, ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE, AUTHORIZATION, COOKIE, HOST, ORIGIN,
        REFERER, USER_AGENT, VARY,
    },
};
use smallvec::SmallVec;
use stockade_http::field::{elements, listed, parse_u64, trim};

/// A `Vary` of more fields counts as `*`.
const FIELDS_MAX: usize = 32;

/// Longer lists of choices are compared without sorting.
const CHOICES_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Vary {
    None,
    /// Request fields, sorted and unique.
    Fields(SmallVec<[HeaderName; 2]>),
    /// `*`, or unreadable: the response matches no other request.
    Any,
}

impl Vary {
    #[must_use]
    pub fn of(response: &HeaderMap) -> Self {
        if !response.contains_key(VARY) {
            return Self::None;
        }
        let mut fields: SmallVec<[HeaderName; 2]> = SmallVec::new();
        for element in listed(response, &VARY) {
            match HeaderName::from_bytes(element) {
                // `*` is also a valid field name by its characters.
                Ok(name) if element != b"*" && fields.len() <= FIELDS_MAX => fields.push(name),
                _ => return Self::Any,
            }
        }
        fields.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        fields.dedup();
        match fields.len() {
            0 => Self::None,
            1..=FIELDS_MAX => Self::Fields(fields),
            _ => Self::Any,
        }
    }

    #[must_use]
    pub fn fields(&self) -> &[HeaderName] {
        if let Self::Fields(fields) = self { fields } else { &[] }
    }

    /// True if all fields of `other` are among these.
    #[must_use]
    pub fn includes(&self, other: &Self) -> bool {
        match other {
            Self::None => true,
            Self::Fields(fields) => fields.iter().all(|field| self.fields().contains(field)),
            Self::Any => false,
        }
    }

    /// The request's values of the selecting fields.
    #[must_use]
    pub fn selecting(&self, request: &HeaderMap) -> SelectingValues {
        SelectingValues(self.normalised(request).as_slice().into())
    }

    /// True if a request has the same values. Nothing matches [`Vary::Any`].
    #[must_use]
    pub fn matches(&self, selected: &SelectingValues, request: &HeaderMap) -> bool {
        match self {
            Self::None => true,
            Self::Any => false,
            Self::Fields(_) => *self.normalised(request) == *selected.0,
        }
    }

    fn normalised(&self, request: &HeaderMap) -> Buffer {
        let mut text = Buffer::new();
        for name in self.fields() {
            if !request.contains_key(name) {
                text.push(ABSENT);
                continue;
            }
            text.push(PRESENT);
            let start = text.len();
            text.extend_from_slice(&[0; 4]);
            push_value(&mut text, request, name);
            let length = u32::try_from(text.len() - start - 4).unwrap_or(u32::MAX);
            text[start..start + 4].copy_from_slice(&length.to_be_bytes());
        }
        text
    }
}

/// The normalised values of the selecting fields of one request, under one [`Vary`].
#[derive(Clone, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct SelectingValues(Box<[u8]>);

impl SelectingValues {
    /// The inverse of [`as_bytes`](Self::as_bytes).
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Distinct for distinct values.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SelectingValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SelectingValues({})", self.0.escape_ascii())
    }
}

type Buffer = SmallVec<[u8; 256]>;

const ABSENT: u8 = 0;
const PRESENT: u8 = 1;

fn push_value(text: &mut Buffer, request: &HeaderMap, name: &HeaderName) {
    let start = text.len();
    if [ACCEPT, ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE].contains(name) {
        if push_choices(text, request, name).is_some() {
            return;
        }
        text.truncate(start);
    }
    if [AUTHORIZATION, COOKIE, HOST, ORIGIN, REFERER, USER_AGENT].contains(name) {
        let between: &[u8] = if *name == COOKIE { b"; " } else { b", " };
        for (at, line) in request.get_all(name).iter().enumerate() {
            text.extend_from_slice(if at == 0 { b"" } else { between });
            text.extend_from_slice(trim(line.as_bytes()));
        }
        return;
    }
    for (at, element) in listed(request, name).enumerate() {
        text.extend_from_slice(if at == 0 { b"" } else { b"," });
        text.extend_from_slice(element);
    }
}

/// Appends weighted choices (RFC 9110, 12.4.2), sorted; `None` if the field is not a list of that form or has quoted parameters.
fn push_choices(text: &mut Buffer, request: &HeaderMap, name: &HeaderName) -> Option<()> {
    let mut buffer = Buffer::new();
    let mut choices: SmallVec<[Choice; 16]> = SmallVec::new();
    for line in request.get_all(name) {
        if line.as_bytes().contains(&b'"') {
            return None;
        }
        for element in elements(line.as_bytes()) {
            if choices.len() == CHOICES_MAX {
                return None;
            }
            choices.push(Choice::read(&mut buffer, element, *name == ACCEPT_ENCODING)?);
        }
    }
    let named = |choice: &Choice| &buffer[choice.start..choice.end];
    if *name == ACCEPT_ENCODING && !choices.iter().any(|choice| named(choice) == b"*") {
        // Without `*`, a coding of weight 0 means the same as an absent one, except `identity`.
        choices.retain(|choice| choice.thousandths > 0 || named(choice) == b"identity");
    }
    choices.sort_unstable_by(|one, other| {
        named(one).cmp(named(other)).then(one.thousandths.cmp(&other.thousandths))
    });
    choices.dedup_by(|one, other| named(one) == named(other) && one.thousandths == other.thousandths);
    for choice in &choices {
        text.extend_from_slice(named(choice));
        text.push(b';');
        text.extend_from_slice(&choice.thousandths.to_be_bytes());
    }
    Some(())
}

/// The range of its name and parameters in the buffer, and its weight.
#[derive(Clone, Copy)]
struct Choice {
    start: usize,
    end: usize,
    thousandths: u16,
}

impl Choice {
    fn read(buffer: &mut Buffer, element: &[u8], is_encoding: bool) -> Option<Self> {
        let start = buffer.len();
        let mut thousandths = 1000;
        for (at, part) in element.split(|byte| *byte == b';').map(trim).enumerate() {
            match part {
                _ if at == 0 => {
                    buffer.extend(part.iter().map(u8::to_ascii_lowercase));
                }
                [b'q' | b'Q', b'=', weight @ ..] => thousandths = weight_of(weight)?,
                _ => {
                    buffer.push(b';');
                    buffer.extend_from_slice(part);
                }
            }
        }
        if is_encoding && matches!(&buffer[start..], b"x-gzip" | b"x-compress") {
            // Aliases of the same codings (RFC 9110, 8.4.1).
            buffer.drain(start..start + 2);
        }
        Some(Self { start, end: buffer.len(), thousandths })
    }
}

/// A weight in thousandths (RFC 9110, 12.4.2).
fn weight_of(weight: &[u8]) -> Option<u16> {
    let (whole, part) = match weight {
        [whole] | [whole, b'.'] => (*whole, &[][..]),
        [whole, b'.', part @ ..] if part.len() <= 3 => (*whole, part),
        _ => return None,
    };
    let mut thousandths = parse_u64(&[whole])?;
    for place in 0..3 {
        thousandths = thousandths * 10 + part.get(place).map_or(Some(0), |digit| parse_u64(&[*digit]))?;
    }
    u16::try_from(thousandths).ok().filter(|weight| *weight <= 1000)
}

#[cfg(test)]
mod tests;
