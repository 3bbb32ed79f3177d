//! Each format from one report.

use std::time::Duration;

use super::*;
use crate::{questions::Needs, server_identity::ServerIdentity, truth::Truth};

const fn question(id: &'static str, text: &'static str, rule: &'static str, needs: Needs) -> Question {
    Question::new(id, text, |_| Box::pin(async { Answer::new(Mark::Unknown, "") })).rule(rule).needs(needs)
}

static COLD: Question = question("herd.cold", "A page that is not stored", "", Needs::Requests);
static EXPIRED: Question = question("herd.expired", "A page that has expired", "", Needs::Requests);
static COOKIE: Question =
    question("privacy.cookie", "A page with <Set-Cookie> & `private`", "RFC 9111, 5.2.2.7", Needs::Requests);
static OWNER: Question = question("privacy.owner", "A page for one user", "RFC 9111, 3.5", Needs::Requests);
static PURGED: Question = question("purge.hot", "A page that is purged", "", Needs::Purge);
static RESTARTED: Question = question("restart.kill", "A cache that is killed", "", Needs::Server);

/// A weak, a best, a wrong and an unknown answer, with text that each format has to escape.
pub(crate) fn report() -> AuditReport {
    let mut truth = Truth::default();
    truth.requests = 1_300;
    for _ in 0..2 {
        truth.add(Violation::WrongOwner, || Example {
            request: "GET /a?b=<1>, cookie: user=7".to_owned(),
            answer: "status 200; page of load 3, owner \"8\"".to_owned(),
            rule: "RFC 9111, 5.2.2.7".to_owned(),
        });
    }
    AuditReport {
        server: ServerIdentity { name: Some("nginx"), version: Some("1.22.1".to_owned()) },
        url: "http://127.0.0.1:8080".to_owned(),
        origin: ([127, 0, 0, 1], 9080).into(),
        took: Duration::from_millis(15_200),
        answers: vec![
            (&COLD, Answer::new(Mark::Weak, "200 loads.").with("loads", 200)),
            (&EXPIRED, Answer::new(Mark::Best, "1 load.").with("loads", 1)),
            (
                &COOKIE,
                Answer::new(Mark::Wrong, "2 of 50 users had another's page | \u{7}.").with("others", 2),
            ),
            (&OWNER, Answer::new(Mark::Unknown, "The page was not stored.")),
        ],
        ask: Vec::new(),
        not_asked: vec![&PURGED, &RESTARTED],
        truth,
        remedies: [("herd.cold", "proxy_cache_lock on;".into())].into(),
    }
}

/// The comparison of that report with an audit in which two marks were others, one question was not there, and one was more.
fn comparison(report: &AuditReport) -> AuditComparison {
    let earlier = r#"{
        "schema": "stockade.audit/1",
        "cache": { "name": "nginx", "version": "1.18.0" },
        "url": "http://127.0.0.1:8080",
        "origin": "127.0.0.1:9080",
        "answers": [
            { "id": "herd.cold", "question": "A page that is not stored", "mark": "best", "answer": "" },
            { "id": "privacy.cookie", "question": "A page", "mark": "wrong", "answer": "" },
            { "id": "privacy.owner", "question": "A page for one user", "mark": "weak", "answer": "" },
            { "id": "herd.old", "question": "A <question> of old", "mark": "weak", "answer": "" }
        ]
    }"#;
    AuditComparison::new("runs/audit/a.json".to_owned(), &earlier.parse().unwrap(), report)
}

/// With the comparison, and with `--fail-on worse`.
fn rendered(format: &str) -> String {
    let report = report();
    let comparison = comparison(&report);
    let options = ReportOptions { against: Some(&comparison), fail_on: &[FailingAnswer::Worse] };
    (FORMATS.named(format).unwrap().render)(&report, &options)
}

#[test]
fn text_ends_with_the_worst_answers() {
    insta::assert_snapshot!(rendered("text"), @r#"
    nginx 1.22.1 at http://127.0.0.1:8080: 4 questions in 15.2s

    herd
      weak    herd.cold: A page that is not stored
              200 loads.
              worse: best -> weak
              > proxy_cache_lock on;
      best    herd.expired: A page that has expired
              1 load.

    privacy
      wrong   privacy.cookie: A page with <Set-Cookie> & `private`
              2 of 50 users had another's page | �.
      unknown privacy.owner: A page for one user
              The page was not stored.
              unknown: weak -> unknown

    1 best, 1 weak, 1 wrong, 1 unknown

    worst
      wrong   privacy.cookie: 2 of 50 users had another's page | �.
      weak    herd.cold: 200 loads.
              > proxy_cache_lock on;

    2 false answers to 1,300 requests
      2 wrong owner; the first, against RFC 9111, 5.2.2.7:
        GET /a?b=<1>, cookie: user=7
        status 200; page of load 3, owner "8"

    not asked without --purge
      purge.hot

    not asked without a server that the audit starts (--preset, --command)
      restart.kill

    against runs/audit/a.json (nginx 1.18.0): 1 worse, 1 same, 1 unknown, 1 new, 1
    gone
      worse   herd.cold: best -> weak
      unknown privacy.owner: weak -> unknown
      new     herd.expired: best
      gone    herd.old: weak
    "#);
}

#[test]
fn json_has_counts_of_false_answers_and_earlier_marks() {
    let report: serde_json::Value = serde_json::from_str(&rendered("json")).unwrap();
    let parts = ["schema", "verdict", "cache", "url", "not_asked", "audit", "against"]
        .map(|key| format!("{key}: {}", report[key]));
    let answers = report["answers"].as_array().unwrap().iter().map(serde_json::Value::to_string);
    insta::assert_snapshot!(parts.into_iter().chain(answers).collect::<Vec<_>>().join("\n"), @r#"
    schema: "stockade.audit/1"
    verdict: "inconclusive"
    cache: {"name":"nginx","version":"1.22.1"}
    url: "http://127.0.0.1:8080"
    not_asked: [{"id":"purge.hot","needs":"--purge","question":"A page that is purged"},{"id":"restart.kill","needs":"a server that the audit starts (--preset, --command)","question":"A cache that is killed"}]
    audit: {"after_purge":0,"age_wrong":0,"examples":{"wrong_owner":{"answer":"status 200; page of load 3, owner \"8\"","request":"GET /a?b=<1>, cookie: user=7","rule":"RFC 9111, 5.2.2.7"}},"requests":1300,"too_old":0,"truncated":0,"wrong_body":0,"wrong_owner":2,"wrong_status":0,"wrong_variant":0}
    against: {"better":[],"cache":"nginx 1.18.0","gone":["herd.old"],"new":["herd.expired"],"record":"runs/audit/a.json","same":["privacy.cookie"],"unknown":["privacy.owner"],"worse":["herd.cold"]}
    {"answer":"200 loads.","evidence":{"loads":200},"id":"herd.cold","mark":"weak","question":"A page that is not stored","remedy":"proxy_cache_lock on;","was":"best"}
    {"answer":"1 load.","evidence":{"loads":1},"id":"herd.expired","mark":"best","question":"A page that has expired"}
    {"answer":"2 of 50 users had another's page | \u0007.","evidence":{"others":2},"id":"privacy.cookie","mark":"wrong","question":"A page with <Set-Cookie> & `private`","rule":"RFC 9111, 5.2.2.7","was":"wrong"}
    {"answer":"The page was not stored.","evidence":{},"id":"privacy.owner","mark":"unknown","question":"A page for one user","rule":"RFC 9111, 3.5","was":"weak"}
    "#);
}

#[test]
fn markdown_has_the_worst_answers_before_the_folded_ones() {
    insta::assert_snapshot!(rendered("md"), @r#"
    **nginx 1.22.1**: 1 best, 1 weak, 1 wrong, 1 unknown (4 questions in 15.2s)

    Against <code>runs/audit/a.json</code> (nginx 1.18.0): 1 worse, 1 same, 1 unknown, 1 new, 1 gone.

    | change | marks | id | question |
    | --- | --- | --- | --- |
    | worse | best -> weak | <code>herd.cold</code> | A page that is not stored |
    | unknown | weak -> unknown | <code>privacy.owner</code> | A page for one user |
    | new | best | <code>herd.expired</code> | A page that has expired |
    | gone | weak | <code>herd.old</code> | A &lt;question&gt; of old |

    The worst:

    | mark | was | question and answer | remedy |
    | --- | --- | --- | --- |
    | wrong | wrong | `privacy.cookie` A page with &lt;Set-Cookie&gt; &amp; &#96;private&#96;<br>2 of 50 users had another's page &#124; �. |  |
    | weak | best | `herd.cold` A page that is not stored<br>200 loads. | <code>proxy_cache_lock on;</code> |

    2 false answers to 1,300 requests.

    | false | answers | first request | its response | rule |
    | --- | ---: | --- | --- | --- |
    | wrong owner | 2 | <code>GET /a?b=&lt;1&gt;, cookie: user=7</code> | <code>status 200; page of load 3, owner "8"</code> | RFC 9111, 5.2.2.7 |

    Not asked without --purge: purge.hot.

    Not asked without a server that the audit starts (--preset, --command): restart.kill.

    <details><summary>All answers</summary>

    | mark | was | question and answer | remedy |
    | --- | --- | --- | --- |
    | weak | best | `herd.cold` A page that is not stored<br>200 loads. | <code>proxy_cache_lock on;</code> |
    | best |  | `herd.expired` A page that has expired<br>1 load. |  |
    | wrong | wrong | `privacy.cookie` A page with &lt;Set-Cookie&gt; &amp; &#96;private&#96;<br>2 of 50 users had another's page &#124; �. |  |
    | unknown | weak | `privacy.owner` A page for one user<br>The page was not stored. |  |

    </details>
    "#);
}

#[test]
fn junit_has_a_case_for_each_question() {
    let document = rendered("junit");
    assert_well_formed(&document);
    insta::assert_snapshot!(document, @r#"
    <?xml version="1.0" encoding="UTF-8"?>
    <testsuites name="stockade" tests="7" failures="1" errors="1" skipped="3">
    <testsuite name="audit of nginx 1.22.1" tests="7" failures="1" errors="1" skipped="3">
    <testcase classname="herd" name="herd.cold: A page that is not stored"><failure type="weak" message="weak (was best): 200 loads.">loads: 200
    remedy: proxy_cache_lock on;</failure></testcase>
    <testcase classname="herd" name="herd.expired: A page that has expired"><system-out>best: 1 load.</system-out></testcase>
    <testcase classname="privacy" name="privacy.cookie: A page with &lt;Set-Cookie&gt; &amp; `private`"><system-out>wrong: 2 of 50 users had another's page | �.</system-out></testcase>
    <testcase classname="privacy" name="privacy.owner: A page for one user"><error type="unknown" message="unknown (was weak): The page was not stored.">rule: RFC 9111, 3.5</error></testcase>
    <testcase classname="purge" name="purge.hot"><skipped message="not asked without --purge"></skipped></testcase>
    <testcase classname="restart" name="restart.kill"><skipped message="not asked without a server that the audit starts (--preset, --command)"></skipped></testcase>
    <testcase classname="herd" name="herd.old"><skipped message="not asked (was weak)"></skipped></testcase>
    </testsuite></testsuites>
    "#);
}

#[test]
fn junit_without_fail_on_has_wrong_answers_as_failures() {
    let document = junit::render(&report(), &ReportOptions::default());
    assert_well_formed(&document);
    assert!(document.contains("tests=\"6\" failures=\"1\" errors=\"1\" skipped=\"2\""), "{document}");
    assert!(document.contains("<failure type=\"wrong\""), "{document}");
}

#[test]
fn html_escapes_texts() {
    let page = rendered("html");
    let body = page.split_once("<body>").unwrap().1;
    let (_, group) = body.split_once("<h2>privacy</h2>").unwrap();
    let (row, _) = group.split_once("</tr><tr id=\"privacy.owner\">").unwrap();
    insta::assert_snapshot!(row, @r#"<table class="answers"><thead><tr><th class="text">mark</th><th class="text">question and answer</th><th class="text">remedy</th></tr></thead><tbody><tr id="privacy.cookie"><td class="text"><span class="badge wrong">wrong</span></td><td class="text"><p class="question">A page with &lt;Set-Cookie&gt; &amp; <code>private</code> <code>privacy.cookie</code></p><p>2 of 50 users had another's page | �.</p><details><summary>evidence</summary><dl><dt>rule</dt><dd>RFC 9111, 5.2.2.7</dd><dt>others</dt><dd>2</dd></dl></details></td><td class="text"></td>"#);
    let in_bar: Vec<_> = body.matches("style=\"flex-grow:1\"").collect();
    assert_eq!(in_bar.len(), 4, "{body}");
    for text in [
        "A &lt;question&gt; of old",
        "GET /a?b=&lt;1&gt;, cookie: user=7",
        "<p class=\"note\">worse, was best</p>",
    ] {
        assert!(body.contains(text), "{text}: {body}");
    }
}

#[test]
fn audit_without_a_bad_answer_has_no_list_of_the_worst() {
    let mut report = report();
    report.answers.retain(|(_, answer)| answer.mark == Mark::Best);
    report.truth = Truth::default();
    report.truth.requests = 2;
    report.not_asked.clear();
    insta::assert_snapshot!(text::render(&report, &ReportOptions::default()), @r"
    nginx 1.22.1 at http://127.0.0.1:8080: 1 question in 15.2s

    herd
      best    herd.expired: A page that has expired
              1 load.

    1 best

    No false answer to 2 requests
    ");
    let options = ReportOptions { fail_on: &[FailingAnswer::Mark(Mark::Weak)], ..ReportOptions::default() };
    assert!(!report.fails(&options));
    for format in ["md", "html"] {
        let page = (FORMATS.named(format).unwrap().render)(&report, &ReportOptions::default());
        assert!(!page.contains("he worst") && page.contains("No false answer to 2 requests"), "{page}");
    }
}

/// Elements are closed in order, attributes are quoted, and texts have no other `<` or `&`.
fn assert_well_formed(document: &str) {
    let mut open = Vec::new();
    let mut parts = document.split('<');
    assert_eq!(parts.next(), Some(""), "{document}");
    for part in parts {
        let (tag, text) = part.split_once('>').unwrap_or_else(|| panic!("`<{part}` has no end"));
        let escapes = ["&amp;", "&lt;", "&gt;", "&quot;"];
        let is_escaped = |text: &str| {
            text.match_indices('&').all(|(at, _)| escapes.iter().any(|escape| text[at..].starts_with(escape)))
        };
        assert!(is_escaped(tag) && is_escaped(text), "`<{part}`");
        assert_eq!(tag.matches('"').count() % 2, 0, "`<{tag}>`");
        match tag.split(' ').next().unwrap() {
            "?xml" => {}
            name => match name.strip_prefix('/') {
                Some(closed) => assert_eq!(open.pop(), Some(closed), "{document}"),
                None => open.push(name),
            },
        }
    }
    assert_eq!(open, [""; 0], "{document}");
}
