//! An experiment file: what was typed becomes what it means, once, before anything runs.
//!
//! A file has a head (title, hypotheses, published figures), a base (`[target]`, `[origin]`,
//! `[cache]`, `[load]`), and `[[test]]`s and `[[arm]]`s that are laid over the base: tables merge by
//! key, anything else replaces. They are merged as tables that remember where everything was
//! written, so that an error points into the file whichever layer it came from.

mod app;
mod cache;
mod http;
mod load;
mod node_test;
mod origin;
mod scale;
mod setup;
mod tables;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::Range,
    path::{Path, PathBuf},
    time::Duration,
};

use miette::{Diagnostic, NamedSource, SourceSpan};
use serde::Deserialize;
use stockade_cache::spec::{Place, Wrong};
use stockade_model::{
    nearest::remedy,
    record::{Clock, Reference},
    units::{format_duration, milliseconds, parse_duration},
};
use stockade_source::{
    SourceUrl,
    secrets::{masked_file, masked_message},
};
use tables::{Layer, Table};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    engine::Load,
    http::{Http, Served},
    judge::{self, Claim, Names, Selector},
    metrics::{Unit, Window},
    services::Service,
};
pub use scale::ScaleError;
use setup::Setup;

/// An experiment, ready to run.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// What it is about.
    pub title: String,
    /// Why it was made.
    pub context: Option<String>,
    /// The file's name.
    pub name: String,
    /// The file's text, with its secrets masked.
    pub text: String,
    /// How often each arm of each test is measured.
    pub repeats: u32,
    /// What `--scale` multiplies.
    pub scaled: Vec<Scaled>,
    /// Paths of tests, in the file's order; one of `""` where the file has none.
    pub tests: Vec<String>,
    /// Names of arms, in the file's order.
    pub arms: Vec<String>,
    /// Every test with every arm.
    pub cells: Vec<Cell>,
    /// Servers that are started for the run, and the files of documents that they are filled with.
    pub services: BTreeMap<Service, Option<PathBuf>>,
    /// What is claimed.
    pub claims: Vec<Claim>,
    /// What was published.
    pub reference: Option<Reference>,
    /// What those are of.
    published: Vec<Selector>,
}

/// One arm of one test.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The test's path.
    pub test: String,
    /// The arm's name.
    pub arm: String,
    /// Whose time it lives by.
    pub clock: Clock,
    /// What is tested, and what it has to bear.
    pub subject: Subject,
    /// Where what it asks for is written.
    pub(crate) places: Places,
}

/// What is tested, and what it has to bear.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A cache in this process.
    Engine {
        /// Where the documents come from.
        source: SourceUrl,
        /// What it has to bear.
        load: Load,
    },
    /// A proxy, which is a process, as its origin is.
    Http(Http),
}

/// Where the numbers are written that a source or a machine may find too large.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    pub(crate) keys: Place,
    pub(crate) max_in_flight: Place,
}

impl Cell {
    /// How much of it has been seen after so many seconds, of 1.
    #[must_use]
    pub fn share(&self, seconds: u64) -> f64 {
        self.lasts().map_or(1.0, |lasts| (seconds as f64 / lasts.as_secs_f64()).min(1.0))
    }

    /// How long its requests come; `None`: all at once.
    #[must_use]
    pub fn lasts(&self) -> Option<Duration> {
        match &self.subject {
            Subject::Engine { load: Load::Burst(_), .. } => None,
            Subject::Engine { load: Load::Open(open), .. } => Some(open.traffic.schedule.lasts()),
            Subject::Http(http) => Some(http.traffic.lasts()),
        }
    }
}

/// What `--scale` may multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Scaled {
    /// The number of workers.
    #[serde(rename = "load.burst")]
    LoadBurst,
    /// How long an open load goes on: its duration or steps, the stages of its origin, and the
    /// windows of its claims.
    #[serde(rename = "load.duration")]
    LoadDuration,
    /// How many entries a proxy may hold.
    #[serde(rename = "cache.limit.entries")]
    CacheLimitEntries,
}

/// An experiment file cannot be used. It shows the place and the remedy.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
pub struct SpecError {
    message: String,
    #[source_code]
    file: NamedSource<String>,
    #[label]
    at: Option<SourceSpan>,
    #[help]
    help: Option<String>,
}

/// An experiment could not be loaded.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub enum LoadError {
    /// The file could not be read.
    #[error("cannot read {path}: {error}")]
    Io {
        /// Which.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// The file is no text.
    #[error("{path}:{line}: not UTF-8: save the file as UTF-8 text")]
    NotText {
        /// Which.
        path: String,
        /// Where, from 1.
        line: usize,
    },
    /// No test is called so.
    #[error("there is no test `{test}`: {remedy}")]
    UnknownTest {
        /// What was asked for.
        test: String,
        /// What may have been meant.
        remedy: String,
    },
    /// A test that was asked for cannot be measured here.
    #[error("the test `{test}` is left out: the file that it requires is not there")]
    LeftOut {
        /// Which.
        test: String,
    },
    /// The file makes no sense.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Spec(#[from] Box<SpecError>),
}

impl Experiment {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let (name, text) = read_file(path)?;
        Ok(Self::parse(&name, &text)?)
    }

    /// Reads and checks the text of a file called `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self, Box<SpecError>> {
        read(name, text).map_err(|wrong| pointing(wrong, name, text))
    }

    /// Leaves out every test that is none of these and not below one, what is claimed of it, and the databases that
    /// are only for it.
    pub fn only(mut self, tests: &[String]) -> Result<Self, LoadError> {
        for test in tests {
            let is_meant = |path: &str| judge::is_below(path, test);
            if self.cells.iter().any(|cell| is_meant(&cell.test)) {
                continue;
            }
            let test = test.clone();
            if self.tests.iter().any(|path| is_meant(path)) {
                return Err(LoadError::LeftOut { test });
            }
            let names = self.tests.iter().map(String::as_str);
            let remedy = if self.tests.iter().all(String::is_empty) {
                "the file has one, without a name: leave --test out".to_owned()
            } else {
                remedy(&test, names)
            };
            return Err(LoadError::UnknownTest { test, remedy });
        }
        let is_left_out = |path: &str| !tests.iter().any(|test| judge::is_below(path, test));
        let before = databases(&self.cells);
        leave_out(&mut self.cells, &mut self.claims, is_left_out);
        let needed = databases(&self.cells);
        self.services.retain(|service, _| needed.contains(service) || !before.contains(service));
        Ok(self)
    }

    /// The names that expressions may use.
    #[must_use]
    pub fn names(&self) -> Names<'_> {
        Names { tests: &self.tests, arms: &self.arms }
    }

    /// Where the files are that it names: its own folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        Path::new(&self.name).parent().unwrap_or(Path::new(""))
    }

    /// Every window that claims and published figures look at, once.
    #[must_use]
    pub fn windows(&self) -> Vec<Window> {
        let of_published = self.published.iter().filter_map(|selector| selector.window);
        let windows: BTreeSet<_> = self.claims.iter().flat_map(Claim::windows).chain(of_published).collect();
        windows.into_iter().collect()
    }

    /// An error that points into the file.
    pub(crate) fn error(&self, message: String, at: Range<usize>) -> Box<SpecError> {
        let file = NamedSource::new(&self.name, self.text.clone());
        Box::new(SpecError { message, file, at: Some(at.into()), help: None })
    }
}

/// A file's name and its text.
fn read_file(path: &Path) -> Result<(String, String), LoadError> {
    let name = path.display().to_string();
    let bytes = fs::read(path).map_err(|error| LoadError::Io { path: name.clone(), error })?;
    let text = String::from_utf8(bytes).map_err(|error| LoadError::NotText {
        path: name.clone(),
        line: error.as_bytes()[..error.utf8_error().valid_up_to()].split(|byte| *byte == b'\n').count(),
    })?;
    Ok((name, text))
}

/// What is wrong, with the file that it is wrong in.
fn pointing(wrong: Wrong, name: &str, text: &str) -> Box<SpecError> {
    Box::new(SpecError {
        message: masked_message(&wrong.message),
        file: NamedSource::new(name, masked_file(text)),
        at: wrong.at.map(Into::into),
        help: wrong.help.as_deref().map(masked_message),
    })
}

/// What stands before the base.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    title: String,
    context: Option<String>,
    scaled: Option<Vec<Scaled>>,
    repeat: Option<Spanned<u32>>,
    #[serde(default)]
    hypothesis: Vec<HypothesisTable>,
    #[serde(default)]
    services: BTreeMap<Service, ServiceTable>,
}

/// How a server is started for the run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceTable {
    documents: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HypothesisTable {
    text: String,
    expect: Spanned<Vec<Spanned<String>>>,
}

const HEAD: [&str; 6] = ["title", "context", "scaled", "repeat", "hypothesis", "services"];
const LAYERS: [&str; 3] = ["test", "arm", "reference"];

fn read(name: &str, text: &str) -> Result<Experiment, Wrong> {
    let file = DeTable::parse(text).map_err(|error| tables::unreadable(&error))?;
    let span = file.span();
    let (mut head, mut base, mut layers) = (Table::new(), Table::new(), Table::new());
    for (key, value) in file.into_inner() {
        let section = key.get_ref().as_ref();
        let part = match section {
            _ if HEAD.contains(&section) => &mut head,
            _ if LAYERS.contains(&section) => &mut layers,
            _ if setup::SECTIONS.contains(&section) => &mut base,
            _ => {
                let known = HEAD.into_iter().chain(setup::SECTIONS).chain(LAYERS);
                return Err(Wrong {
                    message: format!("unknown key `{section}`"),
                    help: Some(remedy(section, known)),
                    at: Some(key.span()),
                });
            }
        };
        part.insert(key, value);
    }
    let head: Head = tables::read(head, span.clone())?;
    let tests = tables::layers(&mut layers, "test")?;
    let arms = tables::layers(&mut layers, "arm")?;

    let folder = Path::new(name).parent().unwrap_or(Path::new(""));
    let is_there = |layer: &Layer<'_>| layer.requires.as_ref().is_none_or(|file| folder.join(file).exists());
    let left_out: Vec<String> =
        tests.iter().filter(|test| !is_there(test)).map(|test| test.name.clone()).collect();
    let (tests, arms, mut cells) = cells(&base, span, &tests, &arms)?;
    let names = Names { tests: &tests, arms: &arms };
    let claims = head.hypothesis.into_iter().map(|h| claim(h, names, &cells));
    let mut claims = claims.collect::<Result<Vec<_>, _>>()?;
    claims.extend(audit(names, &cells));
    leave_out(&mut cells, &mut claims, |test| {
        left_out.iter().any(|left_out| judge::is_below(test, left_out))
    });
    if cells.is_empty() {
        let message =
            format!("every test is left out: the files that {} require are not there", left_out.join(", "));
        return Err(Wrong::new(message, None));
    }
    undeclared(&cells, &head.services)?;
    let (reference, published) = match tables::take(&mut layers, "reference")? {
        Some(table) => {
            let (reference, published) = reference(table, names)?;
            (Some(reference), published)
        }
        None => (None, Vec::new()),
    };
    let repeats = match head.repeat {
        None => 1,
        Some(repeats) if (1..=1_000).contains(repeats.get_ref()) => *repeats.get_ref(),
        Some(repeats) => return Err(Wrong::new("repeat is from 1 to 1000", Some(repeats.span()))),
    };
    Ok(Experiment {
        title: head.title,
        context: head.context.map(|context| context.trim().to_owned()),
        name: name.to_owned(),
        text: masked_file(text),
        repeats,
        scaled: head.scaled.unwrap_or_else(|| {
            let has_duration = |cell: &Cell| cell.lasts().is_some();
            if cells.iter().any(has_duration) { vec![Scaled::LoadDuration] } else { Vec::new() }
        }),
        tests,
        arms,
        cells,
        services: head.services.into_iter().map(|(service, table)| (service, table.documents)).collect(),
        claims,
        reference,
        published,
    })
}

type Cells = (Vec<String>, Vec<String>, Vec<Cell>);

/// Lays every test and every arm over the base, and spreads out what a test sweeps over.
fn cells(
    base: &Table<'_>,
    span: Range<usize>,
    tests: &[Layer<'_>],
    arms: &[Layer<'_>],
) -> Result<Cells, Wrong> {
    for arm in arms {
        if let at @ Some(_) = tables::find(&arm.table, "load") {
            return Err(Wrong {
                message: format!("arm `{}` has a load of its own", arm.name),
                help: Some(
                    "all arms of a test face the same load: put it into [load] or a [[test]]".to_owned(),
                ),
                at,
            });
        }
    }
    let (only_test, only_arm) =
        ([Layer::default()], [Layer { name: "cache".to_owned(), ..Layer::default() }]);
    let tests = if tests.is_empty() { &only_test } else { tests };
    let arms = if arms.is_empty() { &only_arm } else { arms };
    let (mut paths, mut cells) = (Vec::new(), Vec::new());
    for test in tests {
        for arm in arms {
            let mut table = tables::merge(tables::merge(base.clone(), &test.table), &arm.table);
            let more = if let Some(kind) = http::meant(&table) {
                let cell = |(test, http): (String, Http)| {
                    let (arm, subject) = (arm.name.clone(), Subject::Http(http));
                    Cell { test, arm, clock: Clock::Live, subject, places: Places::default() }
                };
                let all = http::read(table, kind, &test.name, &arm.name, span.clone())?;
                all.into_iter().map(cell).collect()
            } else {
                let node_test = node_test::take(&mut table)?;
                let setup: Setup = tables::read(table, span.clone())?;
                setup.cells(&test.name, &arm.name, node_test.as_ref())?
            };
            for cell in more {
                if !paths.contains(&cell.test) {
                    paths.push(cell.test.clone());
                }
                cells.push(cell);
            }
        }
    }
    Ok((paths, arms.iter().map(|arm| arm.name.clone()).collect(), cells))
}

fn claim(table: HypothesisTable, names: Names<'_>, cells: &[Cell]) -> Result<Claim, Wrong> {
    if table.expect.get_ref().is_empty() {
        let message =
            "a hypothesis that expects nothing would always be supported: write at least one comparison";
        return Err(Wrong::new(message, Some(table.expect.span())));
    }
    let expect = table.expect.into_inner().into_iter().map(|written| {
        // Inside the quotes.
        let start = written.span().start + 1;
        let expr = written.into_inner();
        let place = |at: &Range<usize>| Some(start + at.start..start + at.end);
        let read = judge::parse(&expr, names).map_err(|error| Wrong::new(error.message, place(&error.at)))?;
        for selector in read.selectors() {
            window(selector, cells).map_err(|message| Wrong::new(message, place(&selector.at)))?;
        }
        Ok((expr, read))
    });
    Ok(Claim { text: table.text, expect: expect.collect::<Result<_, Wrong>>()? })
}

/// Refuses a window that a load it is about does not have.
fn window(selector: &Selector, cells: &[Cell]) -> Result<(), String> {
    let Some(window) = selector.window else { return Ok(()) };
    let is_meant =
        |cell: &&Cell| selector.test.as_ref().is_none_or(|beginning| judge::is_below(&cell.test, beginning));
    for cell in cells.iter().filter(is_meant) {
        let Some(lasts) = cell.lasts() else {
            return Err("a burst has no seconds to choose from: leave the window out".to_owned());
        };
        match window {
            Window::Seconds { to, .. } if Duration::from_secs(to) > lasts => {
                let lasts = format_duration(lasts);
                return Err(format!(
                    "`({window})` ends after the load, which takes {lasts}: write an earlier end"
                ));
            }
            Window::UntilFirstReclaim | Window::AfterFirstReclaim if !matches!(&cell.subject, Subject::Http(http) if matches!(http.served, Served::Proxy(_))) =>
            {
                return Err(format!(
                    "`({window})` is of our proxy, which is looked at once a second: write seconds, such as (10s..50s)"
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Leaves out tests, and what is claimed of them by name.
fn leave_out(cells: &mut Vec<Cell>, claims: &mut Vec<Claim>, is_left_out: impl Fn(&str) -> bool) {
    cells.retain(|cell| !is_left_out(&cell.test));
    let is_gone = |test: &&str| !cells.iter().any(|cell| judge::is_below(&cell.test, test));
    for claim in claims.iter_mut() {
        let mut gone = BTreeSet::new();
        claim.expect.retain(|(_, comparison)| {
            let named = comparison.selectors().into_iter().filter_map(|selector| selector.test.as_deref());
            let lost: Vec<_> = named.filter(is_gone).map(str::to_owned).collect();
            let stays = lost.is_empty();
            gone.extend(lost);
            stays
        });
        if !gone.is_empty() {
            let gone: Vec<_> = gone.into_iter().collect();
            claim.text = format!("{} (without {}, which was left out)", claim.text, gone.join(", "));
        }
    }
    claims.retain(|claim| !claim.expect.is_empty());
}

/// The databases of the run that are loaded from.
fn databases(cells: &[Cell]) -> BTreeSet<Service> {
    let database = |cell: &Cell| if let Subject::Http(http) = &cell.subject { http.database() } else { None };
    cells.iter().filter_map(database).collect()
}

/// Refuses a database that nobody has filled.
fn undeclared(cells: &[Cell], services: &BTreeMap<Service, ServiceTable>) -> Result<(), Wrong> {
    match databases(cells).into_iter().find(|service| !services.contains_key(service)) {
        None => Ok(()),
        Some(service) => Err(Wrong {
            message: format!("`{}:` is started for the run, with nothing in it", service.name()),
            at: None,
            help: Some(format!("write [services] {} = {{ documents = \"FILE.jsonl\" }}", service.name())),
        }),
    }
}

/// What every open load claims without being asked.
fn audit(names: Names<'_>, cells: &[Cell]) -> Option<Claim> {
    let is_open = |cell: &&Cell| matches!(cell.subject, Subject::Engine { load: Load::Open(_), .. });
    let expr = |test: &str| format!("{test}audit.too_old + {test}audit.after_invalidation == 0");
    let mut exprs: Vec<String> = if cells.iter().all(|cell| is_open(&cell)) {
        vec![expr("")]
    } else {
        cells.iter().filter(is_open).map(|cell| expr(&format!("{}/", cell.test))).collect()
    };
    exprs.dedup();
    let expect: Vec<_> =
        exprs.into_iter().filter_map(|expr| Some((expr.clone(), judge::parse(&expr, names).ok()?))).collect();
    (!expect.is_empty()).then(|| Claim { text: "nothing was served beyond its limit".to_owned(), expect })
}

fn reference(table: Table<'_>, names: Names<'_>) -> Result<(Reference, Vec<Selector>), Wrong> {
    let mut source = String::new();
    let (mut figures, mut selectors) = (BTreeMap::new(), Vec::new());
    for (key, value) in table {
        let at = Some(value.span());
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("source", DeValue::String(text)) => source = text.to_string(),
            (path, value) => {
                let selector =
                    judge::selector(path, names).map_err(|message| Wrong::new(message, Some(key.span())))?;
                let is_one = selector.arm.is_some()
                    && names.tests.iter().any(|test| *test == selector.test.as_deref().unwrap_or_default());
                if !is_one {
                    return Err(Wrong::new(
                        "a published figure is that of one arm of one test: write TEST/ARM.metric",
                        Some(key.span()),
                    ));
                }
                let figure = match (selector.metric.unit, value) {
                    (Unit::Time, DeValue::String(text)) => {
                        parse_duration(text).map(milliseconds).map_err(|e| e.to_string())
                    }
                    (Unit::Time, _) => Err("a time is text with a unit, such as \"492.9ms\"".to_owned()),
                    (Unit::Number, DeValue::Integer(number)) => finite(number.as_str()),
                    (Unit::Number, DeValue::Float(number)) => finite(number.as_str()),
                    (Unit::Number, _) => Err("this metric is a plain number".to_owned()),
                };
                figures.insert(path.to_owned(), figure.map_err(|message| Wrong::new(message, at))?);
                selectors.push(selector);
            }
        }
    }
    Ok((Reference { source, figures }, selectors))
}

fn finite(number: &str) -> Result<f64, String> {
    number
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite())
        .ok_or_else(|| "not a finite number".to_owned())
}

#[cfg(test)]
mod tests;
