//! `report.md` and the plots next to it: for a forge, a pull request or a chat.

use std::fmt::Write;

use crate::record::{Expectation, Record};

use super::{accounting, html, markdown_grid, published, summary};
use crate::metrics::Results;

/// The most of a test's name in the name of a file.
const TEST_BYTES_MAX: usize = 60;

/// A file of a record.
#[derive(Debug)]
pub struct ReportFile {
    /// Relative to the directory of the record, with `/`.
    pub path: String,
    pub text: String,
}

/// The conclusion, then the sections of the published documents: context, hypotheses, results, setup. It stands alone: it
/// has no plots.
#[must_use]
pub fn render(record: &Record, results: &Results) -> String {
    let mut text = String::new();
    let _ = write(&mut text, record, results, |_, _| Vec::new());
    text
}

/// `report.md` with plots, and their files.
#[must_use]
pub fn files(record: &Record, results: &Results) -> Vec<ReportFile> {
    let (mut text, mut files) = (String::new(), Vec::new());
    let _ = write(&mut text, record, results, |index, test| {
        let pictures = html::pictures(record, results, test).into_iter().map(|picture| {
            let path = picture_path(index, test, picture.name);
            files.push(ReportFile { path: path.clone(), text: picture.svg });
            format!("![{}]({path})", picture.title)
        });
        pictures.collect()
    });
    files.push(ReportFile { path: "report.md".to_owned(), text });
    files
}

/// The path of a picture: the number makes it unique, and the name of the test has letters and digits only.
fn picture_path(index: usize, test: &str, picture: &str) -> String {
    let words = test.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut name = words.collect::<Vec<_>>().join("-");
    name.truncate(TEST_BYTES_MAX);
    let name = if name.is_empty() { name } else { format!("-{name}") };
    format!("plots/{}{name}-{picture}.svg", index + 1)
}

/// `pictures` returns the links to the pictures of a test, by its index and name.
fn write(
    text: &mut String,
    record: &Record,
    results: &Results,
    mut pictures: impl FnMut(usize, &str) -> Vec<String>,
) -> std::fmt::Result {
    writeln!(text, "# {}\n", record.experiment)?;
    writeln!(text, "**{}** ({})\n", summary::verdict(record), summary::how(record))?;
    for sentence in summary::conclusion(record) {
        writeln!(text, "{sentence}\n")?;
    }
    if let Some(context) = &record.context {
        writeln!(text, "## Context\n\n{context}\n")?;
    }
    if !record.hypotheses.is_empty() {
        writeln!(text, "## Hypotheses\n")?;
        for hypothesis in &record.hypotheses {
            writeln!(text, "- **{}**: {}", hypothesis.verdict, hypothesis.text)?;
            for expectation in &hypothesis.expect {
                let Expectation { expr, reason, verdict, .. } = expectation;
                let own = if *verdict == hypothesis.verdict { String::new() } else { format!("{verdict}: ") };
                let sides = summary::sides_in_parentheses(record, expectation);
                writeln!(text, "  - {own}`{expr}`: {reason}{sides}")?;
            }
        }
        writeln!(text)?;
    }
    writeln!(text, "## Results\n")?;
    for table in summary::tables(record, results) {
        writeln!(text, "### {}\n", table.title)?;
        let index = record.tests.iter().position(|test| *test == table.test).unwrap_or_default();
        let pictures = pictures(index, &table.test);
        if !pictures.is_empty() && record.repeats > 1 {
            writeln!(text, "The first repeat, second by second:\n")?;
        }
        for picture in pictures {
            writeln!(text, "{picture}\n")?;
        }
        writeln!(text, "{}\n", markdown_grid(&table.headings, &table.rows))?;
        for note in &table.notes {
            writeln!(text, "- {note}")?;
        }
        if !table.notes.is_empty() {
            writeln!(text)?;
        }
        for table in accounting::tables(record, &table.test) {
            let grid = markdown_grid(&table.headings, &table.rows);
            writeln!(text, "#### {}\n\n{grid}\n\n{}.\n", table.title, table.note)?;
        }
        for (id, report) in published::texts(record, results, &table.test) {
            writeln!(text, "<details><summary>{id}</summary>\n\n```\n{report}\n```\n\n</details>\n")?;
        }
    }
    if let Some(reference) = &record.reference {
        writeln!(text, "Published: {}.\n", reference.source)?;
    }
    writeln!(text, "## Setup\n")?;
    for (what, value) in summary::setup(record) {
        writeln!(text, "- {what}: {value}")?;
    }
    let spec = record.spec.trim_end();
    writeln!(
        text,
        "\n<details><summary>the experiment's file</summary>\n\n```toml\n{spec}\n```\n\n</details>"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::record::{Interval, Run, SCHEMA};
    use serde_json::json;

    use super::*;

    const HOSTILE: &str = "<script>\u{7} & \"";

    /// A run of each of these tests and arms: an open load, without a request from second 200 to 300.
    fn files_of(tests: &[&str], arms: &[&str], seconds: u64) -> Vec<ReportFile> {
        let arm_tables: Vec<_> = arms.iter().map(|name| json!({ "name": name })).collect();
        let mut record: Record = serde_json::from_value(json!({
            "schema": SCHEMA, "experiment": "t", "spec": "", "seed": 7, "scale": 1.0, "repeats": 1, "clock": "virtual",
            "started_at": "", "stockade": "", "host": { "cpu": "", "cores": 2, "memory_mib": 1, "os": "" }, "planned": 1,
            "interrupted": false, "tests": tests, "arms": arm_tables, "runs": [], "verdict": "supported", "hypotheses": [],
        }))
        .unwrap();
        let mut results = Results::default();
        for (test, arm) in tests.iter().flat_map(|test| arms.iter().map(move |arm| (test, arm))) {
            let run: Run = serde_json::from_value(json!({
                "test": test, "arm": arm, "repeat": 1, "bytes_in": 0, "service_ms_sum": 0.0, "stores_skipped": 0,
                "stores_dropped": 0, "episodes": 0, "outcomes": { "hit": 1 },
                "open": {
                    "strategy": "", "schedule": "", "duration_ms": seconds * 1_000, "finished_ms": 0.0, "waiters": 0,
                    "calls": { "fetch_doc": 1, "store_local": 0, "store_local_async": 0 },
                    "retries": 0, "dropped": 0, "in_flight_max": 1,
                },
                "stages": [
                    { "at_ms": 0.0, "behavior": "up" }, { "at_ms": seconds * 300, "behavior": HOSTILE },
                    { "at_ms": seconds * 600, "behavior": "up" },
                ],
                "events": [{ "at_ms": seconds * 500, "took_ms": 120.0, "event": "restart cache" }],
            }))
            .unwrap();
            let mut fold = results.fold(Some(Duration::from_secs(seconds)));
            for second in (0..seconds).filter(|second| !(200..300).contains(second)) {
                let mut interval =
                    Interval { second, source_loads: Some(1), dropped: Some(0), ..Interval::default() };
                interval.outcomes.hit = 10;
                interval.times.response = [Duration::from_millis(second + 1)].into_iter().collect();
                fold.add(&interval);
            }
            results.add(&run, fold);
            record.runs.push(run);
        }
        files(&record, &results)
    }

    /// The number of elements of a name, in text where each element ends.
    fn elements(svg: &str, name: &str) -> usize {
        let (mut open, mut count) = (Vec::new(), 0);
        for tag in svg.split('<').skip(1).map(|rest| rest.split_once('>').expect("a tag ends").0) {
            match tag.strip_prefix('/') {
                Some(end) => assert_eq!(open.pop(), Some(end), "{svg}"),
                None => open.push(tag.split(' ').next().unwrap_or_default()),
            }
            count += usize::from(tag.split(' ').next() == Some(name));
        }
        assert!(open.is_empty(), "{open:?}");
        count
    }

    fn strokes(svg: &str) -> Vec<&str> {
        let lines = svg.split("<path d=\"").skip(1).filter(|path| path.contains("stroke-linejoin"));
        lines.map(|path| path.split_once('"').expect("the end of the path").0).collect()
    }

    #[test]
    fn pictures_have_a_line_for_each_arm_and_the_stages() {
        let files = files_of(&[""], &["a", "b"], 1_500);
        let paths: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["plots/1-requests.svg", "plots/1-response.svg", "report.md"]);
        let (requests, response) = (&files[0].text, &files[1].text);
        for name in [
            "a requests",
            "b requests",
            "a source loads",
            "b source loads",
            "10m",
            "&lt;script&gt;",
            "restart cache",
        ] {
            assert!(requests.contains(&format!(">{name}")), "{name}: {requests}");
        }
        assert_eq!(
            requests.matches("stroke-dasharray").count(),
            5,
            "two lines, in the legend too, and an event"
        );
        assert!(response.contains("Response time, p99, 3 seconds at a time"), "{response}");
        // Each line stands in the legend first.
        let lines = strokes(response);
        assert_eq!((lines.len(), strokes(requests).len()), (4, 8));
        let (points, parts) = (lines[2].matches(['M', 'L']).count(), lines[2].matches('M').count());
        assert_eq!((points, parts), (467, 2), "500 points without 33, and one gap");
    }

    #[test]
    fn hostile_names_stay_text_within_the_folder() {
        let tests = ["../x", "..-x", "/etc/<script>", "con", &"é/".repeat(300), &"x".repeat(300)];
        let files = files_of(&tests, &[HOSTILE, "-->", &"é".repeat(300)], 10);
        let (report, pictures) = files.split_last().expect("a report");
        let mut paths: Vec<_> = pictures.iter().map(|file| file.path.to_lowercase()).collect();
        for path in &paths {
            let name =
                path.strip_prefix("plots/").and_then(|name| name.strip_suffix(".svg")).expect("a picture");
            assert!(
                name.len() < 100 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'),
                "{name}"
            );
            assert!(report.text.contains(&format!("]({path})\n")), "{path}");
        }
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), 2 * tests.len(), "no picture has the name of another");
        for ReportFile { text, .. } in pictures {
            assert_eq!((elements(text, "script"), elements(text, "svg")), (0, 1));
            assert!(!text.contains('\u{7}') && !text.contains("href") && text.len() < 60_000, "{text}");
        }
    }
}
