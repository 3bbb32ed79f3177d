//! Experiment files: parsed and validated before anything runs.
//!
//! A file has a head (title, hypotheses, published figures), a base (`[target]`, `[origin]`,
//! `[cache]`, `[load]`), and `[[test]]`s and `[[arm]]`s that are laid over the base: tables merge by
//! key, other values are replaced. The merged tables keep the places of their keys, so that errors point into the
//! file.

#[cfg(feature = "http")]
mod app;
mod cache;
mod engine;
mod event;
mod fleet;
#[cfg(feature = "http")]
mod http;
mod load;
mod node_js_cache;
mod origin;
mod scale;
#[cfg(feature = "schema")]
mod schema;
mod tables;
mod targets;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::Range,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use miette::{Diagnostic, NamedSource, SourceSpan};
use serde::Deserialize;
use stockade_cache::spec::{Span, TomlError, value::TextValue};
use stockade_model::{
    nearest::remedy,
    units::{format_duration, milliseconds, parse_duration, parse_percent},
};
use stockade_record::{
    judge::{self, Claim, Names, Selector},
    metrics::{FigureUnit, FigureWindow},
    record::{ClockKind, NoiseArm, Reference},
};
use stockade_source::secrets::{masked_file, masked_message};
use tables::{Layer, TomlTable};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

pub use crate::target::ScaledDimension;
use crate::{services::RunService, target::Target};
pub use scale::ScaleError;
#[cfg(feature = "schema")]
pub use schema::schema;

#[derive(Debug)]
pub struct Experiment {
    pub title: String,
    /// The reason for it, in Markdown paragraphs.
    pub context: Option<String>,
    pub name: String,
    /// With secrets masked.
    pub text: String,
    /// Measurements of each arm of each test.
    pub repeats: u32,
    /// The dimensions that `--scale` multiplies.
    pub scaled: Vec<ScaledDimension>,
    /// Paths of tests, in the order of the file; `""` if the file has no tests.
    pub tests: Vec<String>,
    /// In the order of the file; last the one that repeats the first, if there is one.
    pub arms: Vec<String>,
    /// The `[cache]` of each arm as a file would have it, without secrets; `None`: it has none.
    pub(crate) caches: Vec<Option<String>>,
    pub noise: Option<NoiseArm>,
    /// Every test with every arm.
    pub cells: Vec<Cell>,
    /// Servers that the run starts, and the files of their documents.
    pub services: BTreeMap<RunService, Option<PathBuf>>,
    pub claims: Vec<Claim>,
    pub reference: Option<Reference>,
    /// The parsed keys of the published figures.
    published: Vec<Selector>,
}

#[derive(Debug)]
pub struct Cell {
    /// Its path.
    pub test: String,
    pub arm: String,
    pub clock: ClockKind,
    pub target: Box<dyn Target>,
    /// The places of settings that the source or the machine may refuse.
    pub(crate) spans: KeySpans,
}

/// The places of numbers that may be too large for a source or a machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeySpans {
    pub(crate) keys: Span,
    pub(crate) max_in_flight: Span,
}

impl Cell {
    /// The completed share of its load after this number of seconds, from 0 to 1.
    #[must_use]
    pub fn share(&self, seconds: u64) -> f64 {
        let duration = self.target.facts().duration;
        duration.map_or(1.0, |duration| (seconds as f64 / duration.as_secs_f64()).min(1.0))
    }
}

/// An invalid experiment file: the place, the problem and the remedy.
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

#[derive(Debug, thiserror::Error, Diagnostic)]
pub enum LoadError {
    #[error("cannot read {path}: {error}")]
    Io { path: String, error: std::io::Error },
    #[error("{path}:{line}: not UTF-8: save the file as UTF-8 text")]
    NotText {
        path: String,
        /// From 1.
        line: usize,
    },
    #[error("there is no test `{test}`: {remedy}")]
    UnknownTest { test: String, remedy: String },
    #[error("there is no arm `{arm}`: {remedy}")]
    UnknownArm { arm: String, remedy: String },
    #[error("the chosen tests have no arm {arms}: choose others")]
    NothingLeft { arms: String },
    /// `--test` names a test without its required file.
    #[error("the test `{test}` is left out: the file that it requires is not there")]
    LeftOut { test: String },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Spec(#[from] Box<SpecError>),
}

impl Experiment {
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let (name, text) = read_file(path)?;
        Ok(Self::parse(&name, &text)?)
    }

    pub fn parse(name: &str, text: &str) -> Result<Self, Box<SpecError>> {
        read(name, text).map_err(|wrong| pointing(wrong, name, text))
    }

    /// Keeps only these tests and those below them. Claims about other tests and databases for them are
    /// removed.
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
        self.retain_cells(|cell| !is_left_out(&cell.test));
        Ok(self)
    }

    /// Keeps only these arms. Claims about others and databases for them are removed.
    pub fn only_arms(mut self, arms: &[String]) -> Result<Self, LoadError> {
        if let Some(arm) = arms.iter().find(|arm| !self.arms.contains(arm)) {
            let remedy = remedy(arm, self.arms.iter().map(String::as_str));
            return Err(LoadError::UnknownArm { arm: arm.clone(), remedy });
        }
        let noise = self.noise.clone();
        let repeats = |cell: &Cell| noise.as_ref().filter(|noise| noise.arm == cell.arm);
        self.retain_cells(|cell| arms.contains(repeats(cell).map_or(&cell.arm, |noise| &noise.of)));
        if self.cells.is_empty() {
            return Err(LoadError::NothingLeft { arms: arms.join(", ") });
        }
        Ok(self)
    }

    /// Keeps these cells, the claims about them, and the servers that they or no cell need.
    fn retain_cells(&mut self, is_kept: impl Fn(&Cell) -> bool) {
        let before = databases(&self.cells);
        self.cells.retain(is_kept);
        remove_claims_without_cells(&self.cells, &mut self.claims);
        let needed = databases(&self.cells);
        self.services.retain(|service, _| needed.contains(service) || !before.contains(service));
    }

    /// The names in claims: the arm that repeats another one is in none.
    #[must_use]
    pub fn names(&self) -> Names<'_> {
        let arms = self.arms.len() - usize::from(self.noise.is_some());
        Names { tests: &self.tests, arms: &self.arms[..arms] }
    }

    /// The folder of the file, to which its paths are relative.
    #[must_use]
    pub fn folder(&self) -> &Path {
        Path::new(&self.name).parent().unwrap_or(Path::new(""))
    }

    /// The distinct windows of claims and published figures.
    #[must_use]
    pub fn windows(&self) -> Vec<FigureWindow> {
        let of_published = self.published.iter().filter_map(|selector| selector.window);
        let windows: BTreeSet<_> = self.claims.iter().flat_map(Claim::windows).chain(of_published).collect();
        windows.into_iter().collect()
    }

    pub(crate) fn error(&self, message: String, at: Range<usize>) -> Box<SpecError> {
        let file = NamedSource::new(&self.name, self.text.clone());
        Box::new(SpecError { message, file, at: Some(at.into()), help: None })
    }
}

fn read_file(path: &Path) -> Result<(String, String), LoadError> {
    let name = path.display().to_string();
    let bytes = fs::read(path).map_err(|error| LoadError::Io { path: name.clone(), error })?;
    let text = String::from_utf8(bytes).map_err(|error| LoadError::NotText {
        path: name.clone(),
        line: error.as_bytes()[..error.utf8_error().valid_up_to()].split(|byte| *byte == b'\n').count(),
    })?;
    Ok((name, text))
}

fn pointing(wrong: TomlError, name: &str, text: &str) -> Box<SpecError> {
    Box::new(SpecError {
        message: masked_message(&wrong.message),
        file: NamedSource::new(name, masked_file(text)),
        at: wrong.span.map(Into::into),
        help: wrong.help.as_deref().map(masked_message),
    })
}

/// The keys of the head.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct Preamble {
    /// Title of the reports.
    title: String,
    /// The reason for it, in Markdown paragraphs, which reports repeat.
    context: Option<String>,
    /// What `--scale F` multiplies. Default: `["load.duration"]` for open loads, nothing for bursts.
    scaled: Option<Vec<ScaledDimension>>,
    /// How often each arm of each test is measured, 1 to 1000. Small differences of times need more. Default: 1.
    #[cfg_attr(feature = "schema", schemars(with = "Option<u32>", range(min = 1, max = 1_000)))]
    repeat: Option<Spanned<u32>>,
    /// True: the first arm is measured twice, and differences of times that are not larger than between these two do not count. Default: false.
    #[serde(default)]
    noise: bool,
    /// The claims that the run judges.
    #[serde(default)]
    hypothesis: Vec<HypothesisTable>,
    /// Servers that the run starts and stops.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "schema::ServiceTables"))]
    services: BTreeMap<RunService, ServiceTable>,
}

/// A server that the run starts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct ServiceTable {
    /// File next to the experiment with a JSON object and its `_id` on each line. The database is filled with it.
    documents: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct HypothesisTable {
    /// The claim in words.
    text: String,
    /// Comparisons that all have to hold, such as `"stampede.source_loads < simple.source_loads"`.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>", length(min = 1)))]
    expect: Spanned<Vec<Spanned<String>>>,
    /// The least difference between two times that counts, such as `"5%"`. Default: `"1%"`.
    min_effect: Option<TextValue<PercentValue>>,
    /// True: the run ends as soon as a comparison cannot hold any more. Default: false.
    #[serde(default)]
    abort: bool,
    /// True: it holds for a run with `--scale`, too, which judges no other. Default: false.
    #[serde(default)]
    any_scale: bool,
}

/// A share in percent.
struct PercentValue(f64);

impl FromStr for PercentValue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_percent(text)
            .map(Self)
            .ok_or_else(|| format!("`{text}` is not a share in percent: write \"5%\""))
    }
}

const PREAMBLE: [&str; 7] = ["title", "context", "scaled", "repeat", "noise", "hypothesis", "services"];
const LAYERS: [&str; 3] = ["test", "arm", "reference"];

fn read(name: &str, text: &str) -> Result<Experiment, TomlError> {
    let file = DeTable::parse(text).map_err(|error| tables::unreadable(&error))?;
    let span = file.span();
    let (mut head, mut base, mut layers) = (TomlTable::new(), TomlTable::new(), TomlTable::new());
    for (key, value) in file.into_inner() {
        let section = key.get_ref().as_ref();
        let part = match section {
            _ if PREAMBLE.contains(&section) => &mut head,
            _ if LAYERS.contains(&section) => &mut layers,
            _ if targets::SECTIONS.contains(&section) => &mut base,
            _ => {
                let known = PREAMBLE.into_iter().chain(targets::SECTIONS).chain(LAYERS);
                return Err(TomlError {
                    message: format!("unknown key `{section}`"),
                    help: Some(remedy(section, known)),
                    span: Some(key.span()),
                });
            }
        };
        part.insert(key, value);
    }
    let head: Preamble = tables::read(head, span.clone())?;
    let tests = tables::layers(&mut layers, "test")?;
    let mut arms = tables::layers(&mut layers, "arm")?;
    if arms.is_empty() {
        arms.push(Layer { name: "cache".to_owned(), ..Layer::default() });
    }
    let noise = head.noise.then(|| add_noise_arm(&mut arms)).transpose()?;

    let folder = Path::new(name).parent().unwrap_or(Path::new(""));
    let is_there = |layer: &Layer<'_>| layer.requires.as_ref().is_none_or(|file| folder.join(file).exists());
    let left_out: Vec<String> =
        tests.iter().filter(|test| !is_there(test)).map(|test| test.name.clone()).collect();
    let caches =
        arms.iter().map(|arm| tables::written(&base, arm, "cache", &span)).collect::<Result<_, _>>()?;
    let (tests, arms, mut cells) = cells(&base, span, &tests, &arms)?;
    let claimed = arms.len() - usize::from(noise.is_some());
    let names = Names { tests: &tests, arms: &arms[..claimed] };
    let claims = head.hypothesis.into_iter().map(|h| claim(h, names, &cells));
    let mut claims = claims.collect::<Result<Vec<_>, _>>()?;
    claims.extend(audit(names, &cells));
    let is_left_out = |test: &str| left_out.iter().any(|left_out| judge::is_below(test, left_out));
    cells.retain(|cell| !is_left_out(&cell.test));
    remove_claims_without_cells(&cells, &mut claims);
    if cells.is_empty() {
        let message =
            format!("every test is left out: the required files of {} do not exist", left_out.join(", "));
        return Err(TomlError::new(message, None));
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
        Some(repeats) => return Err(TomlError::new("repeat is from 1 to 1000", Some(repeats.span()))),
    };
    Ok(Experiment {
        title: head.title,
        context: head.context.map(|context| context.trim().to_owned()),
        name: name.to_owned(),
        text: masked_file(text),
        repeats,
        scaled: head.scaled.unwrap_or_else(|| {
            let has_duration = |cell: &Cell| cell.target.facts().duration.is_some();
            if cells.iter().any(has_duration) { vec![ScaledDimension::LoadDuration] } else { Vec::new() }
        }),
        tests,
        arms,
        caches,
        noise,
        cells,
        services: head.services.into_iter().map(|(service, table)| (service, table.documents)).collect(),
        claims,
        reference,
        published,
    })
}

type Cells = (Vec<String>, Vec<String>, Vec<Cell>);

/// Lays every test and every arm over the base, and expands sweeps.
fn cells(
    base: &TomlTable<'_>,
    span: Range<usize>,
    tests: &[Layer<'_>],
    arms: &[Layer<'_>],
) -> Result<Cells, TomlError> {
    for arm in arms {
        if let at @ Some(_) = tables::find(&arm.table, "load") {
            return Err(TomlError {
                message: format!("arm `{}` has a load of its own", arm.name),
                help: Some(
                    "all arms of a test face the same load: put it into [load] or a [[test]]".to_owned(),
                ),
                span: at,
            });
        }
    }
    let only_test = [Layer::default()];
    let tests = if tests.is_empty() { &only_test } else { tests };
    let (mut paths, mut cells) = (Vec::new(), Vec::new());
    for test in tests {
        for arm in arms {
            let table = tables::merge(tables::merge(base.clone(), &test.table), &arm.table);
            let layer = targets::CellNames { test: &test.name, arm: &arm.name };
            let more = targets::cells(table, layer, span.clone())?;
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

/// Adds an arm with the settings of the first one.
fn add_noise_arm(arms: &mut Vec<Layer<'_>>) -> Result<NoiseArm, TomlError> {
    let of = arms[0].name.clone();
    let arm = format!("{of}-again");
    if arms.iter().any(|layer| layer.name == arm) {
        return Err(TomlError::new(format!("noise = true adds the arm `{arm}`: rename yours"), None));
    }
    arms.push(Layer { name: arm.clone(), requires: None, table: arms[0].table.clone() });
    Ok(NoiseArm { arm, of })
}

fn claim(table: HypothesisTable, names: Names<'_>, cells: &[Cell]) -> Result<Claim, TomlError> {
    if table.expect.get_ref().is_empty() {
        let message =
            "a hypothesis that expects nothing would always be supported: write at least one comparison";
        return Err(TomlError::new(message, Some(table.expect.span())));
    }
    let expect = table.expect.into_inner().into_iter().map(|written| {
        // After the opening quote.
        let start = written.span().start + 1;
        let expr = written.into_inner();
        let place = |at: &Range<usize>| Some(start + at.start..start + at.end);
        let all = judge::parse_all(&expr, names);
        let all = all.map_err(|error| TomlError::new(error.message, place(&error.at)))?;
        if !table.any_scale && all.iter().any(|(_, read)| read.has_scale()) {
            let message = "`scale` is 1 unless the claim is judged in scaled runs: add any_scale = true to the hypothesis";
            return Err(TomlError::new(message, place(&(0..expr.len()))));
        }
        for selector in all.iter().flat_map(|(_, read)| read.selectors()) {
            window(selector, cells).map_err(|message| TomlError::new(message, place(&selector.at)))?;
        }
        Ok(all)
    });
    let expect = expect.collect::<Result<Vec<_>, TomlError>>()?;
    let min_effect = table.min_effect.map_or(judge::CLAIM_MIN_EFFECT, |percent| percent.0.0);
    let expect = expect.into_iter().flatten().collect();
    let (text, abort, any_scale) = (table.text, table.abort, table.any_scale);
    Ok(Claim { text, expect, min_effect, abort, any_scale, is_judged: true })
}

/// Refuses a window that the selected loads do not have.
fn window(selector: &Selector, cells: &[Cell]) -> Result<(), String> {
    let Some(window) = selector.window else { return Ok(()) };
    let is_meant =
        |cell: &&Cell| selector.test.as_ref().is_none_or(|beginning| judge::is_below(&cell.test, beginning));
    for cell in cells.iter().filter(is_meant) {
        let facts = cell.target.facts();
        let Some(duration) = facts.duration else {
            return Err("a burst has no seconds to choose from: leave the window out".to_owned());
        };
        match window {
            // The last second of a load may be a part of one.
            FigureWindow::Seconds { to, .. }
                if Duration::from_secs(to) >= duration + Duration::from_secs(1) =>
            {
                let duration = format_duration(duration);
                return Err(format!(
                    "`({window})` ends after the load, which takes {duration}: write an earlier end"
                ));
            }
            FigureWindow::UntilFirstReclaim | FigureWindow::AfterFirstReclaim if !facts.reports_reclaims => {
                return Err(format!(
                    "`({window})` needs the counters of our proxy, which are sampled once a second: write seconds, such as (10s..50s)"
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes the comparisons that name a test or an arm without a cell.
fn remove_claims_without_cells(cells: &[Cell], claims: &mut Vec<Claim>) {
    let lost = |selector: &Selector| {
        let test =
            selector.test.as_ref().filter(|test| !cells.iter().any(|cell| judge::is_below(&cell.test, test)));
        test.or(selector.arm.as_ref().filter(|arm| !cells.iter().any(|cell| cell.arm == **arm))).cloned()
    };
    for claim in claims.iter_mut() {
        let mut gone = BTreeSet::new();
        claim.expect.retain(|(_, comparison)| {
            let lost: Vec<_> = comparison.selectors().into_iter().filter_map(lost).collect();
            let stays = lost.is_empty();
            gone.extend(lost);
            stays
        });
        if !gone.is_empty() {
            let gone: Vec<_> = gone.into_iter().collect();
            claim.text = format!("{} (left out: {})", claim.text, gone.join(", "));
        }
    }
    claims.retain(|claim| !claim.expect.is_empty());
}

/// The databases of the run that tests read from.
fn databases(cells: &[Cell]) -> BTreeSet<RunService> {
    cells.iter().filter_map(|cell| cell.target.facts().database).collect()
}

/// Refuses a database without documents.
fn undeclared(cells: &[Cell], services: &BTreeMap<RunService, ServiceTable>) -> Result<(), TomlError> {
    match databases(cells).into_iter().find(|service| !services.contains_key(service)) {
        None => Ok(()),
        Some(service) => Err(TomlError {
            message: format!("`{}:` is started for the run, with nothing in it", service.name()),
            span: None,
            help: Some(format!("write [services] {} = {{ documents = \"FILE.jsonl\" }}", service.name())),
        }),
    }
}

/// The claim that every open load makes implicitly.
fn audit(names: Names<'_>, cells: &[Cell]) -> Option<Claim> {
    let is_audited = |cell: &&Cell| cell.target.facts().is_audited;
    let expr = |test: &str| format!("{test}audit.too_old + {test}audit.after_purge == 0");
    let mut exprs: Vec<String> = if cells.iter().all(|cell| is_audited(&cell)) {
        vec![expr("")]
    } else {
        cells.iter().filter(is_audited).map(|cell| expr(&format!("{}/", cell.test))).collect()
    };
    exprs.dedup();
    let expect: Vec<_> =
        exprs.into_iter().filter_map(|expr| Some((expr.clone(), judge::parse(&expr, names).ok()?))).collect();
    let text = "nothing was served beyond its limit".to_owned();
    let min_effect = judge::CLAIM_MIN_EFFECT;
    (!expect.is_empty()).then_some(Claim {
        text,
        expect,
        min_effect,
        abort: false,
        any_scale: true,
        is_judged: true,
    })
}

fn reference(table: TomlTable<'_>, names: Names<'_>) -> Result<(Reference, Vec<Selector>), TomlError> {
    let mut source = String::new();
    let (mut figures, mut selectors) = (BTreeMap::new(), Vec::new());
    for (key, value) in table {
        let at = Some(value.span());
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("source", DeValue::String(text)) => source = text.to_string(),
            (path, value) => {
                let selector = judge::selector(path, names)
                    .map_err(|message| TomlError::new(message, Some(key.span())))?;
                let is_one = selector.arm.is_some()
                    && names.tests.iter().any(|test| *test == selector.test.as_deref().unwrap_or_default());
                if !is_one {
                    return Err(TomlError::new(
                        "a published figure is that of one arm of one test: write TEST/ARM.metric",
                        Some(key.span()),
                    ));
                }
                let figure = match (selector.metric.unit, value) {
                    (FigureUnit::Time, DeValue::String(text)) => {
                        parse_duration(text).map(milliseconds).map_err(|e| e.to_string())
                    }
                    (FigureUnit::Time, _) => {
                        Err("a time is text with a unit, such as \"492.9ms\"".to_owned())
                    }
                    (FigureUnit::Number, DeValue::Integer(number)) => finite(number.as_str()),
                    (FigureUnit::Number, DeValue::Float(number)) => finite(number.as_str()),
                    (FigureUnit::Number, _) => Err("this metric is a plain number".to_owned()),
                };
                figures.insert(path.to_owned(), figure.map_err(|message| TomlError::new(message, at))?);
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
