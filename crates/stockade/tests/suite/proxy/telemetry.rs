//! The dashboard and the manual name exactly the proxy's metrics, admin pages and log fields.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use super::Setup;
use crate::support::root;

fn read_file(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The names of all metrics; a histogram has three, with the suffixes of Prometheus.
fn metric_names(metrics: &str) -> BTreeSet<String> {
    let kinds = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let names = kinds.flat_map(|(name, kind)| match kind {
        "histogram" => ["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")).to_vec(),
        _ => vec![name.to_owned()],
    });
    names.collect()
}

#[test]
fn dashboard_queries_every_metric_and_no_unknown_one() {
    // The metric of the limit on entries exists only with a limit, those of ghosts only with ghosts.
    let setup = Setup::start(&["--max-entries", "1000", "--shadow"]);
    // Ghosts are compared once there are requests.
    setup.get("/news");
    let exported = metric_names(&super::admin_request(setup.admin, "GET", "/metrics", "").body);
    assert!(exported.len() > 30, "{exported:?}");
    let dashboard: Value = serde_json::from_str(&read_file("deploy/grafana.json")).expect("JSON");
    let text = dashboard.to_string();
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let queried: BTreeSet<String> = words
        .filter(|word| word.starts_with("stockade_") || word.starts_with("process_"))
        .map(str::to_owned)
        .collect();
    assert!(
        queried.is_subset(&exported),
        "not exported: {:?}",
        queried.difference(&exported).collect::<Vec<_>>()
    );
    let is_unqueried =
        |name: &&String| !queried.contains(*name) && !name.ends_with("_sum") && !name.ends_with("_count");
    assert_eq!(exported.iter().filter(is_unqueried).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn every_metric_page_and_field_of_the_log_is_documented() {
    let manual = read_file("docs/reference/proxy.md") + &read_file("docs/reference/metrics.md");
    let setup = Setup::start(&["--max-entries", "1000", "--shadow"]);
    let metrics = super::admin_request(setup.admin, "GET", "/metrics", "").body;
    let names: Vec<_> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(names.len() > 25, "{names:?}");
    for name in names {
        assert!(manual.contains(&format!("`{name}`")) || manual.contains(&format!("`{name}{{")), "{name}");
    }
    // The response for an unknown page lists all pages.
    let pages = super::admin_request(setup.admin, "GET", "/nothing-like-it", "").body;
    let pages: Vec<_> = pages.split("use one of: ").nth(1).expect("a list").trim().split(", ").collect();
    assert!(pages.len() >= 10, "{pages:?}");
    for page in pages {
        let is_named =
            ["GET", "POST"].into_iter().any(|method| manual.contains(&format!("| `{method} {page}")));
        assert!(is_named, "{page}");
    }
    let log = setup.sandbox.path().join("access.log");
    let config = config_file(&setup).replace("format = \"none\"", "path = \"access.log\"");
    let config = setup.sandbox.file("logged.toml", &config);
    let (_logged, address, _) = super::start_proxy(&setup.sandbox, &config, &[]);
    super::send_request(
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

fn config_file(setup: &Setup) -> String {
    fs::read_to_string(setup.sandbox.path().join("stockade.toml")).expect("it is there")
}
