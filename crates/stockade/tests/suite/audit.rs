//! `stockade audit` of stock servers with their defaults.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Sandbox, root};

/// The report of an audit.
fn audited(sandbox: &Sandbox, preset: &str, more: &[&str], code: i32) -> Value {
    let output = sandbox.stockade(&[&["audit", "--preset", preset, "--format", "json"], more].concat());
    assert_eq!(output.code, code, "{}{}", output.stdout, output.stderr);
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(
        (&report["verdict"], &report["cache"]["name"]),
        (&"supported".into(), &preset.into()),
        "{report}"
    );
    report
}

/// The only record of an audit.
fn record(sandbox: &Sandbox) -> Value {
    let files: Vec<_> =
        fs::read_dir(sandbox.path().join("runs/audit")).expect("a directory").flatten().collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let text = fs::read_to_string(files[0].path()).expect("UTF-8");
    serde_json::from_str(&text).expect("JSON")
}

#[track_caller]
fn assert_answer(answers: &Value, id: &str, mark: &str, loads: u64) {
    let answer = answers.as_array().expect("answers").iter().find(|answer| answer["id"] == id);
    let answer = answer.unwrap_or_else(|| panic!("{id}: {answers}"));
    assert_eq!((&answer["mark"], &answer["evidence"]["loads"]), (&mark.into(), &loads.into()), "{answer}");
}

/// Without `proxy_cache_lock` each request of a herd is a load.
#[test]
fn nginx_does_not_coalesce_by_default() {
    let sandbox = Sandbox::new();
    let report = audited(&sandbox, "nginx", &["--ask", "herd", "--fail-on", "weak"], 99);
    assert_eq!(record(&sandbox), report);
    let answers = &report["answers"];
    assert_answer(answers, "herd.cold", "weak", 200);
    assert_answer(answers, "herd.expired", "weak", 200);
    assert_answer(answers, "herd.uncacheable", "best", 50);
    let remedy = answers.as_array().into_iter().flatten().find(|answer| answer["id"] == "herd.cold");
    assert_eq!(remedy.expect("an answer")["remedy"], "proxy_cache_lock on;");
}

/// The remedies of the answers above in a file of the user.
#[test]
fn nginx_with_a_lock_coalesces() {
    let sandbox = Sandbox::new();
    let stock = fs::read_to_string(root().join("crates/audit/presets/nginx.conf")).expect("a file");
    let write = |text: &str| sandbox.file("my-nginx.conf", text);
    let config = write(&stock.replace("proxy_cache pages;", "proxy_cache pages; proxy_cache_lock on;"));
    let options = ["--config", &config, "--ask", "herd.cold", "--no-record"];
    assert_answer(&audited(&sandbox, "nginx", &options, 0)["answers"], "herd.cold", "best", 1);
    let audit = |more: &[&str]| sandbox.stockade(&[&["audit", "--config", &config], more].concat());
    write(&stock.replace("{origin}", "{orgin}"));
    audit(&["--preset", "nginx"]).assert_refused(2, &["my-nginx.conf: line 17", "did you mean `origin`?"]);
    write(&stock.replace("{listen}", "8080"));
    audit(&["--preset", "nginx"])
        .assert_refused(2, &["my-nginx.conf: it has no `{listen}`", "`listen {listen};`"]);
    audit(&["http://localhost:8080"]).assert_refused(2, &["cannot be used with"]);
}

#[test]
fn answers_that_an_experiment_can_ask_are_read_by_the_lab() {
    let sandbox = Sandbox::new();
    let ids = ["cold", "expired", "uncacheable", "slow"].map(|name| format!("herd.{name}"));
    let outages = ["errors", "reset", "silence", "slow", "recovery"].map(|name| format!("outage.{name}"));
    let ids: Vec<_> = ids.into_iter().chain(outages).chain(["keys.host".to_owned()]).collect();
    let answers: Vec<_> = ids
        .iter()
        .map(|id| json!({"id": id, "question": "A page", "mark": "weak", "answer": "200 loads."}))
        .collect();
    let record = json!({
        "schema": "stockade.audit/1", "cache": {}, "url": "http://127.0.0.1:1", "origin": "127.0.0.1:9080", "answers": answers,
    });
    let record = sandbox.file("record.json", &record.to_string());
    let init =
        |file: &str, id: &str| sandbox.stockade(&["init", file, "--from-audit", &record, "--answer", id]);
    for id in &ids[..ids.len() - 1] {
        let file = format!("{id}.toml");
        let output = init(&file, id);
        assert_eq!(output.code, 0, "{}", output.stderr);
        let experiment = stockade_lab::spec::Experiment::load(&sandbox.path().join(&file));
        assert!(experiment.is_ok(), "{id}: {:?}", experiment.err());
    }
    init("host.toml", "keys.host")
        .assert_refused(2, &["its origin serves the same page to all", "herd.cold"]);
    init("other.toml", "keys.path").assert_refused(2, &["the audit has no answer `keys.path`"]);
    sandbox.stockade(&["compare", &record, &record]).assert_refused(2, &["record of an audit", "--against"]);
}

/// Its built-in VCL has a grace of ten seconds. The earlier audit was of a cache that coalesces nothing.
#[test]
fn varnish_coalesces_and_serves_old_pages() {
    let sandbox = Sandbox::new();
    let earlier = r#"{"schema":"stockade.audit/1","cache":{"name":"other"},"url":"http://127.0.0.1:1","origin":"127.0.0.1:2","answers":[
        {"id":"herd.cold","question":"cold","mark":"weak","answer":""},{"id":"herd.old","question":"old","mark":"best","answer":""}]}"#;
    let earlier = sandbox.file("earlier.json", earlier);
    let options = ["--ask", "herd", "--against", &earlier, "--fail-on", "worse", "--no-record"];
    let report = audited(&sandbox, "varnish", &options, 0);
    for id in ["herd.cold", "herd.expired"] {
        assert_answer(&report["answers"], id, "best", 1);
    }
    let against = &report["against"];
    assert_eq!(
        (&against["better"][0], &against["gone"][0]),
        (&"herd.cold".into(), &"herd.old".into()),
        "{against}"
    );
    assert!(!sandbox.path().join("runs").exists(), "--no-record keeps nothing");
}

#[test]
fn cache_with_another_origin_is_named_with_the_remedy() {
    let sandbox = Sandbox::new();
    let origin = stockade_services::NginxServer::start().expect("nginx runs");
    let audit = |more: &[&str]| sandbox.stockade(&[&["audit", "--origin-listen", "0"], more].concat());
    audit(&[&origin.url()])
        .assert_refused(1, &["did not ask the origin of the audit", "proxy_pass http://127.0.0.1:"]);
    audit(&["http://cache.example"])
        .assert_refused(2, &["not on this machine", "--allow-target cache.example"]);
    audit(&["http://a:b@localhost"]).assert_refused(2, &["has a user or a password"]);
    audit(&["http://localhost", "--fail-on", "herd.colt"]).assert_refused(2, &["`herd.cold`"]);
    audit(&["http://localhost", "--ask", "nonsense"]).assert_refused(2, &["use a group (herd, outage, "]);
}

#[test]
fn comparison_needs_the_record_of_an_audit() {
    let sandbox = Sandbox::new();
    let audit = |more: &[&str]| sandbox.stockade(&[&["audit", "--preset", "nginx"], more].concat());
    audit(&["--fail-on", "worse"]).assert_refused(2, &["--fail-on worse needs --against"]);
    audit(&["--against", "none.json"]).assert_refused(2, &["none.json: No such file"]);
    let plan = sandbox.file("plan.json", r#"{"schema":"stockade.plan/1"}"#);
    audit(&["--against", &plan]).assert_refused(2, &["plan.json: not the record of an audit", "runs/audit"]);
}
