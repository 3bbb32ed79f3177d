//! A drawing of memory and requests per second, with the faults.

use std::fmt::Write as _;

use super::{report::FaultRecord, sampler::Sample, traffic::Role};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
/// Top and height of the panels.
const MEMORY: (f64, f64) = (30.0, 180.0);
const REQUESTS: (f64, f64) = (250.0, 110.0);
const FAULTS_TOP: f64 = 395.0;
const FAULT_HEIGHT: f64 = 14.0;
const MIB: f64 = 1_048_576.0;
const COLORS: [&str; 2] = ["#1f6feb", "#d1720f"];

/// An SVG with three panels that share the time axis.
pub fn plot(samples: &[Sample], faults: &[FaultRecord]) -> String {
    let seconds = samples.iter().map(|one| one.seconds).max().unwrap_or(1).max(1) as f64;
    let x = |at: f64| LEFT + at / seconds * (WIDTH - LEFT - RIGHT);
    let mut names: Vec<&str> = faults.iter().map(|fault| fault.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let bottom = FAULTS_TOP + names.len() as f64 * FAULT_HEIGHT;
    let height = bottom + 30.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    let memory: [Vec<(f64, f64)>; 2] = Role::ALL.map(|role| {
        let own = samples.iter().filter(|one| one.role == role);
        own.step_by(10).map(|one| (one.seconds as f64, one.resident_bytes as f64 / MIB)).collect()
    });
    panel(&mut svg, MEMORY, "resident memory, MiB (blue: steady, orange: rolled)", &memory, x);
    let requests = Role::ALL.map(|role| rates(samples, role));
    panel(&mut svg, REQUESTS, "finished requests per second", &requests, x);
    for (row, name) in (0_u32..).zip(&names) {
        let y = FAULTS_TOP + f64::from(row) * FAULT_HEIGHT;
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{:.1}\" fill=\"#999\">{name}</text>", y + 4.0);
        for fault in faults.iter().filter(|fault| fault.name == **name) {
            let color = if fault.held { "#333" } else { "#c00" };
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>",
                x(fault.seconds)
            );
        }
    }
    for tenth in 0..=8 {
        let at = seconds * f64::from(tenth) / 8.0;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.1} min</text>",
            x(at),
            bottom + 20.0,
            at / 60.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Requests per second over ten seconds each.
fn rates(samples: &[Sample], role: Role) -> Vec<(f64, f64)> {
    let own: Vec<_> = samples.iter().filter(|one| one.role == role).step_by(10).collect();
    let rate = |pair: &[&Sample]| {
        let (one, next) = (pair[0], pair[1]);
        (
            next.seconds as f64,
            (next.finished - one.finished) as f64 / (next.seconds - one.seconds).max(1) as f64,
        )
    };
    own.windows(2).map(rate).collect()
}

fn panel(
    svg: &mut String,
    (top, height): (f64, f64),
    title: &str,
    lines: &[Vec<(f64, f64)>; 2],
    x: impl Fn(f64) -> f64,
) {
    let most = lines.iter().flatten().map(|point| point.1).fold(1.0, f64::max) * 1.1;
    let y = |value: f64| top + height - value / most * height;
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{:.1}\" font-weight=\"bold\">{title}</text>", top - 8.0);
    for quarter in 0..=4 {
        let value = most * f64::from(quarter) / 4.0;
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{1:.1}\" y2=\"{1:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{2:.1}\" y=\"{3:.1}\" text-anchor=\"end\">{value:.0}</text>",
            WIDTH - RIGHT,
            y(value),
            LEFT - 6.0,
            y(value) + 4.0
        );
    }
    for (line, color) in lines.iter().zip(COLORS) {
        let points: Vec<String> =
            line.iter().map(|(at, value)| format!("{:.1},{:.1}", x(*at), y(*value))).collect();
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"1.2\" points=\"{}\"/>",
            points.join(" ")
        );
    }
}
