//! Which fields of a request select an answer (`Vary`; RFC 9110, 12.5.5; RFC 9111, 4.1), and what they select.
//!
//! Values are compared in one spelling: white space and the number of lines do not matter, nor does the order of
//! a list of weighted choices, nor the case of its names. `User-Agent`, `Cookie` and others whose commas are no
//! separators are compared as they are.

use std::fmt;

use http::{
    HeaderMap, HeaderName,
    header::{
        ACCEPT, ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE, AUTHORIZATION, COOKIE, HOST, ORIGIN,
        REFERER, USER_AGENT, VARY,
    },
};
use smallvec::SmallVec;

use super::field::{elements, listed, position, trim};

/// More fields than that are not told apart: the answer depends on anything.
const FIELDS_MOST: usize = 32;

/// More choices than that are not sorted, but compared as they are.
const CHOICES_MOST: usize = 64;

/// What an answer depends on, besides its URI.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Vary {
    /// Nothing.
    None,
    /// These fields of the request, sorted, each once.
    Fields(SmallVec<[HeaderName; 2]>),
    /// More than the request (`*`), or what cannot be read: it may not be used again.
    Any,
}

impl Vary {
    /// Of an answer's head.
    #[must_use]
    pub fn of(response: &HeaderMap) -> Self {
        if !response.contains_key(VARY) {
            return Self::None;
        }
        let mut fields: SmallVec<[HeaderName; 2]> = SmallVec::new();
        for element in listed(response, &VARY) {
            match HeaderName::from_bytes(element) {
                // A star is a name of a field as well, as far as its letters go.
                Ok(name) if element != b"*" && fields.len() <= FIELDS_MOST => fields.push(name),
                _ => return Self::Any,
            }
        }
        fields.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        fields.dedup();
        match fields.len() {
            0 => Self::None,
            1..=FIELDS_MOST => Self::Fields(fields),
            _ => Self::Any,
        }
    }

    /// The fields.
    #[must_use]
    pub fn fields(&self) -> &[HeaderName] {
        if let Self::Fields(fields) = self { fields } else { &[] }
    }

    /// What this request selects: that of its fields which the answer depends on.
    #[must_use]
    pub fn selecting(&self, request: &HeaderMap) -> Selecting {
        Selecting(self.spelled(request).as_slice().into())
    }

    /// Whether a request selects what another has selected. Nothing matches [`Vary::Any`].
    #[must_use]
    pub fn matches(&self, selected: &Selecting, request: &HeaderMap) -> bool {
        match self {
            Self::None => true,
            Self::Any => false,
            Self::Fields(_) => *self.spelled(request) == *selected.0,
        }
    }

    fn spelled(&self, request: &HeaderMap) -> Buffer {
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

/// What a request has selected, under one [`Vary`]: the values of its fields, in one spelling.
#[derive(Clone, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Selecting(Box<[u8]>);

impl Selecting {
    /// Of what [`as_bytes`](Self::as_bytes) has given.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// As bytes, for a key: different ones for different values.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Selecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Selecting({})", self.0.escape_ascii())
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

/// Weighted choices (RFC 9110, 12.4.2), sorted; none if they are no such list, or one with quoted parameters.
fn push_choices(text: &mut Buffer, request: &HeaderMap, name: &HeaderName) -> Option<()> {
    let mut spelled = Buffer::new();
    let mut choices: SmallVec<[Choice; 16]> = SmallVec::new();
    for line in request.get_all(name) {
        if line.as_bytes().contains(&b'"') {
            return None;
        }
        for element in elements(line.as_bytes()) {
            if choices.len() == CHOICES_MOST {
                return None;
            }
            choices.push(Choice::read(&mut spelled, element, *name == ACCEPT_ENCODING)?);
        }
    }
    let named = |choice: &Choice| &spelled[choice.start..choice.end];
    if *name == ACCEPT_ENCODING && !choices.iter().any(|choice| named(choice) == b"*") {
        // What is not named is not wanted, but for `identity`.
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

/// One choice: where its name and parameters are spelled, and its weight.
#[derive(Clone, Copy)]
struct Choice {
    start: usize,
    end: usize,
    thousandths: u16,
}

impl Choice {
    fn read(spelled: &mut Buffer, element: &[u8], is_encoding: bool) -> Option<Self> {
        let start = spelled.len();
        let mut thousandths = 1000;
        for (at, part) in element.split(|byte| *byte == b';').map(trim).enumerate() {
            match part {
                _ if at == 0 => {
                    spelled.extend(part.iter().map(u8::to_ascii_lowercase));
                }
                [b'q' | b'Q', b'=', weight @ ..] => thousandths = weight_of(weight)?,
                _ => {
                    spelled.push(b';');
                    spelled.extend_from_slice(part);
                }
            }
        }
        if is_encoding && matches!(&spelled[start..], b"x-gzip" | b"x-compress") {
            // Other names of the same codings (RFC 9110, 8.4.1).
            spelled.drain(start..start + 2);
        }
        Some(Self { start, end: spelled.len(), thousandths })
    }
}

/// A weight in thousandths (RFC 9110, 12.4.2).
fn weight_of(weight: &[u8]) -> Option<u16> {
    let (whole, part) = match weight {
        [whole] | [whole, b'.'] => (*whole, &[][..]),
        [whole, b'.', part @ ..] if part.len() <= 3 => (*whole, part),
        _ => return None,
    };
    let mut thousandths = position(&[whole])?;
    for place in 0..3 {
        thousandths = thousandths * 10 + part.get(place).map_or(Some(0), |digit| position(&[*digit]))?;
    }
    u16::try_from(thousandths).ok().filter(|weight| *weight <= 1000)
}

#[cfg(test)]
mod tests;
