//! The registry of report formats.

use stockade_model::registry::{Registry, ReportFormat};

use super::{ReportOptions, hdrplot, hgrm, hist, json, openmetrics, siege, siege_json, text, vegeta};
#[cfg(feature = "http")]
use super::{
    encoder::{RunHeader, SampleEncoder},
    hlog::HistogramLog,
    results::CsvEncoder,
};
use crate::summary::Summary;

/// How a report is made.
#[derive(Clone, Copy, Debug)]
pub enum Render {
    /// From the summary, at the end of the run.
    Fold(fn(&Summary, &ReportOptions) -> String),
    /// From the samples, while the run continues.
    #[cfg(feature = "http")]
    Stream(fn(&RunHeader) -> Box<dyn SampleEncoder>),
}

/// Every format of a load.
pub static FORMATS: Registry<ReportFormat<Render>> = Registry::new(&[
    fold("text", "the load, its results and their validity, to read", text::render),
    fold("json", "Vegeta's JSON report, with Stockade's own figures under `stockade`", json::render),
    fold("vegeta", "the text of `vegeta report`", vegeta::render),
    fold("vegeta-hist", "the text of `vegeta report -type=hist[...]`", hist::render),
    fold("hdrplot", "the text of `vegeta report -type=hdrplot`", hdrplot::render),
    fold("hgrm", "percentiles in ms, as HdrHistogram for Java prints them", hgrm::render),
    #[cfg(feature = "http")]
    stream("hlog", "an HdrHistogram interval log: one histogram a second, in ns", |header| {
        Box::new(HistogramLog::new(header))
    }),
    fold("siege", "the final text of siege (until 4.1.6)", siege::render),
    fold("siege-json", "the output of `siege -j`", siege_json::render),
    fold("openmetrics", "counts and histograms for Prometheus, as OpenMetrics 1.0", openmetrics::render),
    #[cfg(feature = "http")]
    stream("csv", "every sample, as `vegeta encode --to csv` writes it", |header| {
        Box::new(CsvEncoder::new(header))
    }),
]);

const fn fold(
    name: &'static str,
    summary: &'static str,
    render: fn(&Summary, &ReportOptions) -> String,
) -> ReportFormat<Render> {
    ReportFormat::new(name, summary, Render::Fold(render))
}

#[cfg(feature = "http")]
const fn stream(
    name: &'static str,
    summary: &'static str,
    new: fn(&RunHeader) -> Box<dyn SampleEncoder>,
) -> ReportFormat<Render> {
    ReportFormat::new(name, summary, Render::Stream(new))
}
