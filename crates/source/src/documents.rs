//! Documents to fill a source with: generated from a seed, or read from a file.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    sync::Arc,
};

use rand::{RngExt, seq::IndexedRandom};
use serde_json::{Value, json};
use stockade_model::{
    seed::{Rng, Seed},
    source::Document,
};

/// The default number of generated documents. With 680 documents, as in the published test's database, the scaled
/// distribution of ids gives 1, 1, 3 and 30 documents for 10 to 10,000 workers.
pub const GENERATED: usize = 680;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedDocument {
    pub id: Arc<str>,
    pub body: Document,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is not readable.
    #[error("cannot read {}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    /// A line is not a valid document.
    #[error("{}:{line}: {reason}", path.display())]
    Line {
        path: PathBuf,
        /// From 1.
        line: usize,
        /// The cause and the remedy.
        reason: String,
    },
    /// The file contains no documents.
    #[error("{} has no documents: write one JSON object with a string `_id` a line", path.display())]
    Empty { path: PathBuf },
}

/// Reads documents from a file of JSON lines: each line is an object with a unique string `_id`.
/// Blank lines are skipped.
pub fn read_jsonl(path: &Path) -> Result<Vec<NamedDocument>, ReadError> {
    let io = |error| ReadError::Io { path: path.to_owned(), error };
    let mut documents = Vec::new();
    let mut seen: HashMap<Arc<str>, usize> = HashMap::new();
    for (index, text) in BufReader::new(File::open(path).map_err(io)?).lines().enumerate() {
        let (text, line) = (text.map_err(io)?, index + 1);
        if text.trim().is_empty() {
            continue;
        }
        let wrong = |reason: String| ReadError::Line { path: path.to_owned(), line, reason };
        let value: Value = serde_json::from_str(&text)
            .map_err(|error| wrong(format!("not JSON: {error}; write one JSON object a line")))?;
        let Some(id) = value.get("_id").and_then(Value::as_str) else {
            return Err(wrong("no string `_id`: every document needs one".to_owned()));
        };
        let id: Arc<str> = id.into();
        if let Some(first) = seen.insert(Arc::clone(&id), line) {
            return Err(wrong(format!("`_id` \"{id}\" is that of line {first}, too: ids must differ")));
        }
        documents.push(NamedDocument { id, body: text.into() });
    }
    if documents.is_empty() {
        return Err(ReadError::Empty { path: path.to_owned() });
    }
    Ok(documents)
}

/// Generates settings schemas like those of the published test. They are the same every time, with 0.2 to
/// 3 KiB each.
#[must_use]
pub fn generate(count: usize) -> Vec<NamedDocument> {
    let mut rng = Seed(680).stream("documents");
    (0..count)
        .map(|index| {
            let id: Arc<str> =
                format!("{}.{}.{index:03}", pick(&mut rng, AREAS), pick(&mut rng, THINGS)).into();
            let body = schema(&id, &mut rng).to_string().into();
            NamedDocument { id, body }
        })
        .collect()
}

const AREAS: &[&str] = &["billing", "calls", "devices", "faxes", "media", "queues", "routes", "users"];
const THINGS: &[&str] = &["alerts", "codecs", "limits", "notices", "quotas", "retries", "rules", "timers"];
const QUALITIES: &[&str] =
    &["allowed", "default", "hidden", "initial", "largest", "public", "shared", "strict"];
const ASPECTS: &[&str] = &["count", "delay", "format", "label", "level", "owner", "period", "size", "zone"];

fn pick(rng: &mut Rng, words: &[&'static str]) -> &'static str {
    words.choose(rng).expect("the lists of words are not empty")
}

fn schema(id: &str, rng: &mut Rng) -> Value {
    let count = rng.random_range(1..=16);
    let properties: BTreeMap<String, Value> = (0..count)
        .map(|_| {
            let (quality, aspect) = (pick(rng, QUALITIES), pick(rng, ASPECTS));
            (format!("{quality}_{aspect}"), property(quality, aspect, rng))
        })
        .collect();
    json!({
        "$schema": "http://json-schema.org/draft-04/schema#",
        "_id": id,
        "type": "object",
        "description": format!("Settings of {id}"),
        "required": properties.keys().take(2).collect::<Vec<_>>(),
        "properties": properties,
    })
}

fn property(quality: &str, aspect: &str, rng: &mut Rng) -> Value {
    let description = format!("the {quality} {aspect} of each {}", pick(rng, THINGS).trim_end_matches('s'));
    match rng.random_range(0..3) {
        0 => json!({ "type": "boolean", "default": rng.random::<bool>(), "description": description }),
        1 => {
            json!({ "type": "integer", "minimum": 0, "default": rng.random_range(0..3600), "description": description })
        }
        _ => json!({ "type": "string", "enum": QUALITIES, "default": quality, "description": description }),
    }
}
