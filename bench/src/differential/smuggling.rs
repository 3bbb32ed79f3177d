//! Smuggling through ignored content: requests with content that is itself a request, through each proxy to each real origin.
//!
//! An origin that leaves the content of a request unread takes it for the next request on the connection. If the proxy uses that
//! connection again, another client gets the response to the content, and a cache stores it. After each such request two other clients
//! ask for pages of their own; a page is wrong if it is not theirs.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path, thread};

use super::{
    Result,
    case::bytes,
    client::exchange,
    peers::{PEERS, RunningPeer, SMUGGLING_PEERS},
    real_origins::{EVIL, InstalledOrigin, REAL_ORIGINS, VICTIM},
};

const METHODS: [&str; 13] = [
    "GET", "HEAD", "OPTIONS", "DELETE", "TRACE", "POST", "PUT", "PATCH", "PROPFIND", "QUERY", "PURGE",
    "UNKNOWN", "get",
];

/// How the content is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Announcement {
    Sized,
    /// The client asks that nothing be stored: caches forward the request without a lookup.
    NoStore,
    Expected,
    Chunked,
}

const ANNOUNCEMENTS: [Announcement; 4] =
    [Announcement::Sized, Announcement::NoStore, Announcement::Expected, Announcement::Chunked];

/// The number of requests with content, each on a connection of its own.
const ATTACKS: usize = 2;
/// The number of other clients, and of the requests of each.
const VICTIMS: usize = 2;
const PAGES: usize = 2;

/// How often a proxy gave another client a wrong page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub cases: usize,
    /// A client got the attacker's page.
    pub evil: usize,
    /// A client got neither page: an error, or nothing.
    pub failed: usize,
}

/// All of the run. The first proxy is ours.
pub struct Smuggling {
    pub proxies: Vec<(&'static str, String)>,
    pub origins: Vec<(&'static str, String)>,
    pub missing: Vec<&'static str>,
    /// By proxy and origin.
    pub tallies: Vec<Vec<Tally>>,
    /// Cases in which another client got a wrong page, by proxy: the origin, the case, and the outcome.
    pub wrong: Vec<Vec<String>>,
}

/// Runs all cases: the proxies at the same time, the origins of each in turn.
pub fn run(folder: &Path) -> Result<Smuggling> {
    let (mut peers, mut missing, mut origins) = (Vec::new(), Vec::new(), Vec::new());
    for origin in &REAL_ORIGINS {
        match origin.find(folder)? {
            Some(found) => origins.push(found),
            None => missing.push(origin.name),
        }
    }
    for peer in PEERS.iter().chain(&SMUGGLING_PEERS) {
        match peer.start(folder).map_err(|error| format!("{}: {error}", peer.name))? {
            Some(running) => peers.push(running),
            None => missing.push(peer.name),
        }
    }
    let columns = thread::scope(|scope| {
        let runs: Vec<_> = peers.iter().map(|peer| scope.spawn(|| run_one(peer, &origins, folder))).collect();
        let join =
            |run: thread::ScopedJoinHandle<'_, _>| run.join().map_err(|_| "a run has panicked".to_owned())?;
        runs.into_iter().map(join).collect::<std::result::Result<Vec<_>, String>>()
    })?;
    let (tallies, wrong) = columns.into_iter().unzip();
    Ok(Smuggling {
        proxies: peers.iter().map(|peer| (peer.name, peer.settings.clone())).collect(),
        origins: origins.into_iter().map(|origin| (origin.name, origin.version)).collect(),
        missing,
        tallies,
        wrong,
    })
}

type Column = (Vec<Tally>, Vec<String>);

fn run_one(
    peer: &RunningPeer,
    origins: &[InstalledOrigin],
    folder: &Path,
) -> std::result::Result<Column, String> {
    let (mut tallies, mut wrong) = (Vec::new(), Vec::new());
    for (number, origin) in origins.iter().enumerate() {
        let own = folder.join(format!("{}-{number}", peer.address));
        let failed = |error: &dyn std::fmt::Display| format!("{} before {}: {error}", peer.name, origin.name);
        let process = origin.start(&own, peer.origin).map_err(|error| failed(&error))?;
        let mut tally = Tally::default();
        for method in METHODS {
            for announcement in ANNOUNCEMENTS {
                let id = format!("{number}-{method}-{announcement:?}");
                let outcome = attack(peer, method, announcement, &id).map_err(|error| failed(&error))?;
                tally.cases += 1;
                tally.evil += usize::from(outcome == Outcome::Evil);
                tally.failed += usize::from(outcome == Outcome::Failed);
                if outcome != Outcome::Own {
                    wrong.push(format!("{}, {method}, {announcement:?}: {outcome:?}", origin.name));
                }
            }
        }
        tallies.push(tally);
        drop(process);
        let _ = fs::remove_dir_all(own);
    }
    Ok((tallies, wrong))
}

/// The worst that another client got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Own,
    Failed,
    Evil,
}

fn attack(
    peer: &RunningPeer,
    method: &str,
    announcement: Announcement,
    id: &str,
) -> std::io::Result<Outcome> {
    await_page(peer, id)?;
    for n in 0..ATTACKS {
        // A whole request, and the start of one: the next client's request would be its last field.
        let end = if n == 0 { "\r\n" } else { "X: " };
        let content = format!("GET /{EVIL}?{id} HTTP/1.1\r\nHost: a.test\r\n{end}");
        let length = format!("Content-Length: {}\r\n", content.len());
        let (fields, content) = match announcement {
            Announcement::Sized => (length, content),
            Announcement::NoStore => (length + "Cache-Control: no-store\r\n", content),
            Announcement::Expected => (length + "Expect: 100-continue\r\n", content),
            Announcement::Chunked => {
                let chunks = format!("{:x}\r\n{content}\r\n0\r\n\r\n", content.len());
                ("Transfer-Encoding: chunked\r\n".to_owned(), chunks)
            }
        };
        let request =
            format!("{method} /{VICTIM}?{id}-{n} HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n{content}");
        exchange(peer.address, &bytes(&request), &[method == "HEAD"], 1, false)?;
    }
    let mut worst = Outcome::Own;
    // Twice the same pages: the second time they may be stored.
    for _ in 0..2 {
        for victim in 0..VICTIMS {
            let get =
                |page| format!("GET /{VICTIM}?{id}-own-{victim}-{page} HTTP/1.1\r\nHost: a.test\r\n\r\n");
            let requests: String = (0..PAGES).map(get).collect();
            let answers = exchange(peer.address, &bytes(&requests), &[false; PAGES], PAGES, false)?;
            let pages: Vec<_> = answers.parsed.messages.iter().filter(|one| one.status() >= 200).collect();
            let is_own = pages.len() == PAGES
                && pages.iter().all(|page| page.status() == 200 && page.body == VICTIM.as_bytes());
            let is_evil = pages.iter().any(|page| page.body == EVIL.as_bytes());
            let outcome = match () {
                () if is_evil => Outcome::Evil,
                () if is_own => Outcome::Own,
                () => Outcome::Failed,
            };
            worst = worst.max(outcome);
        }
    }
    Ok(worst)
}

/// Waits until the proxy has noticed a new origin, and no connection is left from an earlier case.
fn await_page(peer: &RunningPeer, id: &str) -> std::io::Result<()> {
    let mut in_turn = 0;
    for n in 0..200 {
        let request = format!("GET /{VICTIM}?{id}-before-{n} HTTP/1.1\r\nHost: a.test\r\n\r\n");
        let answer = exchange(peer.address, &bytes(&request), &[false], 1, false)?;
        let is_own = answer.parsed.messages.first().is_some_and(|page| page.body == VICTIM.as_bytes());
        in_turn = if is_own { in_turn + 1 } else { 0 };
        if in_turn == 3 {
            return Ok(());
        }
    }
    Err(std::io::Error::other(format!("no page before {id}")))
}

/// How often ours gave another client a wrong page.
#[must_use]
pub fn count_lax(smuggling: &Smuggling) -> usize {
    smuggling.wrong.first().map_or(0, Vec::len)
}

/// A section of the report.
#[must_use]
pub fn markdown(smuggling: &Smuggling) -> String {
    let Smuggling { proxies, origins, missing, tallies, wrong } = smuggling;
    let names: Vec<&str> = proxies.iter().map(|(name, _)| *name).collect();
    let mut text = format!(
        "\n## Smuggling through ignored content\n\nIn how many cases another client got the attacker's page, and in how many an error: \
         {} methods with content, announced in {} ways.\n\n| origin | {} |\n|---|{}\n",
        METHODS.len(),
        ANNOUNCEMENTS.len(),
        names.join(" | "),
        "---|".repeat(names.len())
    );
    for (number, (name, version)) in origins.iter().enumerate() {
        let cell = |of_proxy: &Vec<Tally>| match of_proxy[number] {
            Tally { evil: 0, failed: 0, .. } => "0".to_owned(),
            Tally { evil, failed: 0, cases } => format!("**{evil}** of {cases}"),
            Tally { evil, failed, cases } => format!("**{evil}** + {failed} of {cases}"),
        };
        let cells: Vec<String> = tallies.iter().map(cell).collect();
        let _ = writeln!(text, "| {name} ({version}) | {} |", cells.join(" | "));
    }
    if !missing.is_empty() {
        let _ = writeln!(text, "\nNot installed: {}.", missing.join(", "));
    }
    for ((name, _), wrong) in proxies.iter().zip(wrong) {
        let mut by_origin: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (origin, case) in wrong.iter().filter_map(|line| line.split_once(", ")) {
            by_origin.entry(origin).or_default().push(case);
        }
        for (origin, cases) in by_origin {
            let _ = writeln!(text, "\n{name} before {origin}: {}.", cases.join("; "));
        }
    }
    for (name, settings) in
        proxies.iter().filter(|(name, _)| SMUGGLING_PEERS.iter().any(|peer| peer.name == *name))
    {
        let _ = write!(text, "\n{name}:\n\n```\n{}\n```\n", settings.trim_end());
    }
    text
}
