//! What is told of it elsewhere is what it tells: the dashboard, and the manual.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

use super::Proxied;

fn file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every name of a metric that the proxy tells, those of its histograms with their three endings.
fn told(metrics: &str) -> BTreeSet<String> {
    let kinds = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let names = kinds.flat_map(|(name, kind)| match kind {
        "histogram" => ["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")).to_vec(),
        _ => vec![name.to_owned()],
    });
    names.collect()
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are_and_for_all_of_them() {
    // With a limit on entries as well, which is told if there is one.
    let proxied = Proxied::start(&["--max-entries", "1000"]);
    let told = told(&super::of_admin(proxied.admin, "GET", "/metrics", "").body);
    assert!(told.len() > 30, "{told:?}");
    let dashboard: Value = serde_json::from_str(&file("deploy/grafana.json")).expect("JSON");
    let text = dashboard.to_string();
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let asked: BTreeSet<String> = words
        .filter(|word| word.starts_with("stockade_") || word.starts_with("process_"))
        .map(str::to_owned)
        .collect();
    assert!(asked.is_subset(&told), "not told: {:?}", asked.difference(&told).collect::<Vec<_>>());
    let is_unasked =
        |name: &&String| !asked.contains(*name) && !name.ends_with("_sum") && !name.ends_with("_count");
    assert_eq!(told.iter().filter(is_unasked).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn every_metric_page_and_field_of_the_log_is_documented() {
    let manual = file("docs/reference/proxy.md") + &file("docs/reference/metrics.md");
    let proxied = Proxied::start(&["--max-entries", "1000"]);
    let metrics = super::of_admin(proxied.admin, "GET", "/metrics", "").body;
    let names: Vec<_> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(names.len() > 25, "{names:?}");
    for name in names {
        assert!(manual.contains(&format!("`{name}`")) || manual.contains(&format!("`{name}{{")), "{name}");
    }
    // It names all of its pages to whoever asks for another.
    let pages = super::of_admin(proxied.admin, "GET", "/nothing-like-it", "").body;
    let pages: Vec<_> = pages.split("use one of: ").nth(1).expect("a list").trim().split(", ").collect();
    assert!(pages.len() >= 10, "{pages:?}");
    for page in pages {
        let is_named =
            ["GET", "POST"].into_iter().any(|method| manual.contains(&format!("| `{method} {page}")));
        assert!(is_named, "{page}");
    }
    let log = proxied.sandbox.path().join("access.log");
    let config = file_of(&proxied).replace("format = \"none\"", "path = \"access.log\"");
    let config = proxied.sandbox.file("logged.toml", &config);
    let (_logged, address, _) = super::started(&proxied.sandbox, &config, &[]);
    super::talk(
        address,
        "GET /news HTTP/1.1\r\nHost: a\r\nConnection: close\r\nUser-Agent: b\r\nReferer: c\r\n\r\n",
    );
    super::until(|| fs::read_to_string(&log).unwrap_or_default().ends_with('\n'));
    let line = fs::read_to_string(&log).expect("it is there");
    let line: Value = serde_json::from_str(&line).expect("a line of JSON");
    let fields = line.as_object().expect("an object");
    assert!(fields.len() >= 16, "{line}");
    for field in fields.keys() {
        assert!(
            manual.contains(&format!("| `{field}`")) || manual.contains(&format!("`, `{field}`")),
            "{field}"
        );
    }
}

fn file_of(proxied: &Proxied) -> String {
    fs::read_to_string(proxied.sandbox.path().join("stockade.toml")).expect("it is there")
}
