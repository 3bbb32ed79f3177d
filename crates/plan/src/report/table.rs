//! Tables of text.

use stockade_model::message::{columns, printable, wrapped};

use super::text::COLUMNS;

/// Between two columns.
const GAP: &str = "  ";
/// The columns that the first column has at least, if it needs them.
const FIRST_MIN: usize = 20;

/// The first column is left-aligned, the others are right-aligned.
pub(super) struct Table {
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Columns two spaces apart, in as many tables with the same first column as fit into 80 columns of a terminal each. A longer first
    /// cell takes several lines, the last one with the others.
    pub(super) fn text(&self) -> String {
        let widths = self.widths();
        let first_min = widths.first().map_or(0, |first| (*first).min(FIRST_MIN));
        let mut parts: Vec<Vec<usize>> = vec![Vec::new()];
        let mut used = first_min;
        for (column, width) in widths.iter().enumerate().skip(1) {
            let width = width + GAP.len();
            if used + width > COLUMNS && used > first_min {
                parts.push(Vec::new());
                used = first_min;
            }
            used += width;
            parts.last_mut().into_iter().for_each(|part| part.push(column));
        }
        let parts: Vec<String> = parts.iter().map(|part| self.part(part, &widths)).collect();
        parts.join("\n")
    }

    /// The first column and these.
    fn part(&self, others: &[usize], widths: &[usize]) -> String {
        let room = COLUMNS.saturating_sub(others.iter().map(|column| widths[*column] + GAP.len()).sum());
        let first_width = widths.first().map_or(0, |first| (*first).min(room));
        let cell = |row: &[String], column: usize| row.get(column).map_or("", String::as_str).to_owned();
        let line = |row: &Vec<String>| {
            let mut first = wrapped(&cell(row, 0), first_width.max(1));
            let last = first.pop().unwrap_or_default();
            let mut lines: String = first.iter().map(|part| part.clone() + "\n").collect();
            lines += &last;
            let mut behind = first_width.saturating_sub(columns(&last));
            for column in others {
                let cell = cell(row, *column);
                let cell = printable(&cell);
                behind += GAP.len() + widths[*column].saturating_sub(columns(&cell));
                lines += &" ".repeat(behind);
                lines += &cell;
                behind = 0;
            }
            lines.trim_end().to_owned() + "\n"
        };
        std::iter::once(&self.header).chain(&self.rows).map(line).collect()
    }

    pub(super) fn markdown(&self) -> String {
        let line = |row: &Vec<String>| format!("| {} |\n", row.join(" | "));
        let rule = "---:|".repeat(self.header.len().saturating_sub(1));
        format!("{}|---|{rule}\n{}", line(&self.header), self.rows.iter().map(line).collect::<String>())
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let cells = std::iter::once(&self.header).chain(&self.rows);
            cells.filter_map(|row| row.get(column)).map(|cell| columns(cell)).max().unwrap_or(0)
        };
        (0..self.header.len()).map(width).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(header: &[&str], rows: &[&[&str]]) -> Table {
        let cells = |row: &[&str]| row.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        Table { header: cells(header), rows: rows.iter().map(|row| cells(row)).collect() }
    }

    #[test]
    fn wide_table_becomes_several() {
        let header: Vec<String> = (0..20).map(|n| format!("column{n}")).collect();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let text = table(&header, &[&["1"; 20], &["second row"]]).text();
        assert!(text.lines().all(|line| columns(line) <= COLUMNS), "{text}");
        assert_eq!(text.matches("column0 ").count(), 3, "{text}");
        assert_eq!(text.matches("\n\n").count(), 2, "{text}");
        assert_eq!((1..20).filter(|n| text.contains(&format!("column{n}"))).count(), 19, "{text}");
    }

    #[test]
    fn long_and_wide_first_cells_keep_the_columns_aligned() {
        let url = format!("http://example.org/{}", "long/".repeat(30));
        let text = table(&["name", "hits"], &[&[&url, "1"], &["\u{6771}\u{4eac}", "23"]]).text();
        assert!(text.lines().all(|line| columns(line) <= COLUMNS), "{text}");
        let ends: Vec<usize> =
            text.lines().filter(|line| line.ends_with(['s', '1', '3'])).map(columns).collect();
        assert_eq!(ends, [80, 80, 80], "{text}");
    }
}
