//! Random requests, changes and failures against a model of the cache.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use proptest::prelude::*;

use crate::serve::support::*;

/// The cacheability of a document, which its path encodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Fresh for longer than the test.
    Fresh,
    /// Stale on arrival, with stale-if-error and an entity tag.
    Stale,
    /// `Cache-Control: private`.
    Private,
}

/// The kind and number of a document.
type Document = (Kind, u8);

#[derive(Clone, Copy, Debug)]
enum Operation {
    Get(Document, u8),
    Head(Document, u8),
    Put(Document),
    /// A new version at the origin, without an invalidation.
    Change(Document),
    Fail(bool),
}

/// The state of the origin.
#[derive(Default)]
struct Truth {
    versions: BTreeMap<Document, u32>,
    fails: bool,
}

impl Truth {
    fn version(&self, document: Document) -> u32 {
        self.versions.get(&document).copied().unwrap_or_default()
    }

    fn answer(&mut self, received: &ReceivedRequest) -> Vec<u8> {
        let is_put = received.method() == "PUT";
        if self.fails {
            return sized("503 Away", &[], b"failed");
        }
        let kind = match &received.target()[..2] {
            "/f" => Kind::Fresh,
            "/s" => Kind::Stale,
            _ => Kind::Private,
        };
        let document = (kind, received.target().as_bytes()[2] - b'0');
        if is_put {
            *self.versions.entry(document).or_default() += 1;
            return sized("200 OK", &[], b"put");
        }
        let language = received.field("accept-language").unwrap_or_default();
        let tag = format!("\"{language}{}\"", self.version(document));
        if received.field("if-none-match") == Some(&*tag) {
            return format!("HTTP/1.1 304 Not Modified\r\nETag: {tag}\r\nAge: 100\r\n\r\n").into_bytes();
        }
        let header = match kind {
            Kind::Fresh => "max-age=600",
            Kind::Stale => "max-age=1, stale-if-error=600",
            Kind::Private => "private, max-age=600",
        };
        let age = if kind == Kind::Stale { "100" } else { "0" };
        let fields = [
            &format!("Cache-Control: {header}"),
            &format!("Age: {age}"),
            "Vary: Accept-Language",
            &format!("ETag: {tag}"),
        ];
        let answer = sized("200 OK", &fields, body(document, language, self.version(document)).as_bytes());
        if received.method() == "HEAD" {
            let end = answer.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |at| at + 4);
            return answer[..end].to_vec();
        }
        answer
    }
}

fn path((kind, number): Document) -> String {
    format!(
        "/{}{number}",
        match kind {
            Kind::Fresh => 'f',
            Kind::Stale => 's',
            Kind::Private => 'p',
        }
    )
}

fn body(document: Document, language: &str, version: u32) -> String {
    format!("{} in {language}, version {version}", path(document))
}

#[derive(Default)]
struct Model {
    /// The stored version of each document and language.
    stored: BTreeMap<(Document, u8), u32>,
    /// The versions that a PUT has invalidated.
    fallbacks: BTreeMap<(Document, u8), u32>,
}

impl Model {
    /// The expected status, version and cache outcome of a GET.
    fn get(&mut self, truth: &Truth, document: Document, language: u8) -> (u16, u32, &'static str) {
        let stored = self.stored.get(&(document, language)).copied();
        let current = truth.version(document);
        match (document.0, stored) {
            (Kind::Fresh, Some(version)) => (200, version, "hit"),
            (Kind::Stale, Some(version)) if truth.fails => (200, version, "fallback"),
            _ if truth.fails => match self.fallbacks.get(&(document, language)) {
                Some(version) => (200, *version, "fallback"),
                None => (503, 0, "error"),
            },
            (kind, _) => {
                if kind != Kind::Private {
                    self.stored.insert((document, language), current);
                    self.fallbacks.remove(&(document, language));
                }
                (200, current, "miss")
            }
        }
    }

    fn put(&mut self, document: Document) {
        let invalidated = self.stored.extract_if(.., |(one, _), _| *one == document);
        self.fallbacks.extend(invalidated);
    }
}

const LANGUAGES: [&str; 3] = ["de", "en", "fr"];

async fn run(operations: Vec<Operation>) {
    let truth = Arc::<Mutex<Truth>>::default();
    let theirs = Arc::clone(&truth);
    let origin = Origin::responding(move |received| {
        theirs.lock().unwrap_or_else(PoisonError::into_inner).answer(received)
    })
    .await;
    let cache = "[cache]\nstrategy = \"fallback\"\nthrottle = \"0s\"\n";
    let proxy = proxy_with(&origin.url(), cache, "").await;
    let mut client = Client::connect(&proxy).await;
    let mut model = Model::default();
    for (number, operation) in operations.iter().enumerate() {
        match *operation {
            Operation::Get(document, language) | Operation::Head(document, language) => {
                let method = if matches!(operation, Operation::Get(..)) { "GET" } else { "HEAD" };
                with_timeout(proxy.proxy().cache().wait_idle()).await;
                let field = format!("Accept-Language: {}", LANGUAGES[usize::from(language)]);
                let answer = client.send(method, &path(document), &[&field]).await;
                let truth = truth.lock().unwrap_or_else(PoisonError::into_inner);
                if method == "HEAD" {
                    let of = (document, language);
                    let is_known = model.stored.contains_key(&of) || model.fallbacks.contains_key(&of);
                    let status = if truth.fails && !is_known { 503 } else { 200 };
                    assert_eq!((answer.status(), answer.body.len()), (status, 0), "{number} {operation:?}");
                    continue;
                }
                let (status, version, did) = model.get(&truth, document, language);
                // A failure of a known private document is relayed without coalescing, as a miss.
                let is_own = document.0 == Kind::Private && status == 503 && answer.outcome() == "miss";
                let did = if is_own { "miss" } else { did };
                assert_eq!(
                    (answer.status(), answer.outcome()),
                    (status, did),
                    "{number} {operation:?} {answer:?}"
                );
                let whole = body(document, LANGUAGES[usize::from(language)], version);
                assert!(answer.is_whole);
                assert_eq!(
                    answer.text(),
                    if status == 200 { &whole } else { "failed" },
                    "{number} {operation:?}"
                );
            }
            Operation::Put(document) => {
                let answer = client.send("PUT", &path(document), &["Content-Length: 0"]).await;
                let fails = truth.lock().unwrap_or_else(PoisonError::into_inner).fails;
                assert_eq!(answer.status(), if fails { 503 } else { 200 }, "{number} {operation:?}");
                if !fails {
                    model.put(document);
                }
            }
            Operation::Change(document) => {
                *truth
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .versions
                    .entry(document)
                    .or_default() += 1;
            }
            Operation::Fail(fails) => truth.lock().unwrap_or_else(PoisonError::into_inner).fails = fails,
        }
    }
}

fn document() -> impl Strategy<Value = Document> {
    let kind = prop_oneof![Just(Kind::Fresh), Just(Kind::Stale), Just(Kind::Private)];
    (kind, 0_u8..2)
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => (document(), 0_u8..3).prop_map(|(document, language)| Operation::Get(document, language)),
        1 => (document(), 0_u8..3).prop_map(|(document, language)| Operation::Head(document, language)),
        2 => document().prop_map(Operation::Put),
        2 => document().prop_map(Operation::Change),
        1 => any::<bool>().prop_map(Operation::Fail),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn responses_match_the_model(operations in prop::collection::vec(operation(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(run(operations));
    }
}
