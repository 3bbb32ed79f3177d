//! A strategy as it is shown: under the names of a file, times with a unit, `"none"` for what is off.

#![expect(clippy::ref_option, reason = "serde passes a reference to the field")]

use std::time::Duration;

use serde::{Serialize, Serializer};
use stockade_model::units::format_exact_duration;

use crate::{Policy, strategy::HedgeAfter};

pub(crate) fn time<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format_exact_duration(*time))
}

pub(crate) fn time_or_none<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    or_none(&time.map(format_exact_duration), to)
}

pub(crate) fn hedge_after<S: Serializer>(after: &Option<HedgeAfter>, to: S) -> Result<S::Ok, S::Error> {
    match after {
        Some(HedgeAfter::Learned) => to.serialize_str("learned"),
        Some(HedgeAfter::Time(after)) => time(after, to),
        None => to.serialize_str("none"),
    }
}

pub(crate) fn or_none<T: Serialize, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => value.serialize(to),
        None => to.serialize_str("none"),
    }
}

pub(crate) fn policy<S: Serializer>(policy: &Policy, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(policy.name)
}
