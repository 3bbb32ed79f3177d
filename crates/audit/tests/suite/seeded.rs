//! The audit of a cache with one known fault at a time.

use std::{net::Ipv4Addr, sync::Arc};

use stockade_audit::{AuditOrigin, AuditReport, Control, Examination, Mark, Server};
use stockade_http::{client::HttpUrl, server::runtime};
use stockade_model::{
    proc::{own_resident_bytes, raise_open_files},
    time::Live,
};

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
        let control = Control { purge, server: Some(Arc::new(cache)), reset: None };
        let examination = Examination { url: &url, server_name: None, control: &control, ask };
        origin.examine(&examination, |_| {}).await.expect("a report")
    };
    runtime().expect("a runtime").block_on(examined)
}

#[test]
fn explore() {
    let name = std::env::var("FAULT").unwrap_or_default();
    let faults: Vec<Fault> =
        Fault::ALL.iter().chain(Fault::FRESH.iter()).copied().filter(|f| format!("{f:?}") == name).collect();
    let report = audited(&faults, &[]);
    for (question, answer) in &report.answers {
        println!("{name}\t{}\t{}\t{}", question.id, answer.mark.name(), answer.text);
    }
    println!("{name}\ttook\t{:?}", report.took);
    let _ = Mark::Best;
}
