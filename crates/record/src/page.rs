//! The parts that the HTML pages share: the reports of runs, loads and plans, and the dashboard of the proxy. Each page is one file.

/// The colours of both themes as variables. `data-theme` of the root element chooses one; without it the system does.
pub const THEME_STYLE: &str = include_str!("page/theme.css");

/// uPlot 1.6.32 draws series in a canvas. Its licence asks for this notice.
pub const UPLOT_NOTICE: &str = "/*! uPlot 1.6.32, (c) 2022 Leon Sorokin, MIT license */\n";

/// Defines `uPlot`. Minified, unchanged.
pub const UPLOT_SCRIPT: &str = include_str!("page/vendor/uplot.min.js");

pub const UPLOT_STYLE: &str = include_str!("page/vendor/uplot.min.css");

/// Defines `page`: colours, numbers as text, elements and axes, for the script of each page. It needs a body.
pub const PAGE_SCRIPT: &str = include_str!("page/page.js");
