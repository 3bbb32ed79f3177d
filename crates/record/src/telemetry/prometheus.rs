//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Arguments, Display, Write};

use stockade_model::telemetry::{Declaration, MetricKind};

use super::{HistogramDeclaration, TimeHistogram};

/// The content type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page under construction.
#[derive(Debug, Default)]
pub struct Text(String);

/// A label with its value.
pub type Label<'a> = (&'a str, &'a str);

impl Text {
    /// The page.
    #[must_use]
    pub fn finish(self) -> String {
        self.0
    }

    /// All metrics of some snapshots, family by family, each snapshot with its labels.
    pub fn snapshots<S>(&mut self, metrics: &[Declaration<S>], snapshots: &[(&[Label<'_>], &S)]) {
        for family in metrics.chunk_by(|a, b| a.family == b.family) {
            let has_value = |metric: &Declaration<S>| {
                snapshots.iter().any(|(_, snapshot)| (metric.read)(snapshot).is_some())
            };
            if !snapshots.is_empty() && !family.iter().any(has_value) {
                continue;
            }
            let Declaration { family: name, kind, .. } = family[0];
            self.family(name, kind, &help(family));
            for (labels, snapshot) in snapshots {
                for metric in family {
                    let Some(value) = (metric.read)(snapshot) else { continue };
                    let labels: Vec<Label<'_>> = labels.iter().copied().chain(metric.label).collect();
                    self.sample(name, &labels, value);
                }
            }
        }
    }

    /// All histograms of some snapshots, each snapshot with its labels.
    pub fn histograms<S>(
        &mut self,
        histograms: &[HistogramDeclaration<S>],
        snapshots: &[(&[Label<'_>], &S)],
    ) {
        for HistogramDeclaration { family, help, read, .. } in histograms {
            if snapshots.iter().all(|(_, snapshot)| read(snapshot).is_none()) {
                continue;
            }
            let _ = writeln!(self.0, "# HELP {family} {help}\n# TYPE {family} histogram");
            for (labels, snapshot) in snapshots {
                let Some(times) = read(snapshot) else { continue };
                self.times(family, labels, times, |bound| bound.to_string());
            }
        }
    }

    /// The lines of one histogram; `written`: the form of its bounds.
    pub(super) fn times(
        &mut self,
        family: &str,
        labels: &[Label<'_>],
        times: &TimeHistogram,
        written: impl Fn(f64) -> String,
    ) {
        let bucket = format!("{family}_bucket");
        let mut cumulative = 0;
        for (bound, more) in times.bounds_seconds.iter().zip(&times.counts) {
            cumulative += more;
            self.sample(&bucket, &[labels, &[("le", written(*bound).as_str())]].concat(), cumulative);
        }
        self.sample(&bucket, &[labels, &[("le", "+Inf")]].concat(), times.count());
        self.sample(&format!("{family}_sum"), labels, times.sum_seconds);
        self.sample(&format!("{family}_count"), labels, times.count());
    }

    /// The head of a family.
    pub fn family(&mut self, name: &str, kind: MetricKind, help: &str) {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}", help = help.trim());
    }

    /// A line of a head.
    pub(super) fn line(&mut self, line: Arguments<'_>) {
        let _ = writeln!(self.0, "{line}");
    }

    /// One line.
    pub fn sample(&mut self, name: &str, labels: &[Label<'_>], value: impl Display) {
        self.0.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            self.0.push(if index == 0 { '{' } else { ',' });
            let _ = write!(self.0, "{label}=\"");
            for c in value.chars() {
                match c {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }
}

/// The help of a family: that of its one field, or of all by label.
fn help<S>(family: &[Declaration<S>]) -> String {
    match family {
        [one] => one.help.trim().to_owned(),
        several => {
            let line = |metric: &Declaration<S>| match metric.label {
                Some((_, value)) => format!("{value}: {}", metric.help.trim()),
                None => metric.help.trim().to_owned(),
            };
            several.iter().map(line).collect::<Vec<_>>().join(" ")
        }
    }
}
