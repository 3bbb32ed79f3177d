//! A plot over time as a picture: SVG without script, style sheet or font, which a forge shows in Markdown.

use std::{fmt::Write, time::Duration};

use crate::record::Arm;
use maud::{Markup, html};
use stockade_model::units::{format_count, format_milliseconds, format_span};

use super::plots::{LineData, PlotData, rounded};
use crate::report::junit::printable;

/// As on the page, see `page.js`; the last one is the colour of the text.
const COLOURS: [&str; 8] =
    ["#d55e00", "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#808080", "#1a1a1a"];
const STAGES: [&str; 2] = ["#fdeee2", "#fbe3d0"];
const DASH: &str = "4 6";
/// Seconds between two lines of the grid.
const STEPS_S: [u32; 18] =
    [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400, 604_800];

// Pixels. The area of the lines lies between the axes.
const WIDTH: f64 = 800.0;
const LEFT: f64 = 70.0;
const AREA_WIDTH: f64 = WIDTH - LEFT - 20.0;
const AREA_HEIGHT: f64 = 220.0;
const ROW: f64 = 18.0;
/// The most that a character takes on average: an image cannot measure its text.
const CHAR: f64 = 7.0;
const NAME_CHARS_MAX: usize = 48;

/// Draws the lines of a plot, all of them. An arm is named by its index.
pub(super) fn draw(plot: &PlotData, arms: &[Arm]) -> String {
    let names: Vec<String> = plot.lines.iter().map(|line| cut(&name(line, arms))).collect();
    let places = places(&names);
    let rows = places.last().map_or(0.0, |(_, row)| row + 1.0);
    let area = Area::of(plot, ROW * (rows + 2.0));
    let height = area.bottom() + 1.5 * ROW;
    let svg = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(WIDTH) height=(height) viewBox={ "0 0 " (WIDTH) " " (height) }
            role="img" font-family="sans-serif" font-size="12" fill="#1a1a1a" {
            title { (plot.title) }
            rect width="100%" height="100%" fill="#ffffff" {}
            text x="12" y=(ROW) font-weight="bold" { (plot.title) @if plot.unit != "ms" { " (" (plot.unit) ")" } }
            @for ((line, name), (x, row)) in plot.lines.iter().zip(&names).zip(&places) {
                @let y = ROW * (row + 2.0);
                (stroke(line, &format!("M{x} {}h24", y - 4.0)))
                text x=(x + 30.0) y=(y) { (name) }
            }
            @for (index, stage) in plot.stages.iter().enumerate() {
                @let (from, to) = (area.x(stage.from), area.x(stage.to));
                rect x=(px(from)) y=(area.top) width=(px(to - from)) height=(AREA_HEIGHT) fill=(STAGES[index % 2]) {}
            }
            (grid(&area, plot.unit))
            @for line in &plot.lines { (stroke(line, &area.path(&plot.xs.0, &line.ys.0))) }
            @for (index, mark) in plot.events.iter().enumerate() {
                @let (at, name) = (area.x(mark.at), cut(&mark.event));
                @let x = at.min(WIDTH - CHAR * name.chars().count() as f64) + 4.0;
                path d=(format!("M{0} {1}V{2}", px(at), area.top, area.bottom())) fill="none" stroke="#6b6b6b" stroke-dasharray="2 3" {}
                text x=(px(x)) y=(area.bottom() - 14.0 * ((index % 3) as f64) - 4.0)
                    stroke="#ffffff" stroke-width="3" paint-order="stroke" { (name) }
            }
            // Names of neighbours stand in different rows, and end within the picture.
            @for (index, stage) in plot.stages.iter().enumerate() {
                @let name = cut(&stage.behavior);
                @let x = area.x(stage.from).min(WIDTH - CHAR * name.chars().count() as f64) + 4.0;
                text x=(px(x)) y=(area.top + 14.0 * ((index % 3) as f64 + 1.0))
                    stroke="#ffffff" stroke-width="3" paint-order="stroke" { (name) }
            }
        }
    };
    printable(&svg.into_string())
}

fn name(line: &LineData, arms: &[Arm]) -> String {
    let arm = line.arm.and_then(|arm| arms.get(arm)).map_or("", |arm| &arm.name);
    // The only line of an arm that a view shows is named in the title.
    match (line.view.is_some() || line.name.is_empty(), arm) {
        (true, arm) => arm.to_owned(),
        (false, "") => line.name.clone(),
        (false, arm) => format!("{arm} {}", line.name),
    }
}

fn cut(name: &str) -> String {
    match name.char_indices().nth(NAME_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// The x of each name of the legend, and its row.
fn places(names: &[String]) -> Vec<(f64, f64)> {
    let (mut x, mut row) = (12.0, 0.0);
    let place = |name: &String| {
        let width = 44.0 + CHAR * name.chars().count() as f64;
        if x > 12.0 && x + width > WIDTH {
            (x, row) = (12.0, row + 1.0);
        }
        let place = (x, row);
        x += width;
        place
    };
    names.iter().map(place).collect()
}

fn stroke(line: &LineData, path: &str) -> Markup {
    let colour = COLOURS[line.arm.unwrap_or_default() % COLOURS.len()];
    html! {
        path d=(path) fill="none" stroke=(colour) stroke-width="2" stroke-linecap="round" stroke-linejoin="round"
            stroke-dasharray=[line.is_dashed.then_some(DASH)] {}
    }
}

/// Lines at round figures, and the figures.
fn grid(area: &Area, unit: &str) -> Markup {
    html! {
        @for y in steps(area.step, area.most) {
            path d={ "M" (LEFT) " " (px(area.y(y))) "h" (AREA_WIDTH) } stroke="#d9d9d9" {}
            text x=(LEFT - 6.0) y=(px(area.y(y) + 4.0)) text-anchor="end" {
                @if unit == "ms" { (format_milliseconds(y)) } @else { (figure(y)) }
            }
        }
        @for x in steps(area.step_s, area.seconds) {
            path d={ "M" (px(area.x(x))) " " (area.bottom()) "v4" } stroke="#1a1a1a" {}
            text x=(px(area.x(x))) y=(area.bottom() + ROW) text-anchor="middle" {
                (format_span(Duration::from_secs_f64(x)))
            }
        }
    }
}

/// From 0 to the last one that is not above `most`.
fn steps(step: f64, most: f64) -> impl Iterator<Item = f64> {
    (0..=20_u32).map(move |index| f64::from(index) * step).take_while(move |at| *at <= most * 1.000_1)
}

fn figure(figure: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, from 0 to 2^53")]
    match rounded(figure) {
        whole if whole.fract() == 0.0 && whole < 9e15 => format_count(whole as u64),
        figure => figure.to_string(),
    }
}

/// Tenths of a pixel.
fn px(at: f64) -> f64 {
    (at * 10.0).round() / 10.0
}

/// From figures to pixels.
struct Area {
    top: f64,
    /// The ends of the axes, and the steps of their grid.
    seconds: f64,
    step_s: f64,
    most: f64,
    step: f64,
}

impl Area {
    fn of(plot: &PlotData, top: f64) -> Self {
        let ends = plot.stages.iter().map(|stage| stage.to).chain(plot.xs.0.iter().copied().flatten());
        let seconds = ends.fold(1.0, f64::max);
        let most = plot.lines.iter().flat_map(|line| &line.ys.0).flatten();
        let most = most.copied().filter(|y| y.is_finite()).fold(0.0, f64::max);
        // A quarter of the axis at least, of 1, 2 or 5 times a power of ten.
        let quarter = if most > 0.0 { most / 4.0 } else { 0.25 };
        let power = 10_f64.powf(quarter.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter();
        let step =
            step.fold(f64::INFINITY, |least, step| if step >= quarter { least.min(step) } else { least });
        let step_s = STEPS_S.map(f64::from).into_iter().find(|step| seconds / step <= 12.0);
        let step_s = step_s.unwrap_or(seconds / 12.0);
        Self { top, seconds, step_s, most: (most / step).ceil().max(1.0) * step, step }
    }

    fn bottom(&self) -> f64 {
        self.top + AREA_HEIGHT
    }

    fn x(&self, seconds: f64) -> f64 {
        LEFT + seconds / self.seconds * AREA_WIDTH
    }

    fn y(&self, figure: f64) -> f64 {
        self.bottom() - figure / self.most * AREA_HEIGHT
    }

    /// The line through these points; a point that is missing leaves a gap.
    fn path(&self, xs: &[Option<f64>], ys: &[Option<f64>]) -> String {
        let mut path = String::new();
        let mut is_in_gap = true;
        for (x, y) in xs.iter().zip(ys) {
            let point = x.zip(y.filter(|y| y.is_finite()));
            if let Some((x, y)) = point {
                let (x, y) = (px(self.x(x)), px(self.y(y)));
                // `h0` and round ends show a point alone.
                let _ = if is_in_gap { write!(path, "M{x} {y}h0") } else { write!(path, "L{x} {y}") };
            }
            is_in_gap = point.is_none();
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arm_has_the_colour_of_the_page() {
        let (_, palette) = crate::page::PAGE_SCRIPT.split_once("PALETTE = {").expect("the palette");
        let (palette, _) = palette.split_once('}').expect("its end");
        let of_page: Vec<_> = palette.split('"').skip(1).step_by(2).collect();
        assert_eq!(of_page, COLOURS[..7]);
    }

    #[test]
    fn grid_has_round_steps_up_to_the_end() {
        for (most, expected) in [
            (0.0, "0 0.5"),
            (0.07, "0 0.02 0.04 0.06 0.08"),
            (1.0, "0 0.5 1"),
            (203.0, "0 100 200 300"),
            (4_000.0, "0 1,000 2,000 3,000 4,000"),
        ] {
            let mut plot = PlotData::new(
                "t",
                "a second",
                super::super::plots::XAxis::Seconds,
                [Some(0.0)].into_iter().collect(),
            );
            let ys = [Some(most)].into_iter().collect();
            plot.lines = vec![LineData { arm: None, name: String::new(), view: None, is_dashed: false, ys }];
            let area = Area::of(&plot, 0.0);
            let steps: Vec<_> = steps(area.step, area.most).map(figure).collect();
            assert_eq!(steps.join(" "), expected, "{most}");
        }
    }
}
