//! What the lab's origin states about a response in fields of their own, so that a client can compare it with what arrived. Pure.
//!
//! A cache may rewrite `Cache-Control` and the encoding of a body; it forwards fields that it does not know.

use std::{fmt, str::FromStr, time::Duration};

/// Has a [`Statement`]: `200 65536 9ae0daaf 60 30 0`.
pub const STATEMENT_FIELD: &str = "stockade-sent";
/// When the origin got the request: seconds since 1970, with six decimals.
pub const TIME_FIELD: &str = "stockade-time";
/// Seconds from then until the response, if they are at least [`DELAY_MIN`].
pub const DELAY_FIELD: &str = "stockade-delay";
pub const DELAY_MIN: Duration = Duration::from_millis(100);
/// Has a [`FieldStatement`] of the field that names the user, if the response is for one user.
pub const OWNER_FIELD: &str = "stockade-owner";
/// Has a [`FieldStatement`] of the field by which the origin chose the variant.
pub const VARIANT_FIELD: &str = "stockade-variant";

/// The response that the origin sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement {
    pub status: u16,
    /// `None`: the status is not 200, or the encoding is unknown.
    pub body: Option<BodyStatement>,
    /// `None`: the recipe has no lifetime.
    pub freshness: Option<Freshness>,
}

/// A whole body, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyStatement {
    pub bytes: u64,
    pub crc32: u32,
}

/// How long a shared cache may serve a response without a request to the origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freshness {
    pub lifetime_s: u32,
    /// After the lifetime: `stale-while-revalidate`.
    pub stale_s: u32,
    /// After the lifetime, while the origin fails: `stale-if-error`.
    pub stale_if_error_s: u32,
}

/// A field of the request to the origin: `cookie 9ae0daaf`, or `cookie -` without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldStatement {
    pub name: Box<str>,
    /// As [`values_crc32`] returns it.
    pub values_crc32: Option<u32>,
}

/// The CRC-32 of a field's values, each with a line feed after it; `None`: the request has no such field.
pub fn values_crc32<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<u32> {
    let mut hasher = None;
    for value in values {
        let hasher = hasher.get_or_insert_with(crc32fast::Hasher::new);
        hasher.update(value);
        hasher.update(b"\n");
    }
    hasher.map(crc32fast::Hasher::finalize)
}

impl fmt::Display for FieldStatement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.values_crc32 {
            Some(crc32) => write!(f, "{} {crc32:08x}", self.name),
            None => write!(f, "{} -", self.name),
        }
    }
}

impl FromStr for FieldStatement {
    type Err = NotAStatement;

    fn from_str(text: &str) -> Result<Self, NotAStatement> {
        let (name, crc32) = text.split_once(' ').ok_or(NotAStatement)?;
        let values_crc32 = match crc32 {
            "-" => None,
            crc32 => Some(u32::from_str_radix(crc32, 16).map_err(|_| NotAStatement)?),
        };
        Ok(Self { name: name.into(), values_crc32 })
    }
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        match self.body {
            Some(BodyStatement { bytes, crc32 }) => write!(f, " {bytes} {crc32:08x}")?,
            None => f.write_str(" - -")?,
        }
        match self.freshness {
            Some(Freshness { lifetime_s, stale_s, stale_if_error_s }) => {
                write!(f, " {lifetime_s} {stale_s} {stale_if_error_s}")
            }
            None => f.write_str(" - - -"),
        }
    }
}

/// The text is not a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAStatement;

impl FromStr for Statement {
    type Err = NotAStatement;

    fn from_str(text: &str) -> Result<Self, NotAStatement> {
        let mut words = text.split(' ');
        let mut word = || words.next().ok_or(NotAStatement);
        let number = |word: &str| word.parse::<u32>().map_err(|_| NotAStatement);
        let status = word()?.parse().map_err(|_| NotAStatement)?;
        let body = match (word()?, word()?) {
            ("-", "-") => None,
            (bytes, crc32) => Some(BodyStatement {
                bytes: bytes.parse().map_err(|_| NotAStatement)?,
                crc32: u32::from_str_radix(crc32, 16).map_err(|_| NotAStatement)?,
            }),
        };
        let freshness = match (word()?, word()?, word()?) {
            ("-", "-", "-") => None,
            (lifetime, stale, stale_if_error) => Some(Freshness {
                lifetime_s: number(lifetime)?,
                stale_s: number(stale)?,
                stale_if_error_s: number(stale_if_error)?,
            }),
        };
        Ok(Self { status, body, freshness })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statement_is_read_as_it_is_written() {
        let body = Some(BodyStatement { bytes: 65_536, crc32: 0x9ae0 });
        let freshness = Some(Freshness { lifetime_s: 60, stale_s: 30, stale_if_error_s: 0 });
        for (statement, text) in [
            (Statement { status: 200, body, freshness }, "200 65536 00009ae0 60 30 0"),
            (Statement { status: 503, body: None, freshness }, "503 - - 60 30 0"),
            (Statement { status: 200, body, freshness: None }, "200 65536 00009ae0 - - -"),
        ] {
            assert_eq!(statement.to_string(), text);
            assert_eq!(text.parse(), Ok(statement));
        }
        for text in ["", "200", "200 1 x - - -", "200 - - 1 2", "x - - - - -", "200 - - -1 0 0"] {
            assert_eq!(text.parse::<Statement>(), Err(NotAStatement), "{text}");
        }
    }

    #[test]
    fn field_is_stated_by_its_name_and_a_checksum() {
        for (values, text) in [
            (&[][..], "cookie -"),
            (&["12345678"][..], "cookie 74245830"),
            (&["a", "b"], "cookie 18572a97"),
            (&[""], "cookie 32d70693"),
        ] {
            let values_crc32 = values_crc32(values.iter().map(|value| value.as_bytes()));
            let statement = FieldStatement { name: "cookie".into(), values_crc32 };
            assert_eq!(statement.to_string(), text);
            assert_eq!(text.parse(), Ok(statement));
        }
        for text in ["", "cookie", "cookie x"] {
            assert_eq!(text.parse::<FieldStatement>(), Err(NotAStatement), "{text}");
        }
    }
}
