//! Durations in an HDR histogram with three significant digits.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use hdrhistogram::{
    Histogram as Hdr,
    serialization::{Deserializer, Serializer as _, V2DeflateSerializer, V2Serializer},
};
use serde::{Deserialize, Serialize};

use stockade_model::units::milliseconds;

/// A distribution of durations in nanoseconds (Tene's HDR histogram, three significant digits).
///
/// Histograms merge without loss; percentiles are never averaged. The serialized form is the base64 of the V2 format of
/// the HDR histogram libraries.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram(Hdr<u64>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a base64 HDR histogram (V2): {0}")]
pub struct BadHistogram(String);

impl Histogram {
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "three digits are always valid")]
    pub fn new() -> Self {
        Self::growing(Hdr::new(3).expect("three significant digits are valid"))
    }

    /// Lets the histogram grow; without this, it cuts off at its first range.
    fn growing(mut hdr: Hdr<u64>) -> Self {
        hdr.auto(true);
        Self(hdr)
    }

    /// Records a duration. The upper bound is 1,000 hours.
    pub fn record(&mut self, duration: Duration) {
        self.record_many(duration, 1);
    }

    /// Records a duration several times.
    #[expect(clippy::missing_panics_doc, reason = "the histogram grows")]
    pub fn record_many(&mut self, duration: Duration, times: u64) {
        // 1,000 hours exceed any run and limit the size of a histogram to 0.5 MiB.
        const LONGEST_NANOS: u64 = 3_600_000 * 1_000_000_000;
        if times == 0 {
            // Otherwise the duration might become the minimum or the maximum.
            return;
        }
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(LONGEST_NANOS);
        self.0.record_n(nanos, times).expect("a growing histogram takes every value");
    }

    pub fn merge(&mut self, other: &Self) {
        self.0 += &other.0;
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The upper bound of the share `quantile` (0 to 1) of the durations; `None` if the histogram is empty.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        self.nonempty(|hdr| Duration::from_nanos(hdr.value_at_quantile(quantile)))
    }

    /// `None` if the histogram is empty.
    #[must_use]
    pub fn min(&self) -> Option<Duration> {
        self.nonempty(|hdr| Duration::from_nanos(hdr.min()))
    }

    /// `None` if the histogram is empty.
    #[must_use]
    pub fn max(&self) -> Option<Duration> {
        self.nonempty(|hdr| Duration::from_nanos(hdr.max()))
    }

    /// `None` if the histogram is empty.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        self.nonempty(|hdr| Duration::from_secs_f64(hdr.mean() / 1e9))
    }

    /// The standard deviation; `None` if the histogram is empty.
    #[must_use]
    pub fn stdev(&self) -> Option<Duration> {
        self.nonempty(|hdr| Duration::from_secs_f64(hdr.stdev() / 1e9))
    }

    /// The cells in ascending order: the longest duration of the cell and its count. Durations in a cell differ by less
    /// than a thousandth.
    pub fn cells(&self) -> impl Iterator<Item = (Duration, u64)> {
        let cells = self.0.iter_recorded();
        cells.map(|cell| (Duration::from_nanos(cell.value_iterated_to()), cell.count_at_value()))
    }

    /// The number of ranges that the histogram has allocated. Each range is twice as wide as the one before it.
    #[must_use]
    pub fn buckets(&self) -> u64 {
        self.0.buckets().into()
    }

    /// The base64 of the compressed format (V2 with DEFLATE), as in HDR interval logs.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "a vector takes every byte")]
    pub fn compressed(&self) -> String {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&self.0, &mut bytes).expect("a vector takes every byte");
        BASE64_STANDARD.encode(bytes)
    }

    fn nonempty<T>(&self, read: impl FnOnce(&Hdr<u64>) -> T) -> Option<T> {
        (!self.0.is_empty()).then(|| read(&self.0))
    }
}

/// A statistic of durations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    Min,
    Mean,
    Max,
    /// A share of the durations, above 0 and at most 1.
    Quantile(f64),
}

impl Statistic {
    /// `min`, `mean`, `max` or a percentile: `p50`, `p99.9`, `p999`. Digits after two nines are decimals.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let percent = match name {
            "min" => return Some(Self::Min),
            "mean" => return Some(Self::Mean),
            "max" => return Some(Self::Max),
            _ => name.strip_prefix('p')?,
        };
        let (whole, decimals) = match percent.strip_prefix("99") {
            Some(decimals) if !decimals.contains('.') => ("99", decimals),
            _ => percent.split_once('.').unwrap_or((percent, "")),
        };
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !is_number(whole) || !is_number(decimals) {
            return None;
        }
        // Division by 100 would round.
        let quantile: f64 = match whole {
            "100" if decimals.is_empty() => 1.0,
            whole if whole.len() <= 2 => format!("0.{whole:0>2}{decimals}").parse().ok()?,
            _ => return None,
        };
        (quantile > 0.0).then_some(Self::Quantile(quantile))
    }

    /// `None` if the histogram is empty.
    #[must_use]
    pub fn of(self, durations: &Histogram) -> Option<Duration> {
        match self {
            Self::Min => durations.min(),
            Self::Mean => durations.mean(),
            Self::Max => durations.max(),
            Self::Quantile(quantile) => durations.quantile(quantile),
        }
    }

    /// The share of the durations that are at most this; of a mean, that of the percentile that varies as much in a load with one
    /// stall.
    #[must_use]
    pub fn quantile(self) -> f64 {
        match self {
            Self::Min => 0.0,
            Self::Mean => 0.99,
            Self::Max => 1.0,
            Self::Quantile(quantile) => quantile,
        }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<Duration> for Histogram {
    fn from_iter<I: IntoIterator<Item = Duration>>(durations: I) -> Self {
        let mut histogram = Self::new();
        durations.into_iter().for_each(|duration| histogram.record(duration));
        histogram
    }
}

impl From<Histogram> for String {
    fn from(histogram: Histogram) -> Self {
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&histogram.0, &mut bytes).expect("a vector takes every byte");
        BASE64_STANDARD.encode(bytes)
    }
}

impl TryFrom<String> for Histogram {
    type Error = BadHistogram;

    fn try_from(text: String) -> Result<Self, BadHistogram> {
        let bytes = BASE64_STANDARD.decode(text).map_err(|error| BadHistogram(error.to_string()))?;
        check_head(&bytes).map_err(|reason| BadHistogram(reason.to_owned()))?;
        let hdr = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| BadHistogram(error.to_string()))?;
        Ok(Self::growing(hdr))
    }
}

/// Checks the head of the V2 format before memory is allocated for it: cookie, length of the payload, normalizing offset, digits.
fn check_head(bytes: &[u8]) -> Result<(), &'static str> {
    const HEAD_BYTES: usize = 40;
    let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    match (word(4), word(12)) {
        (Some(length), _) if bytes.len().checked_sub(HEAD_BYTES) < Some(length as usize) => {
            Err("it is cut short")
        }
        (Some(_), Some(3)) => Ok(()),
        (Some(_), Some(_)) => Err("it has other than three digits"),
        _ => Err("it is cut short"),
    }
}

impl Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&String::from(self.clone()))
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::try_from(String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// The figures of a distribution in milliseconds, in the shape of the JSON contract.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Distribution {
    pub min_ms: f64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    pub mean_ms: f64,
}

impl Distribution {
    /// `None` for an empty histogram. `exact`: the shortest and the longest duration, if known exactly.
    #[must_use]
    pub fn of(histogram: &Histogram, exact: Option<(f64, f64)>) -> Option<Self> {
        let (min_ms, max_ms) = match exact {
            Some(exact) => exact,
            None => (milliseconds(histogram.min()?), milliseconds(histogram.max()?)),
        };
        let at = |quantile| Some(milliseconds(histogram.quantile(quantile)?).clamp(min_ms, max_ms));
        Some(Self {
            min_ms,
            p50_ms: at(0.50)?,
            p90_ms: at(0.90)?,
            p95_ms: at(0.95)?,
            p99_ms: at(0.99)?,
            p999_ms: at(0.999)?,
            max_ms,
            mean_ms: milliseconds(histogram.mean()?).clamp(min_ms, max_ms),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_equal_durations_are_recorded_at_once() {
        let mut many = Histogram::new();
        many.record_many(Duration::from_millis(7), 3);
        many.record_many(Duration::from_millis(8), 0);
        assert_eq!(many, [7, 7, 7].map(Duration::from_millis).into_iter().collect());
    }

    #[test]
    fn merge_equals_recording_in_one_histogram() {
        let millis = |range: std::ops::Range<u64>| range.map(Duration::from_millis).collect::<Histogram>();
        let mut merged = millis(1..500);
        merged.merge(&millis(500..1001));
        assert_eq!(merged, millis(1..1001));
        assert_eq!(merged.count(), 1000);
        let p99 = merged.quantile(0.99).unwrap();
        assert!(p99.abs_diff(Duration::from_millis(990)) < Duration::from_millis(1), "{p99:?}");
    }

    #[test]
    fn serialization_round_trips() {
        let histogram: Histogram =
            [1, 90_400, 7_000_000, 3_600_000_000_000].map(Duration::from_nanos).into_iter().collect();
        let text = String::from(histogram.clone());
        assert_eq!(Histogram::try_from(text), Ok(histogram));
        for broken in ["", "&", "AAAA"] {
            assert!(Histogram::try_from(broken.to_owned()).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn cells_contain_every_recorded_duration() {
        let histogram: Histogram = [5, 5, 1_000_000].map(Duration::from_nanos).into_iter().collect();
        let cells: Vec<_> = histogram.cells().collect();
        assert_eq!(cells, [(Duration::from_nanos(5), 2), (Duration::from_nanos(1_000_447), 1)]);
        assert_eq!(Histogram::new().cells().count(), 0);
    }

    #[test]
    fn compressed_form_round_trips() {
        let histogram: Histogram = (1..500).map(Duration::from_micros).collect();
        let bytes = BASE64_STANDARD.decode(histogram.compressed()).unwrap();
        let hdr: Hdr<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
        assert_eq!(hdr, histogram.0);
    }

    #[test]
    fn percentiles_have_digits_after_two_nines_or_a_point() {
        for (name, quantile) in [
            ("p50", 0.5),
            ("p5", 0.05),
            ("p99", 0.99),
            ("p99.9", 0.999),
            ("p999", 0.999),
            ("p9999", 0.9999),
            ("p12.5", 0.125),
            ("p100", 1.0),
        ] {
            assert_eq!(Statistic::named(name), Some(Statistic::Quantile(quantile)), "{name}");
        }
        for name in ["p", "p0", "p101", "p100.1", "p9e1", "p-1", "p.5", "p99.9.9", "meen", ""] {
            assert_eq!(Statistic::named(name), None, "{name}");
        }
    }

    #[test]
    fn empty_histogram_has_no_figures() {
        let empty = Histogram::new();
        assert_eq!((empty.min(), empty.mean(), empty.quantile(0.5), empty.max()), (None, None, None, None));
    }
}
