//! Scenarios from the trackers of caches: a loader that panics, a listener that calls the cache, a weight that
//! overflows. Each runs on ours and on moka, in a process of its own, and compares the behaviour of the cache with
//! the sentence that it [`expected`](Scenario::expected).
//!
//! [`contender`] is the interface to the caches, [`process`] runs a scenario in a child, and [`report`] writes the
//! page. The scenarios are in [`loads`], [`calls`] (functions of the caller that call the cache), [`storage`] and
//! [`runtimes`].

pub mod calls;
pub mod contender;
pub mod executor;
pub mod loads;
pub mod process;
pub mod report;
pub mod runtimes;
pub mod storage;

use self::contender::Kind;

/// An issue or a pull request about a scenario.
pub struct Issue {
    /// The repository on GitHub: `owner/name`.
    pub repository: &'static str,
    pub number: u32,
    /// Its subject, in our words.
    pub about: &'static str,
}

const fn issue(repository: &'static str, number: u32, about: &'static str) -> Issue {
    Issue { repository, number, about }
}

const MOKA: &str = "moka-rs/moka";
const CAFFEINE: &str = "ben-manes/caffeine";
const FUSION: &str = "ZiggyCreatures/FusionCache";
const FOYER: &str = "foyer-rs/foyer";
const CACHEX: &str = "whitfin/cachex";

/// The comparison of a cache's behaviour with the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Expected,
    Not,
    /// The cache has no setting for it.
    NoSetting,
}

impl Verdict {
    const ALL: [Self; 3] = [Self::Expected, Self::Not, Self::NoSetting];

    /// In the line that a child prints.
    fn word(self) -> &'static str {
        match self {
            Self::Expected => "ok",
            Self::Not => "not",
            Self::NoSetting => "none",
        }
    }
}

/// The behaviour of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    pub verdict: Verdict,
    pub fact: String,
}

impl Observed {
    fn when(is_expected: bool, fact: impl Into<String>) -> Self {
        let verdict = if is_expected { Verdict::Expected } else { Verdict::Not };
        Self { verdict, fact: fact.into() }
    }

    fn no_setting(setting: &str) -> Self {
        Self { verdict: Verdict::NoSetting, fact: format!("it has no {setting}") }
    }
}

/// `1 load`, `2 loads`.
fn count(number: usize, name: &str) -> String {
    format!("{number} {name}{}", if number == 1 { "" } else { "s" })
}

type ScenarioRun = fn() -> Observed;

pub struct Scenario {
    /// On the command line.
    pub name: &'static str,
    pub title: &'static str,
    pub issues: &'static [Issue],
    /// The right behaviour of each cache, in a sentence that was written before the first run.
    pub expected: &'static str,
    /// The cause of a difference. Empty where all caches behave as expected.
    pub why: &'static str,
    /// One of each [`Kind`]; `None`: it does not apply to that cache.
    pub runs: [Option<ScenarioRun>; 4],
}

impl Scenario {
    #[must_use]
    pub fn run_of(&self, kind: Kind) -> Option<ScenarioRun> {
        self.runs[kind as usize]
    }
}

/// A scenario on all four caches, whose values have this type.
macro_rules! on_all {
    ($run:ident, $value:ty) => {
        [
            Some($run::<stockade_cache::Cache<u64, $value>> as $crate::scenarios::ScenarioRun),
            Some($run::<stockade_cache::sync::Cache<u64, $value>>),
            Some($run::<moka::future::Cache<u64, $value>>),
            Some($run::<moka::sync::Cache<u64, $value>>),
        ]
    };
}

/// A scenario that is about tasks: not on the caches for threads.
macro_rules! on_tasks {
    ($run:ident, $value:ty) => {
        [
            Some($run::<stockade_cache::Cache<u64, $value>> as $crate::scenarios::ScenarioRun),
            None,
            Some($run::<moka::future::Cache<u64, $value>>),
            None,
        ]
    };
}

use {on_all, on_tasks};

/// All scenarios, in the order of the page.
pub fn all() -> impl Iterator<Item = &'static Scenario> {
    [loads::SCENARIOS, calls::SCENARIOS, storage::SCENARIOS, runtimes::SCENARIOS].into_iter().flatten()
}
