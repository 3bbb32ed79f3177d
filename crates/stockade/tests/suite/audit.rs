//! `stockade audit` of stock servers with their defaults.

use serde_json::Value;

use crate::support::Sandbox;

/// The answers of an audit by the ids of their questions.
fn audited(preset: &str, more: &[&str], code: i32) -> Value {
    let sandbox = Sandbox::new();
    let output = sandbox.stockade(&[&["audit", "--preset", preset, "--format", "json"], more].concat());
    assert_eq!(output.code, code, "{}{}", output.stdout, output.stderr);
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(
        (&report["verdict"], &report["cache"]["name"]),
        (&"supported".into(), &preset.into()),
        "{report}"
    );
    report["answers"].clone()
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
    let answers = audited("nginx", &["--fail-on", "weak"], 99);
    assert_answer(&answers, "herd.cold", "weak", 200);
    assert_answer(&answers, "herd.expired", "weak", 200);
    assert_answer(&answers, "herd.uncacheable", "best", 50);
    let remedy = answers.as_array().into_iter().flatten().find(|answer| answer["id"] == "herd.cold");
    assert_eq!(remedy.expect("an answer")["remedy"], "proxy_cache_lock on;");
}

/// Its built-in VCL has a grace of ten seconds.
#[test]
fn varnish_coalesces_and_serves_old_pages() {
    let answers = audited("varnish", &["--fail-on", "wrong"], 0);
    for id in ["herd.cold", "herd.expired"] {
        assert_answer(&answers, id, "best", 1);
    }
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
}
