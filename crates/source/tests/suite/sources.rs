//! Local sources with valid and invalid files.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

use stockade_model::source::Source;
use stockade_source::{SourceUrl, documents};
use tempfile::TempDir;

fn url(text: &str) -> SourceUrl {
    text.parse().unwrap()
}

fn sqlite(path: &Path) -> SourceUrl {
    url(&format!("sqlite:{}", path.display()))
}

fn message<T>(result: Result<T, impl std::fmt::Display>) -> String {
    result.err().expect("an error").to_string()
}

async fn assert_serves(source: &Arc<dyn Source>, documents: &[documents::NamedDocument]) {
    let ids = source.ids().await.unwrap();
    assert_eq!(ids.len(), documents.len());
    assert!(ids.is_sorted());
    for document in documents {
        assert_eq!(source.fetch(&document.id).await.unwrap().as_ref(), Some(&document.body));
    }
    assert_eq!(source.fetch("not written").await.unwrap(), None, "not found is an answer");
}

#[tokio::test]
async fn sqlite_fill_stores_documents_and_overwrites_nothing() {
    let directory = TempDir::new().unwrap();
    let database = sqlite(&directory.path().join("documents.sqlite"));
    let documents = documents::generate(50);
    assert_serves(&database.fill(&documents).await.unwrap(), &documents).await;
    assert_serves(&database.fill(&documents).await.unwrap(), &documents).await;
    let refused = message(database.fill(&documents[..20]).await);
    assert!(refused.contains("it holds 50 other documents; leave --docs-from out"), "{refused}");
    assert_serves(&database.open().await.unwrap(), &documents).await;
    assert_serves(&url("sqlite:").fill(&documents).await.unwrap(), &documents).await;
}

#[tokio::test]
async fn damaged_database_is_reported_with_a_remedy() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("documents.sqlite");
    let documents = documents::generate(500);
    drop(sqlite(&path).fill(&documents).await.unwrap());
    let mut bytes = fs::read(&path).unwrap();
    let page = 4096;
    bytes[page..].fill(0xff);
    fs::write(&path, bytes).unwrap();
    let damaged = message(sqlite(&path).open().await);
    assert!(damaged.contains("malformed; name a SQLite database, or remove the file"), "{damaged}");
}

#[tokio::test]
async fn simulated_serves_generated_documents() {
    assert_serves(&url("simulated:").open().await.unwrap(), &documents::generate(680)).await;
    assert_serves(&url("simulated:7").open().await.unwrap(), &documents::generate(7)).await;
}

#[test]
fn generated_documents_differ_and_are_valid_json_lines() {
    let documents = documents::generate(documents::GENERATED);
    assert_eq!(documents, documents::generate(documents::GENERATED));
    assert_eq!(documents.iter().map(|doc| &doc.id).collect::<BTreeSet<_>>().len(), 680);

    let directory = TempDir::new().unwrap();
    let path = directory.path().join("documents.jsonl");
    let lines: Vec<&str> = documents.iter().map(|doc| std::str::from_utf8(&doc.body).unwrap()).collect();
    fs::write(&path, lines.join("\n")).unwrap();
    assert_eq!(documents::read_jsonl(&path).unwrap(), documents);
}

#[tokio::test]
async fn deleted_document_is_not_found_and_dropped_table_is_an_error() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("documents.sqlite");
    let documents = documents::generate(3);
    let source = sqlite(&path).fill(&documents).await.unwrap();
    let writer = rusqlite::Connection::open(&path).unwrap();
    writer.execute("DELETE FROM documents WHERE id = ?1", [&documents[0].id]).unwrap();
    assert_eq!(source.fetch(&documents[0].id).await.unwrap(), None);
    writer.execute_batch("DROP TABLE documents").unwrap();
    let error = message(source.fetch(&documents[1].id).await);
    assert!(error.contains("documents.sqlite: no such table: documents"), "{error}");
}

#[tokio::test]
async fn invalid_sources_are_reported_with_place_and_remedy() {
    let directory = TempDir::new().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("text.sqlite"), "this is not a database, and longer than a header of sixteen bytes")
        .unwrap();
    rusqlite::Connection::open(at("empty.sqlite")).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();

    let missing = message(sqlite(&at("absent.sqlite")).open().await);
    assert!(
        missing.ends_with("absent.sqlite: check the path, or fill a new one with --docs-from FILE.jsonl"),
        "{missing}"
    );
    assert!(!at("absent.sqlite").exists(), "looking for a database does not make one");
    let text = message(sqlite(&at("text.sqlite")).open().await);
    assert!(
        text.contains("text.sqlite cannot be used: file is not a database; name a SQLite database"),
        "{text}"
    );
    let empty = message(sqlite(&at("empty.sqlite")).open().await);
    assert!(
        empty.contains("no such table: documents; it needs a table `documents (id TEXT, body BLOB)`"),
        "{empty}"
    );
    let unwritable = message(sqlite(&at("no/such/directory.sqlite")).fill(&documents::generate(1)).await);
    assert!(unwritable.contains("directory.sqlite cannot be used: unable to open"), "{unwritable}");
    assert!(unwritable.contains("check that it is a file, its directory"), "{unwritable}");
    let integers =
        "CREATE TABLE documents (id INTEGER, body TEXT); INSERT INTO documents VALUES (7, 'seven')";
    rusqlite::Connection::open(at("integers.sqlite")).unwrap().execute_batch(integers).unwrap();
    let integers = message(sqlite(&at("integers.sqlite")).open().await);
    assert!(integers.contains("ids have to be TEXT"), "{integers}");

    for (text, expected) in [
        ("sqlit:x", "unknown source `sqlit`: did you mean `sqlite`?"),
        ("redis://localhost", "unknown source `redis`: use one of: sqlite, simulated"),
    ] {
        // The list of schemes depends on the build's features.
        let message = message(text.parse::<SourceUrl>());
        assert!(message.starts_with(expected), "{message}");
    }
    for count in ["0", "-1", "many", "1000001"] {
        let expected = format!("`{count}` is not a count of documents: write a number from 1 to 1000000");
        assert_eq!(message(format!("simulated:{count}").parse::<SourceUrl>()), expected);
    }
}

#[test]
fn invalid_document_files_are_reported_with_the_line() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("documents.jsonl");
    for (text, expected) in [
        ("", " has no documents: write one JSON object with a string `_id` a line"),
        (
            "{\"_id\":\"a\"}\n\n{\"_id\":",
            ":3: not JSON: EOF while parsing a value at line 1 column 7; write one JSON object a line",
        ),
        ("{\"_id\":7}", ":1: no string `_id`: every document needs one"),
        ("[]", ":1: no string `_id`: every document needs one"),
        ("{\"_id\":\"a\"}\n{\"_id\":\"a\"}", ":2: `_id` \"a\" is that of line 1, too: ids must differ"),
    ] {
        fs::write(&path, text).unwrap();
        assert_eq!(message(documents::read_jsonl(&path)), format!("{}{expected}", path.display()), "{text}");
    }
    fs::write(&path, [0xff, 0xfe, b'\n']).unwrap();
    assert!(message(documents::read_jsonl(&path)).starts_with("cannot read "));
    assert!(message(documents::read_jsonl(&directory.path().join("absent"))).starts_with("cannot read "));
}
