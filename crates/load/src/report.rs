//! Reports of a run, one file per format.
//!
//! Most formats are folds over a [`Summary`](crate::summary::Summary), rendered at the end of the run. With the feature
//! `http` there are also encoders, which write samples while the run continues, in constant memory.

mod buckets;
#[cfg(feature = "http")]
mod encoder;
mod figures;
mod format;
mod hdrplot;
mod hgrm;
mod hist;
#[cfg(feature = "http")]
mod hlog;
mod json;
pub mod openmetrics;
#[cfg(feature = "http")]
pub mod results;
mod siege;
mod siege_json;
mod text;
mod timestamp;
mod vegeta;

pub use buckets::{Buckets, BucketsError, ReportOptions};
#[cfg(feature = "http")]
pub use encoder::{RunHeader, SampleEncoder, SampleWriter};
pub use format::{FORMATS, Render};
#[cfg(feature = "http")]
pub use hlog::HistogramLog;
pub use text::expectation_lines;

/// How to have the outcomes of a cache that does not state them.
pub const REPORT_OUTCOMES: &str = "to know it, write `add_header X-Cache-Status $upstream_cache_status always;` in nginx, and set \
                                   `resp.http.X-Cache` to HIT or MISS in vcl_deliver of Varnish";

#[cfg(all(test, feature = "http"))]
mod tests;
