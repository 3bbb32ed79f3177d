//! Plan files in TOML.

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
    latency::{Latency, LatencyFiles},
    nearest::remedy,
    units::{self, UnitError, parse_duration},
};
use toml::{Spanned, de::DeTable};

use super::{ClosedLoop, EndCondition, Phase, Plan};
use crate::schedule::{
    ArrivalProcess, REQUESTS_MAX, Rate, RateOrZero, ScheduleLimitError, Sine, SineStart, Step,
};

const FILE_BYTES_MAX: u64 = 16 << 20;
/// More than one machine can open.
const CONNECTIONS_MAX: i64 = 1_000_000;

/// Why a plan file is refused, with the place and the remedy.
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
    pub fn position(&self) -> Option<(usize, usize)> {
        let before = self.file.inner().get(..self.at?.offset())?;
        let line = before.rsplit('\n').next().unwrap_or_default();
        Some((before.matches('\n').count() + 1, line.chars().count() + 1))
    }

    /// The remedy, unless the message names it.
    #[must_use]
    pub fn help_text(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

/// Why a plan file could not be read.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub enum PlanFileError {
    /// The file could not be read.
    #[error("cannot read {path}: {error}")]
    Io {
        /// The file.
        path: String,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The file is not UTF-8.
    #[error("{path}:{line}: not UTF-8: save the file as UTF-8 text")]
    NotText {
        /// The file.
        path: String,
        /// The line, from 1.
        line: usize,
    },
    /// The file is larger than 16 MiB.
    #[error("{path} has more than 16 MiB: a plan file is smaller")]
    TooLarge {
        /// The file.
        path: String,
    },
    /// The plan is refused.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Plan(#[from] Box<PlanError>),
}

impl Plan {
    /// Reads and checks a file. Files that it names are resolved in its folder.
    pub fn read_file(path: &Path) -> Result<Self, PlanFileError> {
        let name = path.display().to_string();
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
            .map_err(|error| PlanFileError::Io { path: name.clone(), error })?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(PlanFileError::TooLarge { path: name });
        }
        let text = String::from_utf8(bytes).map_err(|error| PlanFileError::NotText {
            path: name.clone(),
            line: error.as_bytes()[..error.utf8_error().valid_up_to()].split(|byte| *byte == b'\n').count(),
        })?;
        Ok(Self::parse(&name, &text)?)
    }

    /// Reads and checks the text of the file `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self, Box<PlanError>> {
        let folder = Path::new(name).parent().unwrap_or(Path::new(""));
        parse_plan(text, &mut LatencyFiles::below(folder)).map_err(|fault| {
            Box::new(PlanError {
                message: fault.message,
                file: NamedSource::new(name, text.to_owned()),
                at: fault.at.map(Into::into),
                help: fault.help,
            })
        })
    }
}

type ByteRange = Option<Range<usize>>;

/// A [`PlanError`] without the file.
#[derive(Debug)]
struct PlanFault {
    message: String,
    at: ByteRange,
    help: Option<String>,
}

impl PlanFault {
    fn new(message: impl Into<String>, at: ByteRange) -> Self {
        Self { message: message.into(), at, help: None }
    }
}

impl From<toml::de::Error> for PlanFault {
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
    rate: Option<Spanned<Parsed<Rate>>>,
    ramp: Option<Spanned<RampTable>>,
    sine: Option<Spanned<SineTable>>,
    pause: Option<Spanned<Parsed<DurationText>>>,
    burst: Option<Spanned<i64>>,
    connections: Option<Spanned<i64>>,
    #[serde(rename = "for")]
    duration: Option<Spanned<Parsed<DurationText>>>,
    arrivals: Option<Spanned<ArrivalProcessName>>,
    think: Option<Spanned<RawText>>,
    requests: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { from = \"100/s\", to = \"1000/s\" }")]
struct RampTable {
    from: Parsed<RateOrZero>,
    to: Parsed<RateOrZero>,
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { mean = \"500/s\", amplitude = \"200/s\", period = \"20s\" }"
)]
struct SineTable {
    mean: Parsed<Rate>,
    amplitude: Parsed<Rate>,
    period: Parsed<DurationText>,
    #[serde(default)]
    start: SineStartName,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ArrivalProcessName {
    Constant,
    Poisson,
}

#[derive(Clone, Copy, Default)]
struct SineStartName(SineStart);

impl<'de> Deserialize<'de> for SineStartName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        const NAMES: [&str; 4] = ["mean-up", "peak", "mean-down", "trough"];
        let name = String::deserialize(from)?;
        let known = SineStart::ALL.into_iter().find(|turn| turn.name() == name);
        known.map(Self).ok_or_else(|| D::Error::unknown_variant(&name, &NAMES))
    }
}

/// A string that `T` parses. A bare number is an error that names the missing unit.
struct Parsed<T>(T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        units::text::written(from)?.parse().map(Self).map_err(D::Error::custom)
    }
}

/// A string that is parsed later.
struct RawText(String);

impl<'de> Deserialize<'de> for RawText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        units::text::written(from).map(Self)
    }
}

struct DurationText(Duration);

impl FromStr for DurationText {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse_duration(text).map(Self)
    }
}

/// The kinds of phases: the key, its name in messages, and the keys that may accompany it.
const PHASE_KINDS: [(&str, &str, &[&str]); 6] = [
    ("rate", "a rate", &["for", "arrivals"]),
    ("ramp", "a ramp", &["for", "arrivals"]),
    ("sine", "a sine", &["for", "arrivals"]),
    ("pause", "a pause", &[]),
    ("burst", "a burst", &[]),
    ("connections", "a closed loop", &["for", "think", "requests"]),
];

fn parse_plan(text: &str, files: &mut LatencyFiles) -> Result<Plan, PlanFault> {
    let example = || Some("write [[phase]], and rate = \"425/s\" and for = \"60s\" below it".to_owned());
    if DeTable::parse(text)?.get_ref().is_empty() {
        return Err(PlanFault { help: example(), ..PlanFault::new("the plan has no phase", None) });
    }
    let PlanTable { phase: Phases(tables) } = toml::from_str(text)?;
    let mut phases = Vec::new();
    let (mut requests, mut duration) = (0_u64, Duration::ZERO);
    for table in &tables {
        let phase = table.get_ref().phase(table.span(), files)?;
        let (phase_requests, phase_duration) = match &phase {
            Phase::Open(step) => (step.requests(), step.duration()),
            Phase::Closed(ClosedLoop { end, .. }) => {
                (end.requests().unwrap_or_default(), end.duration().unwrap_or_default())
            }
        };
        (requests, duration) =
            (requests.saturating_add(phase_requests), duration.saturating_add(phase_duration));
        if let Err(error @ (ScheduleLimitError::TooManyRequests | ScheduleLimitError::TooLong)) =
            ScheduleLimitError::check(requests.max(1), duration)
        {
            let message = match error {
                ScheduleLimitError::TooLong => "with this phase the plan is longer than 30 days".to_owned(),
                error => format!("with this phase the plan has {error}"),
            };
            return Err(PlanFault::new(message, Some(table.span())));
        }
        phases.push(phase);
    }
    Plan::new(phases)
        .map_err(|error| PlanFault { help: example(), ..PlanFault::new(error.to_string(), None) })
}

impl PhaseTable {
    /// The keys that are present, and their places.
    fn keys(&self) -> impl Iterator<Item = (&'static str, Range<usize>)> {
        fn key<T>(name: &'static str, value: Option<&Spanned<T>>) -> Option<(&'static str, Range<usize>)> {
            value.map(|value| (name, value.span()))
        }
        [
            key("rate", self.rate.as_ref()),
            key("ramp", self.ramp.as_ref()),
            key("sine", self.sine.as_ref()),
            key("pause", self.pause.as_ref()),
            key("burst", self.burst.as_ref()),
            key("connections", self.connections.as_ref()),
            key("for", self.duration.as_ref()),
            key("arrivals", self.arrivals.as_ref()),
            key("think", self.think.as_ref()),
            key("requests", self.requests.as_ref()),
        ]
        .into_iter()
        .flatten()
    }

    fn phase(&self, at: Range<usize>, files: &mut LatencyFiles) -> Result<Phase, PlanFault> {
        self.check(&at)?;
        let step = if let Some(rate) = &self.rate {
            Step::steady(rate.get_ref().0, self.duration("rate", at)?)
        } else if let Some(ramp) = &self.ramp {
            let RampTable { from, to } = ramp.get_ref();
            if (from.0, to.0) == (RateOrZero::ZERO, RateOrZero::ZERO) {
                return Err(PlanFault::new(
                    "a ramp from 0 to 0 has no requests: write pause = \"5s\"",
                    Some(ramp.span()),
                ));
            }
            Step::ramp(from.0, to.0, self.duration("ramp", at)?)
        } else if let Some(sine) = &self.sine {
            let SineTable { mean, amplitude, period, start } = sine.get_ref();
            let sine = Sine::new(mean.0, amplitude.0, period.0.0, start.0)
                .map_err(|error| PlanFault::new(error.to_string(), Some(sine.span())))?;
            Step::sine(sine, self.duration("sine", at)?)
        } else if let Some(pause) = &self.pause {
            Step::pause(non_zero(pause, "a pause is longer than 0: write a longer one, or remove it")?)
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
            None | Some(ArrivalProcessName::Constant) => ArrivalProcess::Constant,
            Some(ArrivalProcessName::Poisson) => ArrivalProcess::Poisson,
        };
        Ok(Phase::Open(step.with_arrivals(arrivals)))
    }

    /// Checks that the phase has one kind, and only keys of that kind.
    fn check(&self, at: &Range<usize>) -> Result<(), PlanFault> {
        let kind_of = |name: &str| PHASE_KINDS.iter().find(|(known, ..)| *known == name);
        let mut kinds = self.keys().filter_map(|(name, at)| Some((kind_of(name)?, at)));
        let Some((&(kind, is, others), _)) = kinds.next() else {
            let help = PHASE_KINDS.map(|(name, ..)| format!("`{name}`")).join(", ");
            return Err(PlanFault {
                help: Some(format!("a phase has one of {help}")),
                ..PlanFault::new("this phase has no kind", Some(at.clone()))
            });
        };
        if let Some(((_, other, _), at)) = kinds.next() {
            let message = format!("this phase is {is}: write {other} as another phase");
            return Err(PlanFault::new(message, Some(at)));
        }
        match self.keys().find(|(name, _)| *name != kind && !others.contains(name)) {
            None => Ok(()),
            Some((name, at)) => {
                let goes_with: Vec<_> = PHASE_KINDS
                    .iter()
                    .filter(|(.., others)| others.contains(&name))
                    .map(|(kind, ..)| format!("`{kind}`"))
                    .collect();
                let message = format!(
                    "`{name}` belongs to {}, and this phase is {is}: remove it",
                    goes_with.join(", ")
                );
                Err(PlanFault::new(message, Some(at)))
            }
        }
    }

    fn duration(&self, kind: &str, at: Range<usize>) -> Result<Duration, PlanFault> {
        let Some(duration) = &self.duration else {
            return Err(PlanFault::new(format!("the {kind} has no duration: write for = \"60s\""), Some(at)));
        };
        non_zero(duration, "a phase of this kind is longer than 0: write a longer time, or remove it")
    }

    fn closed(&self, at: Range<usize>, files: &mut LatencyFiles) -> Result<ClosedLoop, PlanFault> {
        let Some(connections) = &self.connections else {
            return Err(PlanFault::new("this phase has no kind", Some(at)));
        };
        let connections = within(connections, 1..=CONNECTIONS_MAX, "there are 1 to 1,000,000 connections")?;
        let duration =
            self.duration.as_ref().map(|_| self.duration("connections", at.clone())).transpose()?;
        let requests = self.requests.as_ref();
        let requests = requests
            .map(|requests| {
                within(requests, 1..=REQUESTS_MAX.cast_signed(), "there are 1 to 1,000,000,000 requests")
            })
            .transpose()?;
        let end = match (duration, requests) {
            (Some(duration), None) => EndCondition::Duration(duration),
            (None, Some(requests)) => EndCondition::Requests(requests),
            (Some(duration), Some(requests)) => EndCondition::FirstOf(duration, requests),
            (None, None) => {
                let message = "the closed loop has no end: write for = \"60s\", requests = 10_000 or both";
                return Err(PlanFault::new(message, Some(at)));
            }
        };
        let think = match &self.think {
            None => Latency::default(),
            Some(think) => Latency::parse_with(&think.get_ref().0, files)
                .map_err(|error| PlanFault::new(error.to_string(), Some(think.span())))?,
        };
        Ok(ClosedLoop {
            connections: usize::try_from(connections).unwrap_or(usize::MAX),
            think_time: think,
            end,
        })
    }
}

fn non_zero(time: &Spanned<Parsed<DurationText>>, message: &str) -> Result<Duration, PlanFault> {
    let duration = time.get_ref().0.0;
    if duration.is_zero() { Err(PlanFault::new(message, Some(time.span()))) } else { Ok(duration) }
}

/// Checks the bounds of a whole number; `message` is the error.
fn within(number: &Spanned<i64>, bounds: RangeInclusive<i64>, message: &str) -> Result<u64, PlanFault> {
    let fault = || PlanFault::new(message, Some(number.span()));
    let found = Some(*number.get_ref()).filter(|number| bounds.contains(number));
    found.and_then(|number| u64::try_from(number).ok()).ok_or_else(fault)
}
