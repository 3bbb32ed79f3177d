//! The plots of a page as data: `page.js` draws them.

use serde::{Serialize, Serializer, ser::SerializeSeq};

/// All plots of a page. A figure of the page names one by its index.
#[derive(Default, Serialize)]
pub(super) struct PagePlots {
    pub(super) arms: Vec<String>,
    pub(super) plots: Vec<PlotData>,
}

#[derive(Serialize)]
pub(super) struct PlotData {
    pub(super) title: String,
    /// Of the y axis: `ms`, which the page writes as a time, or words.
    pub(super) unit: &'static str,
    pub(super) kind: PlotKind,
    pub(super) x: XAxis,
    /// True: the y axis is logarithmic at first.
    pub(super) is_log: bool,
    /// Plots over time with an equal key share their crosshair.
    pub(super) sync: String,
    pub(super) xs: Column,
    /// The choices of what is shown; empty: all.
    pub(super) views: Vec<String>,
    /// The index of the first view.
    pub(super) view: usize,
    pub(super) lines: Vec<LineData>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) heat: Vec<HeatData>,
    pub(super) cells_per_decade: f64,
    /// The stages of the origin that differ from the first one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) stages: Vec<Stage>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) events: Vec<EventMark>,
    /// Seconds that something outside of the test disturbed.
    pub(super) disturbed: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PlotKind {
    Lines,
    /// The lines of a view lie on one another.
    Stack,
    /// Counts of times, by second and duration.
    Heat,
}

/// The meaning of the x axis. All but seconds are logarithmic.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum XAxis {
    Seconds,
    /// 1 / (1 - quantile).
    Percentile,
    Workers,
    Users,
}

/// A behavior of the origin, in seconds since the start of the load.
#[derive(Clone, Serialize)]
pub(super) struct Stage {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) behavior: String,
}

/// Something that the run did to one of its parts.
#[derive(Clone, Serialize)]
pub(super) struct EventMark {
    /// In seconds since the start of the load.
    pub(super) at: f64,
    pub(super) event: String,
}

#[derive(Serialize)]
pub(super) struct LineData {
    /// Index of its arm, if it is that of one: it has its colour, and is shown with it.
    pub(super) arm: Option<usize>,
    /// Text after the arm's name; may be empty.
    pub(super) name: String,
    /// The view that shows it; `None`: each.
    pub(super) view: Option<String>,
    pub(super) is_dashed: bool,
    pub(super) ys: Column,
}

#[derive(Serialize)]
pub(super) struct HeatData {
    pub(super) arm: usize,
    /// For each second: cell, count, cell, count, ...
    pub(super) cells: Vec<Vec<i64>>,
}

/// Figures of a column, to four significant digits.
pub(super) struct Column(pub(super) Vec<Option<f64>>);

impl Column {
    pub(super) fn has_some(&self) -> bool {
        self.0.iter().flatten().any(|figure| *figure > 0.0)
    }
}

impl FromIterator<Option<f64>> for Column {
    fn from_iter<I: IntoIterator<Item = Option<f64>>>(figures: I) -> Self {
        Self(figures.into_iter().collect())
    }
}

impl Serialize for Column {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(Some(self.0.len()))?;
        for figure in &self.0 {
            match figure.map(rounded) {
                #[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^53")]
                Some(whole) if whole.fract() == 0.0 && whole.abs() < 1e15 => {
                    sequence.serialize_element(&(whole as i64))?;
                }
                figure => sequence.serialize_element(&figure)?,
            }
        }
        sequence.end()
    }
}

pub(super) fn rounded(figure: f64) -> f64 {
    if figure == 0.0 || !figure.is_finite() {
        return figure;
    }
    // A division by a power of ten is exact in the last digit, a multiplication by its inverse is not.
    let decimals = 3.0 - figure.abs().log10().floor();
    let unit = 10_f64.powf(decimals.abs());
    if decimals >= 0.0 { (figure * unit).round() / unit } else { (figure / unit).round() * unit }
}

impl PagePlots {
    /// The plots inside a script element, which no text of theirs can end.
    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default().replace('<', "\\u003c")
    }

    /// Adds a plot, and returns its index.
    pub(super) fn add(&mut self, plot: PlotData) -> usize {
        self.plots.push(plot);
        self.plots.len() - 1
    }
}

impl PlotData {
    pub(super) fn new(title: impl Into<String>, unit: &'static str, x: XAxis, xs: Column) -> Self {
        Self {
            title: title.into(),
            unit,
            kind: PlotKind::Lines,
            x,
            is_log: false,
            sync: String::new(),
            xs,
            views: Vec::new(),
            view: 0,
            lines: Vec::new(),
            heat: Vec::new(),
            cells_per_decade: 1.0,
            stages: Vec::new(),
            events: Vec::new(),
            disturbed: Vec::new(),
        }
    }

    /// A plot of lines with x values of their own.
    pub(super) fn of_points(
        title: impl Into<String>,
        unit: &'static str,
        x: XAxis,
        lines: Vec<PointLine>,
    ) -> Self {
        let mut xs: Vec<f64> = lines.iter().flat_map(|line| &line.points).map(|(x, _)| *x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let line = |line: PointLine| {
            let at = |x: &f64| line.points.iter().find(|(of, _)| of.total_cmp(x).is_eq()).map(|(_, y)| *y);
            let ys = xs.iter().map(at).collect();
            LineData { arm: line.arm, name: line.name, view: None, is_dashed: line.is_dashed, ys }
        };
        let lines = lines.into_iter().map(line).collect();
        Self { lines, ..Self::new(title, unit, x, xs.iter().map(|x| Some(*x)).collect()) }
    }
}

/// A line by its points.
pub(super) struct PointLine {
    pub(super) arm: Option<usize>,
    pub(super) name: String,
    pub(super) is_dashed: bool,
    pub(super) points: Vec<(f64, f64)>,
}
