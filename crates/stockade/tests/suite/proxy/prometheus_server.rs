//! The Grafana dashboard and the alerts, on a real Prometheus that scrapes a real proxy.

use std::{fmt::Write, path::PathBuf, process::Command};

use serde_json::Value;
use stockade_services::PrometheusServer;

use super::{Response, Setup, until};
use crate::{running::get, support::root};

fn deployed(file: &str) -> PathBuf {
    root().join("deploy").join(file).canonicalize().expect("the file")
}

#[test]
fn alerts_pass_their_unit_tests() {
    for (command, file) in [("check", "alerts.yaml"), ("test", "alerts.test.yaml")] {
        let promtool = Command::new("promtool").args([command, "rules"]).arg(deployed(file)).output();
        let output = promtool.expect("promtool is installed with prometheus");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn every_query_of_dashboard_and_alerts_returns_data() {
    let setup =
        Setup::start(&["--max-entries", "1000", "--max-bytes", "64MiB", "--strategy", "breaker", "--shadow"]);
    let prometheus =
        PrometheusServer::start("stockade", setup.admin, &deployed("alerts.yaml")).expect("it starts");
    let ask = |path: &str| Response::of(&get(prometheus.address(), path)).json();
    let rules = || -> Vec<Value> {
        let answer = ask("/api/v1/rules");
        let groups = answer["data"]["groups"].as_array().expect("groups");
        groups.iter().flat_map(|group| group["rules"].as_array().expect("rules").clone()).collect()
    };
    let mut queries = dashboard_queries();
    assert!(queries.len() > 50, "{queries:?}");
    queries.extend(rules().iter().map(|rule| without_filters(rule["query"].as_str().expect("a query"))));
    // Rates need two scrapes.
    let mut paths = ["/news", "/news", "/weather", "/own"].into_iter().cycle();
    until(|| {
        setup.get(paths.next().expect("a cycle"));
        let missing = queries.len();
        queries.retain(|query| {
            let answer = ask(&format!("/api/v1/query?query={}", percent_encoded(query)));
            assert_eq!(answer["status"], "success", "{query}: {answer}");
            answer["data"]["result"].as_array().is_none_or(Vec::is_empty)
        });
        if queries.len() < missing {
            println!("without data: {queries:?}");
        }
        queries.is_empty()
    });
    until(|| rules().iter().all(|rule| rule["health"] == "ok"));
    assert!(rules().len() > 15 && rules().iter().all(|rule| rule["state"] == "inactive"), "{:?}", rules());

    // An alert in its trouble.
    drop(setup.proxy);
    until(|| rules().iter().any(|rule| rule["name"] == "StockadeDown" && rule["state"] == "pending"));
}

/// The queries of the panels and of the variables, with values for the variables.
fn dashboard_queries() -> Vec<String> {
    let dashboard = std::fs::read_to_string(deployed("grafana.json")).expect("it is there");
    let dashboard: Value = serde_json::from_str(&dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let of_panels = targets.map(|target| target["expr"].as_str().expect("a query"));
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let of_variables = variables.iter().filter_map(|variable| {
        let labels = variable["query"]["query"].as_str()?.strip_prefix("label_values(")?;
        Some(labels.rsplit_once(", ").expect("a label").0)
    });
    let values = [("$__rate_interval", "10s"), ("$job", ".*"), ("$instance", ".*"), ("$route", ".*")];
    of_panels
        .chain(of_variables)
        .map(|query| values.iter().fold(query.to_owned(), |query, (name, value)| query.replace(name, value)))
        .collect()
}

/// An alert's query whose comparisons say 0 or 1 for each series, so that it has data while nothing is wrong.
fn without_filters(query: &str) -> String {
    [">=", "==", ">", "<"].iter().fold(query.to_owned(), |query, operator| {
        query.replace(&format!(" {operator} "), &format!(" {operator} bool "))
    })
}

fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        write!(encoded, "%{byte:02X}").expect("memory");
        encoded
    })
}
