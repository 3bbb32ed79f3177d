//! MongoDB behind the cache.

use std::path::Path;

use crate::{stampede::assert_table, support::Sandbox};
use stockade_services::MongoDbServer;

#[test]
fn published_table_is_exact_over_mongodb() {
    let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/system_schemas.jsonl");
    let sandbox = Sandbox::new();
    let file = if real.exists() {
        real.display().to_string()
    } else {
        let line = |i| format!("{{\"_id\":\"doc {i}\",\"$schema\":[{i}]}}");
        sandbox.file("docs.jsonl", &(0..777).map(line).collect::<Vec<_>>().join("\n"))
    };
    let server = MongoDbServer::start().unwrap();
    let source = server.url();
    let arguments = ["10", "100", "--docs", "fixed:3", "--strategy", "none,stampede", "--source", &source];
    for filled in [&["--docs-from", &file][..], &[]] {
        let runs = sandbox.stampede(&[&arguments[..], filled].concat());
        assert_eq!(runs.len(), 4);
        assert_table(&runs);
    }
    assert_table(&sandbox.stampede(&["100", "--source", &source, "--docs", "fixed:777"]));
}

#[test]
fn errors_have_their_exit_code_and_print_no_secret() {
    let sandbox = Sandbox::new();
    let server = MongoDbServer::start().unwrap();
    let good = server.url();
    let few = sandbox.file("few.jsonl", "{\"_id\":\"a\"}\n{\"_id\":\"b\"}\n");
    let fewer = sandbox.file("fewer.jsonl", "{\"_id\":\"a\"}\n");
    let typed = sandbox.file("typed.jsonl", "{\"_id\":\"a\",\"at\":{\"$date\":\"never\"}}\n");
    for (source, documents, code, words) in [
        (good.replace("love", "hate"), None, 1, "it refuses the user or the password; check both"),
        (good.clone(), None, 1, "there is no database `test`; check its name, or fill it with --docs-from"),
        (good.clone(), Some(&typed), 1, "the document `a` cannot be BSON"),
        (good.clone(), Some(&few), 0, ""),
        (good.clone(), Some(&fewer), 1, "it holds 2 other documents; leave --docs-from out"),
        (format!("{good}?collection=absent"), None, 1, "it has no collection `absent`; fill it with"),
        (good.replace("/test", ""), None, 2, "mongodb: it names no database: write it after the host"),
        (good.replace("%2F", "/"), None, 2, "its path has an `@`: write a `/` in a password as %2F"),
        (good.replace("%3A", ":"), None, 2, "with `:` as %3A"),
        (format!("{good}?colection=x"), None, 2, "unknown parameter `colection`: did you mean `collection`?"),
    ] {
        let arguments =
            ["stampede", "10", "--docs", "fixed:1", "--strategy", "stampede", "--source", &source];
        let documents = documents.map_or(vec![], |file: &String| vec!["--docs-from", file]);
        let output = sandbox.stockade(&[&arguments[..], &documents].concat());
        assert!(!output.stderr.contains("lace"), "{}", output.stderr);
        if code == 0 {
            assert_eq!((output.code, output.stderr.as_str()), (0, ""));
        } else {
            output.assert_refused(code, &[words]);
        }
    }
}
