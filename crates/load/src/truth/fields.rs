//! The fields of a response in which its origin states what it sent. Pure.

use std::time::Duration;

use stockade_record::statement::{
    DELAY_FIELD, FieldStatement, OWNER_FIELD, STATEMENT_FIELD, TIME_FIELD, VARIANT_FIELD,
};

use super::{ComparedField, StatedAnswer};

/// The fields of a response that are compared with it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StatementFields<'a> {
    sent: Option<&'a [u8]>,
    time: Option<&'a [u8]>,
    delay: Option<&'a [u8]>,
    owner: Option<&'a [u8]>,
    variant: Option<&'a [u8]>,
    has_validator: bool,
}

impl<'a> StatementFields<'a> {
    pub(crate) fn record(&mut self, name: &str, value: &'a [u8]) {
        // The length rejects most fields at once.
        match name.len() {
            4 => self.has_validator |= name.eq_ignore_ascii_case("etag"),
            13 if name.eq_ignore_ascii_case(STATEMENT_FIELD) => self.sent = Some(value),
            13 if name.eq_ignore_ascii_case(TIME_FIELD) => self.time = Some(value),
            13 => self.has_validator |= name.eq_ignore_ascii_case("last-modified"),
            14 if name.eq_ignore_ascii_case(DELAY_FIELD) => self.delay = Some(value),
            14 if name.eq_ignore_ascii_case(OWNER_FIELD) => self.owner = Some(value),
            16 if name.eq_ignore_ascii_case(VARIANT_FIELD) => self.variant = Some(value),
            _ => {}
        }
    }

    /// `None`: the response has no valid statement. `received`, `purge_sent`, `body` and what the client sent
    /// are added when the response is complete.
    pub(crate) fn stated(
        &self,
        age_s: impl FnOnce() -> Option<u64>,
        may_be_fallback: bool,
    ) -> Option<StatedAnswer> {
        let statement = std::str::from_utf8(self.sent?).ok()?.parse().ok()?;
        Some(StatedAnswer {
            statement,
            made: seconds(self.time?)?,
            delay: self.delay.and_then(seconds).unwrap_or_default(),
            owner: self.owner.and_then(stated_field),
            variant: self.variant.and_then(stated_field),
            has_validator: self.has_validator,
            age_s: age_s(),
            may_be_fallback,
            received: Duration::ZERO,
            purge_sent: None,
            body: None,
        })
    }
}

fn stated_field(value: &[u8]) -> Option<ComparedField> {
    let stated: FieldStatement = std::str::from_utf8(value).ok()?.parse().ok()?;
    Some(ComparedField { stated, sent_crc32: None })
}

fn seconds(value: &[u8]) -> Option<Duration> {
    Duration::try_from_secs_f64(std::str::from_utf8(value).ok()?.trim().parse().ok()?).ok()
}
