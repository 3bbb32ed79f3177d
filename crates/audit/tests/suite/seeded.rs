//! The audit of a cache with one known fault at a time.

use std::{
    collections::VecDeque,
    net::Ipv4Addr,
    sync::{Arc, Mutex},
    thread,
};

use stockade_audit::{AuditOrigin, AuditReport, Control, Examination, Mark, Server};
use stockade_http::{client::HttpUrl, server::runtime};
use stockade_model::{
    proc::{own_resident_bytes, raise_open_files},
    time::Live,
};
use stockade_services::in_own_process;

use crate::faulty_cache::{Fault, FaultyCache};

impl Server for FaultyCache {
    fn restart(&self) -> Result<(), String> {
        self.reload();
        Ok(())
    }

    fn can_reload(&self) -> bool {
        true
    }

    fn reload(&self) {
        FaultyCache::reload(self);
    }

    fn resident_bytes(&self) -> Option<u64> {
        own_resident_bytes()
    }
}

/// A question that finds each fault. Its mark is worse than that of the cache without faults.
const FOUND_BY: [(Fault, &str); 35] = [
    (Fault::ServesPastLimit, "freshness.max-age"),
    (Fault::IgnoresVary, "variants.vary"),
    (Fault::CrossUserCoalescing, "privacy.private"),
    (Fault::LatePurge, "purge.removes"),
    (Fault::PurgeLostDuringLoad, "purge.during-load"),
    (Fault::StoresTruncated, "integrity.cut"),
    (Fault::StoresErrors, "integrity.error-stored"),
    (Fault::IgnoresNoStore, "privacy.no-store"),
    (Fault::MergesNotModifiedWrongly, "variants.304-fields"),
    (Fault::DropsFields, "integrity.fields"),
    (Fault::CutsKeys, "keys.long"),
    (Fault::WrongAge, "freshness.age"),
    (Fault::SerialisesUncacheable, "herd.uncacheable"),
    (Fault::RefreshesWithoutCoalescing, "herd.refresh"),
    (Fault::ForgetsAfterReload, "restart.reload"),
    (Fault::RevalidatesWithAnotherTag, "variants.revalidation"),
    (Fault::MixesRanges, "variants.if-range"),
    (Fault::HeadWithOtherLength, "variants.head"),
    (Fault::BreakerForAll, "outage.other-pages"),
    (Fault::RetriesPost, "integrity.post-retry"),
    (Fault::NothingAfterReset, "herd.leader-reset"),
    (Fault::UnkeyedField, "keys.unkeyed"),
    (Fault::StaleAfterGone, "integrity.gone"),
    (Fault::StoresAuthorized, "privacy.authorization"),
    (Fault::StoresPartAsWhole, "variants.range"),
    (Fault::ForgetsOriginAge, "freshness.age-of-origin"),
    (Fault::StaleDespiteMustRevalidate, "outage.must-revalidate"),
    (Fault::KeyWithoutHost, "keys.host"),
    (Fault::DecodesKeys, "keys.slashes"),
    (Fault::PurgesOneVariant, "purge.variants"),
    (Fault::SharesLeadersVariant, "variants.vary"),
    (Fault::ReadsOneCacheControlLine, "freshness.two-lines"),
    (Fault::StoresHeadAsPage, "variants.head"),
    (Fault::DefaultLifetime, "freshness.no-lifetime"),
    (Fault::EndsWithLeader, "herd.leader-cancelled"),
];
/// Audits at the same time; most of each is a wait.
const AT_ONCE: usize = 4;

/// The report about a cache with these faults; of all questions if none are named.
fn audited(faults: &[Fault], ask: &[&'static str]) -> AuditReport {
    let _ = raise_open_files();
    let id = format!("{faults:?}").to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "");
    let examined = async {
        let origin = AuditOrigin::start((Ipv4Addr::LOCALHOST, 0).into(), format!("of-{id}"), Live::new())
            .expect("an origin");
        let cache = FaultyCache::start(origin.address(), faults);
        let url = HttpUrl::parse(&format!("http://{}", cache.address)).expect("a URL");
        let purge = "PURGE {url}".parse().ok();
        let control = Control { purge, server: Some(Arc::new(cache)), ..Control::default() };
        let examination = Examination { url: &url, server_name: None, control: &control, ask };
        origin.examine(&examination, |_| {}).await.expect("a report")
    };
    runtime().expect("a runtime").block_on(examined)
}

/// The first answer: its mark and its text.
fn answer(report: &AuditReport) -> (Mark, &str) {
    let (_, answer) = report.answers.first().expect("an answer");
    (answer.mark, &answer.text)
}

/// An error has the answers for the cache without the fault and with it.
fn found(fault: Fault, question: &'static str) -> Result<(), String> {
    let [good, faulty] = [&[][..], &[fault]].map(|faults| audited(faults, &[question]));
    let (good, faulty) = (answer(&good), answer(&faulty));
    let is_found = matches!(faulty.0, Mark::Weak | Mark::Wrong) && good.0 < faulty.0;
    if is_found { Ok(()) } else { Err(format!("{fault:?}: {good:?}, {faulty:?}")) }
}

/// Each fault alone, with the question that finds it, and the same question to the cache without faults.
#[test]
fn each_fault_is_found() {
    for fault in Fault::ALL.iter().chain(&Fault::FRESH) {
        let is_listed = FOUND_BY.iter().any(|(found, _)| found == fault) || *fault == Fault::LeaksMemory;
        assert!(is_listed, "{fault:?}");
    }
    let left = Mutex::new(VecDeque::from(FOUND_BY));
    let missed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some((fault, question)) = left.lock().expect("no panic").pop_front() else { return };
                    // Once more on a machine that is too busy.
                    if let Err(answers) = found(fault, question).or_else(|_| found(fault, question)) {
                        missed.lock().expect("no panic").push(answers);
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().expect("no panic");
    assert!(missed.is_empty(), "{missed:#?}");
}

/// The cache is in the process of the test, whose memory is measured.
#[test]
fn leak_is_found() {
    in_own_process("seeded::leak_is_found", "", || {
        let [good, leaking] =
            [&[][..], &[Fault::LeaksMemory]].map(|faults| audited(faults, &["limits.memory"]));
        assert!(answer(&good).0 < Mark::Weak, "{:?}", answer(&good));
        assert_eq!(answer(&leaking).0, Mark::Weak, "{:?}", answer(&leaking));
    });
}

/// All questions, in a minute and a half.
#[test]
fn good_cache_has_no_wrong_answer() {
    let report = audited(&[], &[]);
    let wrong: Vec<_> = report
        .answers
        .iter()
        .filter(|(_, answer)| answer.mark == Mark::Wrong)
        .map(|(question, answer)| (question.id, &answer.text))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(report.truth.violations(), 0, "{:?}", report.truth);
    assert!(report.answers.len() > 80 && report.not_asked.is_empty());
}
