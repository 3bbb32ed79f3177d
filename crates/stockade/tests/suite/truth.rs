//! False answers over HTTP: `audit.*` of stock nginx, configured right and wrong, in front of the origin of the experiment.

use serde_json::Value;
use stockade_services::free_port;

use crate::support::{Sandbox, nginx};

#[test]
fn false_answers_of_a_misconfigured_nginx_are_counted_with_an_example() {
    let sandbox = Sandbox::new();
    let [right, keeps, changes, origin] = [(); 4].map(|()| free_port().expect("a port"));
    let arms = [
        // The client decodes: the body is the one that the origin sent.
        nginx(&sandbox, "right", [right, origin], "gzip on;"),
        nginx(
            &sandbox,
            "keeps",
            [keeps, origin],
            "proxy_ignore_headers Cache-Control; proxy_cache_valid 200 60s;",
        ),
        nginx(&sandbox, "changes", [changes, origin], "sub_filter page leaf;"),
    ];
    let text = format!(
        "title = \"Truth\"\n[target]\nkind = \"url\"\n[origin]\nlisten = \"127.0.0.1:{origin}\"\n\
         recipe = [{{ route = \"/*\", body = \"a page <<10kb>>\", stages = [{{ at = 0, latency = \"5ms\" }}],\n\
         headers = {{ cache-control = \"max-age=1\" }} }}]\n\
         [load]\nrate = \"100/s\"\nduration = \"5s\"\npath = \"/page\"\n{}\n\
         [[hypothesis]]\ntext = \"what each configuration does\"\nexpect = [\n\
         \"right.audit.too_old == 0\", \"right.audit.wrong_body == 0\", \"audit.truncated == 0\",\n\
         \"keeps.audit.too_old > 0\", \"keeps.audit.age_wrong > 0\", \"keeps.audit.wrong_body == 0\",\n\
         \"changes.audit.wrong_body == changes.requests\", \"audit.wrong_status == 0\",\n]\n",
        arms.concat()
    );
    let file = sandbox.file("truth.toml", &text);
    let output = sandbox.stockade(&["run", &file, "--format", "json", "--out", "record"]);
    // 98: on a busy machine the generator may be late.
    assert!([0, 98].contains(&output.code), "{output:?}");
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(report["hypotheses"][0]["verdict"], "supported", "{report}");
    let audit = |arm: &str| &report["arms"][arm]["audit"];
    // Without owners, variants and purges these do not apply.
    for absent in ["after_purge", "wrong_owner", "wrong_variant"] {
        assert!(audit("right").get(absent).is_none(), "{absent}: {report}");
    }
    assert!(audit("right").get("examples").is_none(), "{report}");
    let example = &audit("keeps")["examples"]["too_old"];
    assert_eq!(example["request"], "GET /page", "{report}");
    assert_eq!(example["rule"], "the origin allows 1 s (RFC 9111, 4.2; RFC 5861)");
    let answer = example["answer"].as_str().expect("words");
    assert!(answer.starts_with("status 200, 2.") && answer.ends_with("without `Age`"), "{answer}");
    for format in ["text", "md", "html"] {
        let shown = sandbox.stockade(&["report", "record", "--format", format]).stdout;
        for part in
            ["keeps: audit.too_old ", "changes: audit.wrong_body ", "The first: GET /page, status 200"]
        {
            assert!(shown.contains(part), "{format}: {part}: {shown}");
        }
        assert!(!shown.contains("right: audit."), "{format}: {shown}");
    }
}

#[test]
fn page_of_another_user_or_variant_is_counted() {
    let sandbox = Sandbox::new();
    let [right, mixes, origin] = [(); 3].map(|()| free_port().expect("a port"));
    let arms = [
        nginx(&sandbox, "right", [right, origin], ""),
        nginx(&sandbox, "mixes", [mixes, origin], "proxy_ignore_headers Vary;"),
    ];
    let users = ["ann", "bob"].map(|user| {
        ["de", "en"].map(|language| {
            format!("GET http://127.0.0.1/page\nCookie: id={user}\nAccept-Language: {language}\n\n")
        })
    });
    sandbox.file("users.txt", &users.concat().concat());
    let text = format!(
        "title = \"Users\"\n[target]\nkind = \"url\"\n[origin]\nlisten = \"127.0.0.1:{origin}\"\n\
         recipe = [{{ route = \"/*\", body = \"a page\", stages = [{{ at = 0 }}], owner = \"cookie\", variant = \"accept-language\",\n\
         headers = {{ cache-control = \"max-age=60\", vary = \"cookie, accept-language\" }} }}]\n\
         [load]\nrate = \"100/s\"\nduration = \"2s\"\ntargets = {{ file = \"users.txt\" }}\n{}\n\
         [[hypothesis]]\ntext = \"Vary tells users apart\"\nexpect = [\n\
         \"right.audit.wrong_owner == 0\", \"right.audit.wrong_variant == 0\",\n\
         \"mixes.audit.wrong_owner > 0.4 * mixes.requests\", \"mixes.audit.wrong_variant > 0.4 * mixes.requests\",\n]\n",
        arms.concat()
    );
    let file = sandbox.file("users.toml", &text);
    let output = sandbox.stockade(&["run", &file, "--format", "json"]);
    assert!([0, 98].contains(&output.code), "{output:?}");
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(report["hypotheses"][0]["verdict"], "supported", "{report}");
    let examples = &report["arms"]["mixes"]["audit"]["examples"];
    for (kind, field) in [("wrong_owner", "cookie"), ("wrong_variant", "accept-language")] {
        let answer = examples[kind]["answer"].as_str().expect("words");
        assert!(answer.ends_with(&format!("made for a request with another `{field}`")), "{answer}");
    }
    assert!(!report.to_string().contains("id=bob"), "values of cookies are in no report");
}

#[test]
fn earlier_name_of_a_metric_names_the_present_one() {
    let sandbox = Sandbox::new();
    let text = "title = \"t\"\n[target]\nkind = \"engine\"\n[load]\nrate = \"10/s\"\nduration = \"1s\"\n[[arm]]\nname = \"a\"\n\
                [[hypothesis]]\ntext = \"h\"\nexpect = [\"a.audit.after_invalidation == 0\"]\n";
    let file = sandbox.file("old.toml", text);
    let words = ["the metric `audit.after_invalidation` is now `audit.after_purge`"];
    sandbox.stockade(&["run", &file]).assert_refused(2, &words);
}
