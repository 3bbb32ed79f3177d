//! Requests, changes and failures in any order, against a model of what may be known.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use proptest::prelude::*;

use crate::support::*;

/// How answers below a path are told to be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// For longer than any test takes.
    Fresh,
    /// Stale as soon as they are here, good for failures, and validated by their version.
    Stale,
    /// For who has asked.
    Private,
}

/// What is asked for, and the language that it is asked in.
type Document = (Kind, u8);

#[derive(Clone, Copy, Debug)]
enum Step {
    Get(Document, u8),
    Head(Document, u8),
    Put(Document),
    /// The origin has a new version, and tells nobody.
    Change(Document),
    Fail(bool),
}

/// The origin's truth.
#[derive(Default)]
struct Truth {
    versions: BTreeMap<Document, u32>,
    fails: bool,
}

impl Truth {
    fn version(&self, document: Document) -> u32 {
        self.versions.get(&document).copied().unwrap_or_default()
    }

    fn answer(&mut self, heard: &Heard) -> Vec<u8> {
        let is_put = heard.method() == "PUT";
        if self.fails {
            return sized("503 Away", &[], b"failed");
        }
        let kind = match &heard.target()[..2] {
            "/f" => Kind::Fresh,
            "/s" => Kind::Stale,
            _ => Kind::Private,
        };
        let document = (kind, heard.target().as_bytes()[2] - b'0');
        if is_put {
            *self.versions.entry(document).or_default() += 1;
            return sized("200 OK", &[], b"put");
        }
        let language = heard.field("accept-language").unwrap_or_default();
        let tag = format!("\"{language}{}\"", self.version(document));
        if heard.field("if-none-match") == Some(&*tag) {
            return format!("HTTP/1.1 304 Not Modified\r\nETag: {tag}\r\nAge: 100\r\n\r\n").into_bytes();
        }
        let told = match kind {
            Kind::Fresh => "max-age=600",
            Kind::Stale => "max-age=1, stale-if-error=600",
            Kind::Private => "private, max-age=600",
        };
        let age = if kind == Kind::Stale { "100" } else { "0" };
        let fields = [
            &format!("Cache-Control: {told}"),
            &format!("Age: {age}"),
            "Vary: Accept-Language",
            &format!("ETag: {tag}"),
        ];
        let answer = sized("200 OK", &fields, body(document, language, self.version(document)).as_bytes());
        if heard.method() == "HEAD" {
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

/// What is known of documents, by language: the version that was stored.
#[derive(Default)]
struct Model {
    stored: BTreeMap<(Document, u8), u32>,
}

impl Model {
    /// The status of an answer to GET, its version, and what the cache did.
    fn get(&mut self, truth: &Truth, document: Document, language: u8) -> (u16, u32, &'static str) {
        let stored = self.stored.get(&(document, language)).copied();
        let current = truth.version(document);
        match (document.0, stored) {
            (Kind::Fresh, Some(version)) => (200, version, "hit"),
            (Kind::Stale, Some(version)) if truth.fails => (200, version, "fallback"),
            _ if truth.fails => (503, 0, "error"),
            (kind, _) => {
                if kind != Kind::Private {
                    self.stored.insert((document, language), current);
                }
                (200, current, "miss")
            }
        }
    }
}

const LANGUAGES: [&str; 3] = ["de", "en", "fr"];

async fn run(steps: Vec<Step>) {
    let truth = Arc::<Mutex<Truth>>::default();
    let theirs = Arc::clone(&truth);
    let origin =
        Origin::saying(move |heard| theirs.lock().unwrap_or_else(PoisonError::into_inner).answer(heard))
            .await;
    let cache = "[cache]\nstrategy = \"fallback\"\nthrottle = \"0s\"\n";
    let proxy = proxy_with(&origin.url(), cache, "").await;
    let mut client = Client::connect(&proxy).await;
    let mut model = Model::default();
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Get(document, language) | Step::Head(document, language) => {
                let method = if matches!(step, Step::Get(..)) { "GET" } else { "HEAD" };
                soon(proxy.proxy().cache().idle()).await;
                let field = format!("Accept-Language: {}", LANGUAGES[usize::from(language)]);
                let answer = client.ask(method, &path(document), &[&field]).await;
                let truth = truth.lock().unwrap_or_else(PoisonError::into_inner);
                if method == "HEAD" {
                    let is_known =
                        document.0 == Kind::Fresh && model.stored.contains_key(&(document, language));
                    let status = if truth.fails && !is_known { 503 } else { 200 };
                    assert_eq!((answer.status(), answer.body.len()), (status, 0), "{number} {step:?}");
                    continue;
                }
                let (status, version, did) = model.get(&truth, document, language);
                // The failure of one that is known to be private is an answer as any other to it.
                let is_own = document.0 == Kind::Private && status == 503 && answer.did() == "miss";
                let did = if is_own { "miss" } else { did };
                assert_eq!((answer.status(), answer.did()), (status, did), "{number} {step:?} {answer:?}");
                let whole = body(document, LANGUAGES[usize::from(language)], version);
                assert!(answer.is_whole);
                assert_eq!(answer.text(), if status == 200 { &whole } else { "failed" }, "{number} {step:?}");
            }
            Step::Put(document) => {
                let answer = client.ask("PUT", &path(document), &["Content-Length: 0"]).await;
                let fails = truth.lock().unwrap_or_else(PoisonError::into_inner).fails;
                assert_eq!(answer.status(), if fails { 503 } else { 200 }, "{number} {step:?}");
                if !fails {
                    model.stored.retain(|(one, _), _| *one != document);
                }
            }
            Step::Change(document) => {
                *truth
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .versions
                    .entry(document)
                    .or_default() += 1;
            }
            Step::Fail(fails) => truth.lock().unwrap_or_else(PoisonError::into_inner).fails = fails,
        }
    }
}

fn document() -> impl Strategy<Value = Document> {
    let kind = prop_oneof![Just(Kind::Fresh), Just(Kind::Stale), Just(Kind::Private)];
    (kind, 0_u8..2)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (document(), 0_u8..3).prop_map(|(document, language)| Step::Get(document, language)),
        1 => (document(), 0_u8..3).prop_map(|(document, language)| Step::Head(document, language)),
        2 => document().prop_map(Step::Put),
        2 => document().prop_map(Step::Change),
        1 => any::<bool>().prop_map(Step::Fail),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn answers_are_what_may_be_known(steps in prop::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(run(steps));
    }
}
