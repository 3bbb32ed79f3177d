//! The text formats of Prometheus for families: OpenMetrics 1.0 and version 0.0.4.

use stockade_model::telemetry::MetricUnit;

use super::{
    family::{Family, FamilyKind, Series, SeriesValue},
    prometheus::{self, Label, Text},
};

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    OpenMetrics,
    /// For clients that do not accept OpenMetrics.
    Prometheus,
}

impl Exposition {
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => prometheus::CONTENT_TYPE,
        }
    }

    /// A page with these families.
    #[must_use]
    pub fn render(self, families: &[Family]) -> String {
        let mut text = Text::default();
        for family in families {
            self.head(&mut text, family);
            family.series.iter().for_each(|series| self.series(&mut text, family, series));
        }
        let end = if self == Self::OpenMetrics { "# EOF\n" } else { "" };
        text.finish() + end
    }

    fn head(self, text: &mut Text, family: &Family) {
        let (name, kind) = match (family.kind, self) {
            (FamilyKind::Counter, Self::OpenMetrics) => (family.name.trim_end_matches("_total"), "counter"),
            (FamilyKind::Counter, Self::Prometheus) => (family.name, "counter"),
            (FamilyKind::Gauge, _) | (FamilyKind::Info, Self::Prometheus) => (family.name, "gauge"),
            (FamilyKind::Histogram, _) => (family.name, "histogram"),
            (FamilyKind::Info, Self::OpenMetrics) => (family.name.trim_end_matches("_info"), "info"),
        };
        text.line(format_args!("# TYPE {name} {kind}"));
        let unit = match family.unit {
            MetricUnit::Seconds => "seconds",
            MetricUnit::Bytes => "bytes",
            MetricUnit::Count => "",
        };
        if self == Self::OpenMetrics && !unit.is_empty() {
            text.line(format_args!("# UNIT {name} {unit}"));
        }
        let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
        let help = if self == Self::OpenMetrics { help.replace('"', "\\\"") } else { help };
        text.line(format_args!("# HELP {name} {help}"));
    }

    fn series(self, text: &mut Text, family: &Family, series: &Series) {
        let names: Vec<String> = series.labels.iter().map(|(name, _)| label_name(name)).collect();
        let mut labels: Vec<Label<'_>> = Vec::new();
        for (name, (_, value)) in names.iter().zip(&series.labels) {
            // Of two attributes with one name, the first counts.
            if labels.iter().all(|(known, _)| known != name) {
                labels.push((name, value));
            }
        }
        match &series.value {
            SeriesValue::Number(value) => text.sample(family.name, &labels, value),
            SeriesValue::Times(times) => text.times(family.name, &labels, times, |bound| match self {
                // 1 is 1.0.
                Self::OpenMetrics => format!("{bound:?}"),
                Self::Prometheus => bound.to_string(),
            }),
        }
    }
}

/// Attributes of OpenTelemetry may have dots and other characters that labels must not have.
fn label_name(attribute: &str) -> String {
    let name = attribute.replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "_");
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::TimeHistogram;

    fn families() -> Vec<Family> {
        let series = |value| Series { labels: vec![("error.type", "a\"b\\c\nd".to_owned())], value };
        let times =
            TimeHistogram { bounds_seconds: vec![0.000_05, 1.0], counts: vec![1, 2, 3], sum_seconds: 9.5 };
        let family = |name, kind, unit, value| Family {
            name,
            kind,
            unit,
            help: "A \"help\".".to_owned(),
            series: vec![series(value)],
        };
        vec![
            family("target_info", FamilyKind::Info, MetricUnit::Count, SeriesValue::Number(1.0)),
            family("a_bytes_total", FamilyKind::Counter, MetricUnit::Bytes, SeriesValue::Number(1e15)),
            family("b_seconds", FamilyKind::Histogram, MetricUnit::Seconds, SeriesValue::Times(times)),
        ]
    }

    #[test]
    fn openmetrics_has_units_and_an_end() {
        let label = r#"error_type="a\"b\\c\nd""#;
        let expected = format!(
            "# TYPE target info\n# HELP target A \\\"help\\\".\ntarget_info{{{label}}} 1\n\
             # TYPE a_bytes counter\n# UNIT a_bytes bytes\n# HELP a_bytes A \\\"help\\\".\n\
             a_bytes_total{{{label}}} 1000000000000000\n\
             # TYPE b_seconds histogram\n# UNIT b_seconds seconds\n# HELP b_seconds A \\\"help\\\".\n\
             b_seconds_bucket{{{label},le=\"5e-5\"}} 1\nb_seconds_bucket{{{label},le=\"1.0\"}} 3\n\
             b_seconds_bucket{{{label},le=\"+Inf\"}} 6\nb_seconds_sum{{{label}}} 9.5\nb_seconds_count{{{label}}} 6\n\
             # EOF\n"
        );
        assert_eq!(Exposition::OpenMetrics.render(&families()), expected);
    }

    #[test]
    fn attributes_become_labels() {
        let labels = ["a.b", "a_b", "1/x", "c"].map(|name| (name, name.to_owned())).to_vec();
        let series = vec![Series { labels, value: SeriesValue::Number(1.0) }];
        let family = Family { series, ..families().remove(0) };
        let text = Exposition::OpenMetrics.render(&[family]);
        assert!(text.contains("target_info{a_b=\"a.b\",_1_x=\"1/x\",c=\"c\"} 1\n"), "{text}");
    }

    #[test]
    fn prometheus_text_has_neither() {
        let text = Exposition::Prometheus.render(&families());
        assert!(text.starts_with("# TYPE target_info gauge\n# HELP target_info A \"help\".\n"), "{text}");
        assert!(
            text.contains("\n# TYPE a_bytes_total counter\n") && text.contains("le=\"1\"} 3\n"),
            "{text}"
        );
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
    }
}
