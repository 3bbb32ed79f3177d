//! Parts of the lines of a live view. Pure.

use std::time::Duration;

use console::{Style, measure_text_width, truncate_str};
use stockade_model::{
    outcome::{Outcome, Outcomes},
    units::{format_count, format_duration, format_span},
};

/// Colours, or none.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    pub has_colors: bool,
}

impl Paint {
    pub fn apply(self, style: Style, text: &str) -> String {
        style.force_styling(self.has_colors).apply_to(text).to_string()
    }

    pub fn dim(self, text: &str) -> String {
        self.apply(Style::new().dim(), text)
    }

    /// A line with a name in its first nine columns.
    pub fn row(self, name: &str, content: &str, width: usize) -> String {
        cut(&format!("{}{content}", self.dim(&format!("{name:NAME_COLUMNS$}"))), width)
    }
}

/// Columns of the name of a row.
pub const NAME_COLUMNS: usize = 9;
/// The most seconds of a sparkline.
pub const SPARKLINE_SECONDS_MAX: usize = 60;
/// The most columns of the bar of outcomes.
const BAR_COLUMNS_MAX: usize = 40;
/// Requests that are sent later than this are mentioned.
pub const SEND_LAG_MIN: Duration = Duration::from_millis(1);

/// At most `width` columns.
pub fn cut(line: &str, width: usize) -> String {
    truncate_str(line, width, "…").into_owned()
}

/// `left` from the first column, shortened where needed, and `right` to the last one.
pub fn sides(left: &str, right: &str, width: usize) -> String {
    let room = width.saturating_sub(measure_text_width(right) + 2);
    let left = cut(left, room);
    let gap = width.saturating_sub(measure_text_width(&left) + measure_text_width(right));
    cut(&format!("{left}{}{right}", " ".repeat(gap)), width)
}

/// Whole seconds: `34s`, `2m5s`.
pub fn whole_seconds(time: Duration) -> String {
    match Duration::from_secs((time + Duration::from_millis(500)).as_secs()) {
        Duration::ZERO => "0s".to_owned(),
        time => format_span(time),
    }
}

/// A time, or `-`.
pub fn time_or_dash(time: Option<Duration>) -> String {
    time.map_or_else(|| "-".to_owned(), format_duration)
}

/// `count` as a bar of one row; `0` is empty.
pub fn level(count: u64, most: u64) -> char {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    match count {
        0 => ' ',
        _ => {
            LEVELS[usize::try_from((count * 8).div_ceil(most.max(count)) - 1).map_or(7, |index| index.min(7))]
        }
    }
}

/// A row with a column for each second, the last one to the right with its count. `(_, true)`: it was disturbed, `!`.
pub fn sparkline(
    name: &str,
    seconds: &[(Option<u64>, bool)],
    after: &str,
    width: usize,
    paint: Paint,
) -> String {
    let columns = width.saturating_sub(NAME_COLUMNS + 22).clamp(8, SPARKLINE_SECONDS_MAX);
    let shown = &seconds[seconds.len().saturating_sub(columns)..];
    let most = shown.iter().filter_map(|(count, _)| *count).max().unwrap_or_default();
    let bars = shown.iter().map(|(count, is_disturbed)| match is_disturbed {
        true => '!',
        false => level(count.unwrap_or_default(), most),
    });
    let bars = paint.apply(Style::new().cyan(), &format!("{:>columns$}", bars.collect::<String>()));
    let last = seconds.last().and_then(|(count, _)| *count).map_or_else(|| "-".to_owned(), format_count);
    paint.row(name, &format!("{bars} {last}/s{after}"), width)
}

/// The done share, from 0 to 1, in `columns` columns.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to `columns`")]
pub fn progress_bar(share: f64, columns: usize) -> String {
    let done = (share.clamp(0.0, 1.0) * columns as f64).round() as usize;
    format!("[{}{}]", "#".repeat(done), ".".repeat(columns - done))
}

/// The sign and the colour of each outcome.
fn sign(outcome: Outcome) -> (&'static str, Style) {
    let style = Style::new();
    match outcome {
        Outcome::Hit => ("█", style.green()),
        Outcome::Stale => ("▓", style.yellow()),
        Outcome::Coalesced => ("▒", style.cyan()),
        Outcome::Fallback => ("░", style.magenta()),
        Outcome::Miss => ("m", style.blue()),
        Outcome::Negative => ("n", style.white()),
        Outcome::Error => ("E", style.red()),
        Outcome::Bypass => ("b", style.dim()),
    }
}

/// In the order of the bar: from the cache, over waits, to failures.
const ORDER: [Outcome; Outcome::ALL.len()] = [
    Outcome::Hit,
    Outcome::Negative,
    Outcome::Stale,
    Outcome::Fallback,
    Outcome::Coalesced,
    Outcome::Miss,
    Outcome::Bypass,
    Outcome::Error,
];

/// A bar of outcomes, and the count of each: in one row, if there is room for ten columns of the bar.
pub fn outcomes(outcomes: &Outcomes, width: usize, paint: Paint) -> Vec<String> {
    let known = ORDER.into_iter().map(|outcome| (sign(outcome), outcome.name(), outcomes.of(outcome)));
    let unknown = (("?", Style::new().dim()), "unreported", outcomes.unreported);
    let some: Vec<_> = known.chain([unknown]).filter(|(_, _, count)| *count > 0).collect();
    if some.is_empty() {
        return vec![paint.row("outcomes", "none", width)];
    }
    let counts = some.iter().map(|((sign, style), name, count)| {
        format!("{} {name} {}", paint.apply(style.clone(), sign), format_count(*count))
    });
    let counts = counts.collect::<Vec<_>>().join("  ");
    let width_of_both = width.saturating_sub(NAME_COLUMNS);
    let rest = width_of_both.saturating_sub(measure_text_width(&counts) + 2);
    let is_one_row = rest >= 10;
    let columns = if is_one_row { rest } else { width_of_both }.min(BAR_COLUMNS_MAX);
    let all: Vec<u64> = some.iter().map(|(_, _, count)| *count).collect();
    let bar = some
        .iter()
        .zip(columns_of(&all, columns))
        .map(|(((sign, style), ..), columns)| paint.apply(style.clone(), &sign.repeat(columns)));
    let bar: String = bar.collect();
    if is_one_row {
        return vec![paint.row("outcomes", &format!("{bar}  {counts}"), width)];
    }
    vec![paint.row("outcomes", &bar, width), paint.row("", &counts, width)]
}

/// Shares of `columns`, at least one column for each count; the largest count has the rest.
fn columns_of(counts: &[u64], columns: usize) -> Vec<usize> {
    let all: u64 = counts.iter().sum();
    let share = |count: &u64| (*count).saturating_mul(columns as u64) / all.max(1);
    let shares = counts.iter().map(|count| usize::try_from(share(count)).unwrap_or(columns).max(1));
    let mut shares: Vec<usize> = shares.collect();
    let others = shares.iter().sum::<usize>();
    if let Some(largest) = shares.iter_mut().max() {
        *largest = (*largest + columns).saturating_sub(others);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Paint = Paint { has_colors: false };

    #[test]
    fn bar_of_outcomes_fills_its_columns_and_shows_rare_ones() {
        for (counts, columns) in
            [(&[1_000_000, 1, 1][..], 10), (&[1, 1, 1], 10), (&[5], 40), (&[3, 2, 900], 12)]
        {
            let shares = columns_of(counts, columns);
            assert_eq!(shares.iter().sum::<usize>(), columns, "{counts:?}");
            assert!(shares.iter().all(|share| *share > 0), "{counts:?}: {shares:?}");
        }
    }

    #[test]
    fn each_outcome_has_a_sign_of_its_own_and_a_place() {
        let signs: std::collections::BTreeSet<_> = Outcome::ALL.map(|outcome| sign(outcome).0).into();
        assert_eq!(signs.len(), Outcome::ALL.len());
        assert!(Outcome::ALL.iter().all(|outcome| ORDER.contains(outcome)));
    }

    #[test]
    fn bar_of_outcomes_has_a_row_of_its_own_where_it_is_narrow() {
        let counts = Outcomes { hit: 380, error: 20, ..Outcomes::default() };
        assert_eq!(outcomes(&counts, 42, PLAIN), ["outcomes █████████E  █ hit 380  E error 20"]);
        let rows = ["outcomes ██████████████████E", "         █ hit 380  E error…"];
        assert_eq!(outcomes(&counts, 28, PLAIN), rows);
        assert_eq!(outcomes(&Outcomes::default(), 40, PLAIN), ["outcomes none"]);
        let counts = Outcomes { hit: 380, unreported: 20, ..Outcomes::default() };
        assert_eq!(outcomes(&counts, 50, PLAIN), ["outcomes ████████████?  █ hit 380  ? unreported 20"]);
    }

    #[test]
    fn wide_text_is_cut_at_its_columns() {
        let wide = sides("漢字漢字漢字", "12s", 10);
        assert!(measure_text_width(&wide) <= 10 && wide.ends_with("12s"), "{wide}");
    }

    #[test]
    fn levels_rise_with_the_count() {
        assert_eq!([0, 1, 50, 100].map(|count| level(count, 100)), [' ', '▁', '▄', '█']);
        assert_eq!(level(u64::MAX / 8, u64::MAX / 8), '█');
    }
}
