//! Plots as inline SVG. Text and axes take the colour of the page, which suits light and dark.

use plotters::{coord::Shift, coord::ranged1d::ValueFormatter, prelude::*};

pub(super) struct PlotLine {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

pub(super) struct Plot<'a> {
    pub(super) title: &'a str,
    pub(super) x_label: &'a str,
    pub(super) y_label: &'a str,
    /// Logarithmic, or linear from the first value to the last.
    pub(super) x_is_log: bool,
    pub(super) lines: &'a [PlotLine],
    /// Logarithmic, or linear from 0.
    pub(super) y_is_log: bool,
    /// Formats a value of the x axis.
    pub(super) x_text: fn(f64) -> String,
    /// The number of labels on the x axis.
    pub(super) x_ticks: usize,
}

/// Distinguishable with and without colour vision (Okabe and Ito, 2008). Black is replaced by the colour of the text.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x80, 0x80, 0x80),
    BLACK,
];

const WIDTH: u32 = 560;
const HEIGHT: u32 = 320;
/// The legend: the width of a line's sample, and of a letter.
const SAMPLE_WIDTH: u32 = 24;
const LETTER_WIDTH: u32 = 7;

/// Draws the lines. Empty if there are no points.
pub(super) fn svg(plot: &Plot<'_>) -> String {
    let points = || plot.lines.iter().flat_map(|line| &line.points);
    let (Some(x), Some(y)) = (span(points().map(|(x, _)| *x)), span(points().map(|(_, y)| *y))) else {
        return String::new();
    };
    let mut svg = String::new();
    let longest = plot.lines.iter().map(|line| line.name.chars().count()).max().unwrap_or_default();
    let legend_width = SAMPLE_WIDTH + 16 + LETTER_WIDTH * u32::try_from(longest.min(30)).unwrap_or_default();
    let area = SVGBackend::with_string(&mut svg, (WIDTH + legend_width, HEIGHT)).into_drawing_area();
    let (chart, beside) = area.split_horizontally(WIDTH);
    let drawn = draw(plot, &chart, x, y).and_then(|()| legend(plot, &beside)).and_then(|()| area.present());
    drop((area, chart, beside));
    if drawn.is_err() {
        return String::new();
    }
    svg.replace("#000000", "currentColor")
}

/// From the minimum to the maximum, widened around a single value; `None` without values.
fn span(values: impl Iterator<Item = f64> + Clone) -> Option<(f64, f64)> {
    let least = values.clone().min_by(f64::total_cmp)?.max(1e-3);
    let most = values.max_by(f64::total_cmp)?.max(least);
    if least < most { Some((least, most)) } else { Some((least / 2.0, most * 2.0)) }
}

type Drawn<'s> = Result<(), DrawingAreaErrorKind<<SVGBackend<'s> as DrawingBackend>::ErrorType>>;

fn draw<'s>(
    plot: &Plot<'_>,
    area: &DrawingArea<SVGBackend<'s>, Shift>,
    x: (f64, f64),
    y: (f64, f64),
) -> Drawn<'s> {
    let mut builder = ChartBuilder::on(area);
    builder.caption(plot.title, ("sans-serif", 15)).margin(8).margin_right(28);
    builder.x_label_area_size(38).y_label_area_size(58);
    let (x_log, x_linear) = ((x.0..x.1).log_scale(), x.0..x.1);
    let (y_log, y_linear) = ((y.0 / 1.3..y.1 * 1.3).log_scale(), 0.0..y.1 * 1.1);
    match (plot.x_is_log, plot.y_is_log) {
        (true, true) => lines(plot, &mut builder.build_cartesian_2d(x_log, y_log)?)?,
        (true, false) => lines(plot, &mut builder.build_cartesian_2d(x_log, y_linear)?)?,
        (false, true) => lines(plot, &mut builder.build_cartesian_2d(x_linear, y_log)?)?,
        (false, false) => lines(plot, &mut builder.build_cartesian_2d(x_linear, y_linear)?)?,
    }
    Ok(())
}

/// Later lines are thinner, so that they do not hide earlier ones.
fn style(plot: &Plot<'_>, index: usize) -> ShapeStyle {
    let width = 2 + u32::try_from((plot.lines.len() - 1 - index).min(4)).unwrap_or_default();
    COLOURS[index % COLOURS.len()].stroke_width(width)
}

/// The names of the lines, one below the other.
fn legend<'s>(plot: &Plot<'_>, area: &DrawingArea<SVGBackend<'s>, Shift>) -> Drawn<'s> {
    let text = ("sans-serif", 12).into_text_style(area);
    for ((index, line), y) in plot.lines.iter().enumerate().zip((40..).step_by(18)) {
        area.draw(&PathElement::new([(0, y), (16, y)], style(plot, index)))?;
        area.draw(&Text::new(line.name.as_str(), (SAMPLE_WIDTH.cast_signed(), y - 6), text.clone()))?;
    }
    Ok(())
}

fn lines<'a, 's: 'a, X, Y>(
    plot: &Plot<'_>,
    chart: &mut ChartContext<'a, SVGBackend<'s>, Cartesian2d<X, Y>>,
) -> Drawn<'s>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let x_text = plot.x_text;
    chart
        .configure_mesh()
        .x_desc(plot.x_label)
        .y_desc(plot.y_label)
        .x_labels(plot.x_ticks)
        .y_labels(6)
        .x_label_formatter(&|x| x_text(*x))
        // Rounds away floating-point error.
        .y_label_formatter(&|y| ((y * 1e6).round() / 1e6).to_string())
        .label_style(("sans-serif", 12))
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(0x80, 0x80, 0x80).mix(0.25))
        .draw()?;
    for (index, line) in plot.lines.iter().enumerate() {
        let points = line.points.iter().map(|(x, y)| (*x, y.max(1e-3)));
        chart.draw_series(LineSeries::new(points, style(plot, index)))?;
    }
    Ok(())
}
