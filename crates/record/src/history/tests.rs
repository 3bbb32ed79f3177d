use std::path::PathBuf;

use super::{index::test_record, report::FORMATS, *};

/// Records of an arm `cache`, by their figures of one metric.
fn records(metric: &str, clock: ClockKind, figures: &[f64]) -> Vec<IndexedRecord> {
    let record = |(index, figure): (usize, &f64)| {
        let figures = [(metric.to_owned(), *figure)].into();
        let cell = IndexedCell {
            test: String::new(),
            arm: "cache".to_owned(),
            load: "10s at 1/s".to_owned(),
            figures,
        };
        let mut record = test_record(&format!("2026-01-01T00:00:{index:02}Z"));
        record.directory = PathBuf::from(format!("{index:02}"));
        (record.clock, record.cells) = (clock, vec![cell]);
        record
    };
    figures.iter().enumerate().map(record).collect()
}

fn verdicts(records: &[IndexedRecord]) -> Vec<(String, Option<ChangeVerdict>)> {
    let history = history(records, None, 0.05);
    let changes = history.series.iter().flat_map(Series::changes);
    changes.map(|change| (change.first.directory.display().to_string(), change.verdict)).collect()
}

#[test]
fn direction_of_a_change_is_that_of_its_metric() {
    let up = [1.0, 1.0, 1.0, 2.0, 2.0, 2.0];
    for (metric, verdict) in [
        ("response.p99", Some(ChangeVerdict::Worse)),
        ("source_loads", Some(ChangeVerdict::Worse)),
        ("achieved_rate", Some(ChangeVerdict::Better)),
    ] {
        let records = records(metric, ClockKind::Virtual, &up);
        assert_eq!(verdicts(&records), [("03".to_owned(), verdict)], "{metric}");
    }
    let of_retries = records("retries", ClockKind::Virtual, &up);
    assert_eq!(verdicts(&of_retries), [], "it is not compared");
    let history = history(&of_retries, Metric::named("retries"), 0.05);
    assert!(history.series[0].changes()[0].verdict.is_none());
}

#[test]
fn counts_of_random_events_differ_by_chance() {
    let poisson = [98.0, 102.0, 100.0, 111.0, 115.0, 110.0];
    assert_eq!(verdicts(&records("source_loads", ClockKind::Live, &poisson)), []);
    assert_eq!(verdicts(&records("source_loads", ClockKind::Virtual, &poisson)).len(), 1);
    let from_none = [0.0, 0.0, 0.0, 50.0, 60.0, 55.0];
    assert_eq!(verdicts(&records("failed", ClockKind::Live, &from_none)).len(), 1);
    let history_of_none = records("failed", ClockKind::Live, &from_none);
    let history = history(&history_of_none, None, 0.05);
    assert_eq!(history.series[0].changes()[0].ratio, None, "a change from 0 has no ratio");
}

#[test]
fn other_conditions_are_another_series() {
    let mut all = records("finished", ClockKind::Virtual, &[1.0, 1.0, 1.0, 9.0, 9.0, 9.0]);
    all[3..].iter_mut().for_each(|record| record.scale = 0.1);
    assert_eq!(verdicts(&all), []);
    assert_eq!(history(&all, None, 0.05).series.len(), 2);
    all[3..].iter_mut().for_each(|record| record.scale = 1.0);
    all[3..].iter_mut().for_each(|record| record.host.memory_mib += 3);
    assert_eq!(verdicts(&all).len(), 1, "a few MiB are the same machine");
    all[3..].iter_mut().for_each(|record| record.settings += 1);
    let history = history(&all, None, 0.05);
    assert_eq!(history.series[0].changes()[0].differences(), ["the experiment file"]);
}

#[test]
fn series_has_its_latest_records() {
    let mut all = records("finished", ClockKind::Virtual, &[1.0; 60]);
    all = all.iter().cycle().take(POINTS_MAX + 30).cloned().collect();
    let history = history(&all, None, 0.05);
    assert_eq!(history.series[0].points.len(), POINTS_MAX);
    assert_eq!(history.series[0].points.last().unwrap().record.directory, all.last().unwrap().directory);
}

#[test]
fn every_format_has_the_change_and_quotes_its_text() {
    let mut all = records("response.p50", ClockKind::Live, &[1.0, 1.01, 0.99, 2.0, 2.01, 1.99]);
    all.iter_mut().for_each(|record| record.experiment = "<b>\"A\", b".to_owned());
    let history = history(&all, None, 0.05);
    let reports: Vec<String> = FORMATS.iter().map(|format| (format.render)(&history)).collect();
    let [text, csv, json, html] = &reports[..] else { panic!("four formats") };
    assert!(text.contains("1 worse, 0 better, of at least 5 %, in 1 series"), "{text}");
    assert!(text.contains("+100 %") && text.contains("███"), "{text}");
    let row = "\"<b>\"\"A\"\", b\",,cache,response.p50,2,worse,2026-01-01T00:00:03Z,";
    assert!(csv.contains(row), "{csv}");
    let json: serde_json::Value = serde_json::from_str(json).expect("JSON");
    assert_eq!(json["series"][0]["changes"][0]["verdict"], "worse");
    assert!(html.contains("&lt;b&gt;") && !html.contains("<b>"), "{html}");
    assert!(!html.contains("NaN") && !html.contains("inf"), "{html}");
}
