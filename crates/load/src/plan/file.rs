//! A plan as it is written.

use std::{
    fmt::Display,
    fs::File,
    io::Read,
    ops::{Range, RangeInclusive},
    path::Path,
    str::FromStr,
    time::Duration,
};

use miette::{Diagnostic, NamedSource, SourceSpan};
use serde::{Deserialize, Deserializer, de::Error as _};
use stockade_model::{
    latency::{Files, Latency},
    nearest::remedy,
    units::{self, UnitError, parse_duration},
};
use toml::{Spanned, de::DeTable};

use super::{Closed, Phase, Plan, Until};
use crate::schedule::{Arrivals, Beyond, Level, REQUESTS_MAX, Rate, Sine, Step, Turn};

/// A plan is no larger.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// More connections than one machine has addresses for.
const CONNECTIONS_MAX: i64 = 1_000_000;

/// A plan cannot be used. It shows the place and the remedy.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
pub struct PlanError {
    message: String,
    #[source_code]
    file: NamedSource<String>,
    #[label]
    at: Option<SourceSpan>,
    #[help]
    help: Option<String>,
}

impl PlanError {
    /// In which line and column it begins, both from 1, if it is at one place.
    #[must_use]
    pub fn place(&self) -> Option<(usize, usize)> {
        let before = self.file.inner().get(..self.at?.offset())?;
        let line = before.rsplit('\n').next().unwrap_or_default();
        Some((before.matches('\n').count() + 1, line.chars().count() + 1))
    }

    /// What to write instead, where the message does not say so itself.
    #[must_use]
    pub fn remedy(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

/// A plan could not be loaded.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub enum ReadError {
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
    /// The file is no plan.
    #[error("{path} has more than 16 MiB: that is no plan")]
    TooLarge {
        /// Which.
        path: String,
    },
    /// The file makes no sense.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Plan(#[from] Box<PlanError>),
}

impl Plan {
    /// Reads and checks a file. Files that it names are named from its folder on.
    pub fn load(path: &Path) -> Result<Self, ReadError> {
        let name = path.display().to_string();
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
            .map_err(|error| ReadError::Io { path: name.clone(), error })?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(ReadError::TooLarge { path: name });
        }
        let text = String::from_utf8(bytes).map_err(|error| ReadError::NotText {
            path: name.clone(),
            line: error.as_bytes()[..error.utf8_error().valid_up_to()].split(|byte| *byte == b'\n').count(),
        })?;
        Ok(Self::parse(&name, &text)?)
    }

    /// Reads and checks the text of a file called `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self, Box<PlanError>> {
        let folder = Path::new(name).parent().unwrap_or(Path::new(""));
        read(text, &mut Files::below(folder)).map_err(|wrong| {
            Box::new(PlanError {
                message: wrong.message,
                file: NamedSource::new(name, text.to_owned()),
                at: wrong.at.map(Into::into),
                help: wrong.help,
            })
        })
    }
}

type Place = Option<Range<usize>>;

/// Something is wrong with the file.
#[derive(Debug)]
struct Wrong {
    message: String,
    at: Place,
    help: Option<String>,
}

impl Wrong {
    fn new(message: impl Into<String>, at: Place) -> Self {
        Self { message: message.into(), at, help: None }
    }
}

impl From<toml::de::Error> for Wrong {
    fn from(error: toml::de::Error) -> Self {
        let (message, at) = (error.message().trim_end(), error.span());
        // serde writes: unknown field `rat`, expected one of `rate`, `ramp`
        let mut quoted = message.split('`').skip(1).step_by(2);
        match message.split_once(", expected") {
            Some((unknown, _)) if unknown.starts_with("unknown ") => {
                let help = remedy(quoted.next().unwrap_or_default(), quoted.collect::<Vec<_>>());
                let message = unknown.replacen("field", "key", 1).replacen("variant", "value", 1);
                Self { message, at, help: Some(help) }
            }
            _ if message.contains("expected a sequence") => {
                Self::new("write each phase as a table of its own, under [[phase]]", at)
            }
            _ => Self::new(message, at),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanTable {
    phase: Phases,
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Phases(Vec<Spanned<PhaseTable>>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table under [[phase]]")]
struct PhaseTable {
    rate: Option<Spanned<Text<Rate>>>,
    ramp: Option<Spanned<RampTable>>,
    sine: Option<Spanned<SineTable>>,
    pause: Option<Spanned<Text<Plain>>>,
    burst: Option<Spanned<i64>>,
    connections: Option<Spanned<i64>>,
    #[serde(rename = "for")]
    lasts: Option<Spanned<Text<Plain>>>,
    arrivals: Option<Spanned<ArrivalsName>>,
    think: Option<Spanned<Written>>,
    requests: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { from = \"100/s\", to = \"1000/s\" }")]
struct RampTable {
    from: Text<Level>,
    to: Text<Level>,
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { mean = \"500/s\", amplitude = \"200/s\", period = \"20s\" }"
)]
struct SineTable {
    mean: Text<Rate>,
    amplitude: Text<Rate>,
    period: Text<Plain>,
    #[serde(default)]
    start: TurnName,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ArrivalsName {
    Constant,
    Poisson,
}

#[derive(Clone, Copy, Default)]
struct TurnName(Turn);

impl<'de> Deserialize<'de> for TurnName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        const NAMES: [&str; 4] = ["mean-up", "peak", "mean-down", "trough"];
        let name = String::deserialize(from)?;
        let known = Turn::ALL.into_iter().find(|turn| turn.name() == name);
        known.map(Self).ok_or_else(|| D::Error::unknown_variant(&name, &NAMES))
    }
}

/// Something written as text that its own type reads; a bare number is told what it lacks.
struct Text<T>(T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        units::text::written(from)?.parse().map(Self).map_err(D::Error::custom)
    }
}

/// Text that is read later.
struct Written(String);

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        units::text::written(from).map(Self)
    }
}

/// A duration.
struct Plain(Duration);

impl FromStr for Plain {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse_duration(text).map(Self)
    }
}

/// What a phase can be: its key, what it is, and which keys may stand beside it.
const KINDS: [(&str, &str, &[&str]); 6] = [
    ("rate", "a rate", &["for", "arrivals"]),
    ("ramp", "a ramp", &["for", "arrivals"]),
    ("sine", "a sine", &["for", "arrivals"]),
    ("pause", "a pause", &[]),
    ("burst", "a burst", &[]),
    ("connections", "a closed loop", &["for", "think", "requests"]),
];

fn read(text: &str, files: &mut Files) -> Result<Plan, Wrong> {
    let example = || Some("write [[phase]], and rate = \"425/s\" and for = \"60s\" below it".to_owned());
    if DeTable::parse(text)?.get_ref().is_empty() {
        return Err(Wrong { help: example(), ..Wrong::new("there is no phase in the plan", None) });
    }
    let PlanTable { phase: Phases(tables) } = toml::from_str(text)?;
    let mut phases = Vec::new();
    let (mut requests, mut lasts) = (0_u64, Duration::ZERO);
    for table in &tables {
        let phase = table.get_ref().phase(table.span(), files)?;
        let (more, longer) = match &phase {
            Phase::Open(step) => (step.requests(), step.lasts()),
            Phase::Closed(Closed { until, .. }) => {
                (until.requests().unwrap_or_default(), until.duration().unwrap_or_default())
            }
        };
        (requests, lasts) = (requests.saturating_add(more), lasts.saturating_add(longer));
        if let Err(beyond @ (Beyond::Requests | Beyond::Duration)) = Beyond::check(requests.max(1), lasts) {
            let message = match beyond {
                Beyond::Duration => "with this phase the plan is longer than 30 days".to_owned(),
                beyond => format!("with this phase the plan has {beyond}"),
            };
            return Err(Wrong::new(message, Some(table.span())));
        }
        phases.push(phase);
    }
    Plan::new(phases).map_err(|beyond| Wrong { help: example(), ..Wrong::new(beyond.to_string(), None) })
}

impl PhaseTable {
    /// Every key that is there, and where.
    fn places(&self) -> impl Iterator<Item = (&'static str, Range<usize>)> {
        fn place<T>(name: &'static str, value: Option<&Spanned<T>>) -> Option<(&'static str, Range<usize>)> {
            value.map(|value| (name, value.span()))
        }
        [
            place("rate", self.rate.as_ref()),
            place("ramp", self.ramp.as_ref()),
            place("sine", self.sine.as_ref()),
            place("pause", self.pause.as_ref()),
            place("burst", self.burst.as_ref()),
            place("connections", self.connections.as_ref()),
            place("for", self.lasts.as_ref()),
            place("arrivals", self.arrivals.as_ref()),
            place("think", self.think.as_ref()),
            place("requests", self.requests.as_ref()),
        ]
        .into_iter()
        .flatten()
    }

    fn phase(&self, at: Range<usize>, files: &mut Files) -> Result<Phase, Wrong> {
        self.check(&at)?;
        let step = if let Some(rate) = &self.rate {
            Step::steady(rate.get_ref().0, self.lasts("rate", at)?)
        } else if let Some(ramp) = &self.ramp {
            let RampTable { from, to } = ramp.get_ref();
            if (from.0, to.0) == (Level::NONE, Level::NONE) {
                return Err(Wrong::new("nobody comes: write pause = \"5s\" for that", Some(ramp.span())));
            }
            Step::ramp(from.0, to.0, self.lasts("ramp", at)?)
        } else if let Some(sine) = &self.sine {
            let SineTable { mean, amplitude, period, start } = sine.get_ref();
            let sine = Sine::new(mean.0, amplitude.0, period.0.0, start.0)
                .map_err(|error| Wrong::new(error.to_string(), Some(sine.span())))?;
            Step::sine(sine, self.lasts("sine", at)?)
        } else if let Some(pause) = &self.pause {
            Step::pause(some_time(pause, "a pause takes its time: write a longer one, or leave it out")?)
        } else if let Some(burst) = &self.burst {
            Step::burst(within(
                burst,
                1..=REQUESTS_MAX.cast_signed(),
                "a burst has 1 to 1,000,000,000 requests",
            )?)
        } else {
            return self.closed(at, files).map(Phase::Closed);
        };
        let arrivals = match self.arrivals.as_ref().map(Spanned::get_ref) {
            None | Some(ArrivalsName::Constant) => Arrivals::Constant,
            Some(ArrivalsName::Poisson) => Arrivals::Poisson,
        };
        Ok(Phase::Open(step.arriving(arrivals)))
    }

    /// Whether it is one thing, with nothing beside it that belongs to another.
    fn check(&self, at: &Range<usize>) -> Result<(), Wrong> {
        let kind_of = |name: &str| KINDS.iter().find(|(known, ..)| *known == name);
        let mut kinds = self.places().filter_map(|(name, at)| Some((kind_of(name)?, at)));
        let Some((&(kind, is, beside), _)) = kinds.next() else {
            let help = KINDS.map(|(name, ..)| format!("`{name}`")).join(", ");
            return Err(Wrong {
                help: Some(format!("a phase has one of {help}")),
                ..Wrong::new("this phase does not say who comes", Some(at.clone()))
            });
        };
        if let Some(((_, other, _), at)) = kinds.next() {
            let message =
                format!("a phase is one thing, and this one is {is}: write {other} as a phase of its own");
            return Err(Wrong::new(message, Some(at)));
        }
        match self.places().find(|(name, _)| *name != kind && !beside.contains(name)) {
            None => Ok(()),
            Some((name, at)) => {
                let goes_with: Vec<_> = KINDS
                    .iter()
                    .filter(|(.., beside)| beside.contains(&name))
                    .map(|(kind, ..)| format!("`{kind}`"))
                    .collect();
                let message = format!(
                    "`{name}` stands beside {}, and this phase is {is}: leave it out",
                    goes_with.join(", ")
                );
                Err(Wrong::new(message, Some(at)))
            }
        }
    }

    fn lasts(&self, kind: &str, at: Range<usize>) -> Result<Duration, Wrong> {
        let Some(lasts) = &self.lasts else {
            return Err(Wrong::new(format!("for how long? Write for = \"60s\" beside the {kind}"), Some(at)));
        };
        some_time(lasts, "nobody comes in no time: write a longer time, or leave the phase out")
    }

    fn closed(&self, at: Range<usize>, files: &mut Files) -> Result<Closed, Wrong> {
        let Some(connections) = &self.connections else {
            return Err(Wrong::new("this phase does not say who comes", Some(at)));
        };
        let connections = within(connections, 1..=CONNECTIONS_MAX, "there are 1 to 1,000,000 connections")?;
        let lasts = self.lasts.as_ref().map(|_| self.lasts("connections", at.clone())).transpose()?;
        let requests = self.requests.as_ref();
        let requests = requests
            .map(|requests| {
                within(requests, 1..=REQUESTS_MAX.cast_signed(), "there are 1 to 1,000,000,000 requests")
            })
            .transpose()?;
        let until = match (lasts, requests) {
            (Some(lasts), None) => Until::Duration(lasts),
            (None, Some(requests)) => Until::Requests(requests),
            (Some(lasts), Some(requests)) => Until::Either(lasts, requests),
            (None, None) => {
                let message =
                    "for how long? Write for = \"60s\", requests = 10_000 or both beside the connections";
                return Err(Wrong::new(message, Some(at)));
            }
        };
        let think = match &self.think {
            None => Latency::default(),
            Some(think) => Latency::read_with(&think.get_ref().0, files)
                .map_err(|error| Wrong::new(error.to_string(), Some(think.span())))?,
        };
        Ok(Closed { connections: usize::try_from(connections).unwrap_or(usize::MAX), think, until })
    }
}

fn some_time(time: &Spanned<Text<Plain>>, otherwise: &str) -> Result<Duration, Wrong> {
    let lasts = time.get_ref().0.0;
    if lasts.is_zero() { Err(Wrong::new(otherwise, Some(time.span()))) } else { Ok(lasts) }
}

/// A whole number within bounds, and what is said of any other.
fn within(number: &Spanned<i64>, bounds: RangeInclusive<i64>, otherwise: &str) -> Result<u64, Wrong> {
    let wrong = || Wrong::new(otherwise, Some(number.span()));
    let found = Some(*number.get_ref()).filter(|number| bounds.contains(number));
    found.and_then(|number| u64::try_from(number).ok()).ok_or_else(wrong)
}
