//! `stockade run` in progress: state from its events, and lines from the state. Pure.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Write as _,
    iter,
    time::Duration,
};

use console::Style;
use stockade_lab::spec::Experiment;
use stockade_model::{
    message::printable,
    outcome::Outcomes,
    units::{format_count, format_duration},
};
use stockade_record::{
    histogram::Histogram,
    progress::{Measuring, RunObserver, RunProgress},
    record::{Disturbance, Interval, OriginStage, Record, Verdict},
};

use super::{
    layout::{
        Paint, SEND_LAG_MIN, SPARKLINE_SECONDS_MAX, cut, outcomes, progress_bar, sides, sparkline,
        time_or_dash, whole_seconds,
    },
    screen::{LiveScreen, PERIOD, View},
    time_left::TimeLeft,
};

/// The most lines.
const LINES_MAX: usize = 12;
/// The most verdicts.
const VERDICTS_MAX: usize = 5;

/// The state of a run.
pub struct RunView {
    title: String,
    is_load: bool,
    time_left: TimeLeft,
    steps: usize,
    /// Checks or measurements that have begun.
    begun: usize,
    /// The present check or measurement.
    activity: Option<RunActivity>,
    /// The last burst that has ended.
    burst: Option<Box<Measurement>>,
    open_comparisons: Option<usize>,
    verdicts: Vec<(Verdict, String)>,
}

enum RunActivity {
    Check(String),
    Measurement(Box<Measurement>),
}

/// A measurement in progress.
struct Measurement {
    /// `outage/breaker, repeat 2`.
    name: String,
    began: Duration,
    /// `None`: a burst, or it ends with its requests.
    lasts: Option<Duration>,
    is_burst: bool,
    /// The requests of the last second before the measured part, and the time until then.
    warmup: Option<(u64, Duration)>,
    stages: Vec<OriginStage>,
    /// The last ones.
    seconds: VecDeque<SecondCounts>,
    latest: Option<Latest>,
    total: Outcomes,
    dropped: u64,
    disturbed: u64,
    /// The last disturbed second, and by what.
    disturbance: Option<(u64, String)>,
    /// Of all its answers; empty unless it is a burst.
    response: Histogram,
    /// Failed requests by class, if known.
    errors: BTreeMap<String, u64>,
}

struct SecondCounts {
    requests: u64,
    source_loads: Option<u64>,
    is_disturbed: bool,
}

/// The last second.
struct Latest {
    /// When it was received.
    at: Duration,
    /// Its end, since the start of the load.
    end: Duration,
    share: f64,
    outcomes: Outcomes,
    times: LatestTimes,
    /// The requests that were due in it, if known.
    asked: Option<f64>,
    status_codes: BTreeMap<u16, u64>,
}

/// Times of a second. In virtual time seconds pass faster than these are computed, so they may be some seconds old.
#[derive(Clone, Copy, Default)]
struct LatestTimes {
    computed_at: Option<Duration>,
    p50: Option<Duration>,
    p99: Option<Duration>,
    max: Option<Duration>,
    send_lag: Option<Duration>,
}

impl LatestTimes {
    fn of(response: &Histogram, send_lag: Option<&Histogram>, now: Duration) -> Self {
        Self {
            computed_at: Some(now),
            p50: response.quantile(0.5),
            p99: response.quantile(0.99),
            max: response.max(),
            send_lag: send_lag.and_then(|lag| lag.quantile(0.99)),
        }
    }
}

/// `test/arm`, or the arm where the experiment has no tests.
fn place(test: &str, arm: &str) -> String {
    printable(&if test.is_empty() { arm.to_owned() } else { format!("{test}/{arm}") }).into_owned()
}

impl RunView {
    /// Before the first event. `scale`: the factor of `--scale`.
    pub fn new(experiment: &Experiment, scale: f64) -> Self {
        Self::titled(&experiment.title, TimeLeft::new(experiment, scale))
    }

    /// Of a load: its only measurement has the title of the run.
    #[cfg(feature = "http")]
    pub fn of_load(title: &str) -> Self {
        Self { is_load: true, ..Self::titled(title, TimeLeft::of(iter::empty(), false)) }
    }

    fn titled(title: &str, time_left: TimeLeft) -> Self {
        Self {
            title: printable(title).into_owned(),
            is_load: false,
            time_left,
            steps: 0,
            begun: 0,
            activity: None,
            burst: None,
            open_comparisons: None,
            verdicts: Vec::new(),
        }
    }

    pub fn apply(&mut self, event: &RunProgress<'_>, now: Duration) {
        match event {
            RunProgress::Begin { steps } => {
                (self.steps, self.begun) = (*steps, 0);
                self.time_left.begin(*steps);
            }
            RunProgress::Continuing { steps, open_comparisons } => {
                self.steps += steps;
                self.time_left.add_repeat();
                self.open_comparisons = Some(*open_comparisons);
            }
            RunProgress::Checking { test, arm } => {
                self.begun += 1;
                self.activity = Some(RunActivity::Check(place(test, arm)));
            }
            RunProgress::Measuring { measuring, .. } => {
                self.begun += 1;
                self.time_left.measure(measuring.test, measuring.arm, now);
                let begins = Some(RunActivity::Measurement(Box::new(Measurement::new(measuring, now))));
                if let Some(RunActivity::Measurement(ended)) = std::mem::replace(&mut self.activity, begins) {
                    self.burst = Some(ended).filter(|ended| ended.is_burst);
                }
            }
            RunProgress::WarmingUp { requests, left } => {
                if let Some(RunActivity::Measurement(measurement)) = &mut self.activity {
                    measurement.warmup = Some((*requests, *left));
                }
            }
            RunProgress::Second { interval, share, asked } => {
                if let Some(RunActivity::Measurement(measurement)) = &mut self.activity {
                    measurement.add(interval, *share, *asked, now);
                }
            }
            RunProgress::Record { record, .. } => self.judge(record),
            RunProgress::Finished { .. } => {}
        }
    }

    /// Takes the verdicts so far, the decided ones first.
    fn judge(&mut self, record: &Record) {
        let judged = record.hypotheses.iter().filter(|_| !record.runs.is_empty());
        self.verdicts =
            judged.map(|hypothesis| (hypothesis.verdict, printable(&hypothesis.text).into_owned())).collect();
        self.verdicts.sort_by_key(|(verdict, _)| match verdict {
            Verdict::Refuted => 0,
            Verdict::Supported => 1,
            Verdict::Invalid => 2,
            Verdict::Inconclusive => 3,
            Verdict::NotJudged => 4,
        });
    }

    fn head(&self, width: usize, now: Duration, paint: Paint) -> String {
        let mut right = match &self.activity {
            None => String::new(),
            Some(RunActivity::Check(_)) => format!("check {} of {}", self.begun, self.steps),
            Some(RunActivity::Measurement(_)) => format!("{} of {}", self.begun, self.steps),
        };
        if let Some(open) = self.open_comparisons {
            let _ = write!(right, ", {open} open");
        }
        if let Some(left) = self.time_left.at(now) {
            let _ = write!(right, ", about {} left", whole_seconds(left));
        }
        let line = sides(&self.title, &right, width);
        paint.apply(Style::new().bold(), &line)
    }

    fn verdict_lines(&self, lines: usize, width: usize, paint: Paint) -> Vec<String> {
        let all = self.verdicts.len();
        let shown = if all <= lines.min(VERDICTS_MAX) { all } else { (lines - 1).min(VERDICTS_MAX) };
        let rows = self.verdicts.iter().take(shown).enumerate().map(|(index, (verdict, text))| {
            let (mark, style) = match verdict {
                Verdict::Supported => ("✓", Style::new().green()),
                Verdict::Refuted => ("✗", Style::new().red()),
                Verdict::Invalid => ("!", Style::new().yellow()),
                Verdict::Inconclusive => ("?", Style::new().yellow()),
                Verdict::NotJudged => ("-", Style::new()),
            };
            let verdict = paint.apply(style, &format!("{mark} {verdict:12}"));
            paint.row(if index == 0 { "so far" } else { "" }, &format!("{verdict} {text}"), width)
        });
        let more = (shown < all).then(|| paint.row("", &format!("and {} more", all - shown), width));
        rows.chain(more).collect()
    }
}

impl View for RunView {
    fn lines(&self, width: usize, now: Duration, paint: Paint) -> Vec<String> {
        if let (true, Some(RunActivity::Measurement(load))) = (self.is_load, &self.activity) {
            let head = load.progress(&self.title, width, now, false);
            return iter::once(paint.apply(Style::new().bold(), &head))
                .chain(load.figures(width, now, paint))
                .collect();
        }
        let mut lines = vec![self.head(width, now, paint)];
        match &self.activity {
            None => lines.push("starting".to_owned()),
            Some(RunActivity::Check(place)) => lines.push(cut(place, width)),
            Some(RunActivity::Measurement(measurement)) => {
                lines.push(measurement.progress(&measurement.name, width, now, self.time_left.is_virtual()));
                match &self.burst {
                    Some(ended) if measurement.latest.is_none() && measurement.is_burst => {
                        lines.push(paint.row("before", &ended.name, width));
                        lines.extend(ended.figures(width, now, paint));
                    }
                    _ => lines.extend(measurement.figures(width, now, paint)),
                }
            }
        }
        lines.extend(self.verdict_lines(LINES_MAX.saturating_sub(lines.len()), width, paint));
        lines
    }
}

impl Measurement {
    fn new(measuring: &Measuring<'_>, now: Duration) -> Self {
        let Measuring { test, arm, repeat, lasts, requests, stages } = measuring;
        Self {
            name: format!("{}, repeat {repeat}", place(test, arm)),
            began: now,
            lasts: *lasts,
            is_burst: lasts.is_none() && requests.is_none(),
            warmup: None,
            stages: stages.to_vec(),
            seconds: VecDeque::with_capacity(SPARKLINE_SECONDS_MAX),
            latest: None,
            total: Outcomes::default(),
            dropped: 0,
            disturbed: 0,
            disturbance: None,
            response: Histogram::new(),
            errors: BTreeMap::new(),
        }
    }

    fn add(&mut self, interval: &Interval, share: f64, asked: Option<f64>, now: Duration) {
        self.warmup = None;
        for (class, count) in &interval.errors {
            *self.errors.entry(class.clone()).or_default() += count;
        }
        if self.seconds.len() == SPARKLINE_SECONDS_MAX {
            self.seconds.pop_front();
        }
        self.seconds.push_back(SecondCounts {
            requests: interval.outcomes.requests(),
            source_loads: interval.source_loads,
            is_disturbed: interval.disturbance.is_some(),
        });
        self.total += interval.outcomes;
        self.dropped += interval.dropped.unwrap_or_default();
        if let Some(disturbance) = &interval.disturbance {
            self.disturbed += 1;
            self.disturbance = Some((interval.second, in_words(disturbance)));
        }
        let known = self.latest.take().map(|latest| latest.times).unwrap_or_default();
        let times = if self.is_burst {
            self.response.merge(&interval.times.response);
            LatestTimes::of(&self.response, None, now)
        } else if known.computed_at.is_none_or(|at| now >= at + PERIOD) {
            LatestTimes::of(&interval.times.response, Some(&interval.times.send_lag), now)
        } else {
            known
        };
        let end = Duration::from_secs(interval.second + 1);
        let status_codes = interval.status_codes.clone();
        let outcomes = interval.outcomes;
        self.latest = Some(Latest { at: now, end, share, outcomes, times, asked, status_codes });
    }

    /// The name, the done share, and the time left.
    fn progress(&self, name: &str, width: usize, now: Duration, is_virtual: bool) -> String {
        if self.is_burst {
            return sides(name, "burst", width);
        }
        if let Some((_, left)) = self.warmup {
            return sides(name, &format!("warming up, {} left", whole_seconds(left)), width);
        }
        let Some(latest) = &self.latest else { return sides(name, "starting", width) };
        let Some(lasts) = self.lasts else {
            let right = format!("{} requests", format_count(self.total.requests()));
            return Self::progress_line(name, &right, latest.share, width);
        };
        let since = now.saturating_sub(latest.at);
        let left = if is_virtual {
            // At the speed so far.
            let took = latest.at.saturating_sub(self.began).as_secs_f64();
            Duration::try_from_secs_f64(took * (1.0 / latest.share - 1.0)).unwrap_or_default()
        } else {
            lasts.saturating_sub(latest.end)
        };
        let done = whole_seconds(latest.end.min(lasts));
        let left = match left.saturating_sub(since) {
            left if left < Duration::from_millis(500) => "ending".to_owned(),
            left => format!("{} left", whole_seconds(left)),
        };
        let right = format!("{done} of {}, {left}", whole_seconds(lasts));
        Self::progress_line(name, &right, latest.share, width)
    }

    fn progress_line(name: &str, right: &str, share: f64, width: usize) -> String {
        let taken = name.chars().count() + right.len();
        if width < taken + 16 {
            return sides(name, right, width);
        }
        let bar = progress_bar(share, (width - taken - 6).min(30));
        sides(name, &format!("{bar}  {right}"), width)
    }

    /// Rates, times, outcomes, the stage of the origin, and what went wrong.
    fn figures(&self, width: usize, now: Duration, paint: Paint) -> Vec<String> {
        if let Some((requests, _)) = self.warmup {
            return vec![paint.row(
                "requests",
                &format!("{}/s, not measured", format_count(requests)),
                width,
            )];
        }
        let Some(latest) = &self.latest else { return Vec::new() };
        let mut lines = Vec::new();
        if !self.is_burst {
            let asked = latest.asked.map(|asked| format!(", asked {asked:.0}")).unwrap_or_default();
            let requests: fn(&SecondCounts) -> _ = |second| Some(second.requests);
            lines.push(self.sparkline("requests", requests, (&asked, true), width, paint));
            // Not those of a load, whose source is another's.
            if self.seconds.iter().any(|second| second.source_loads.is_some_and(|loads| loads > 0)) {
                lines.push(self.sparkline("loads", |second| second.source_loads, ("", false), width, paint));
            }
        }
        let LatestTimes { p50, p99, max, .. } = latest.times;
        let [p50, p99, max] = [p50, p99, max].map(time_or_dash);
        lines.push(paint.row("response", &format!("p50 {p50}  p99 {p99}  max {max}"), width));
        if !latest.status_codes.is_empty() {
            let statuses = latest.status_codes.iter().map(|(status, count)| match status {
                0 => format!("none {}", format_count(*count)),
                status => format!("{status} {}", format_count(*count)),
            });
            lines.push(paint.row("status", &statuses.collect::<Vec<_>>().join("  "), width));
        }
        let shown = if self.is_burst { &self.total } else { &latest.outcomes };
        if latest.status_codes.is_empty() || shown.reported() > shown.error {
            lines.extend(outcomes(shown, width, paint));
        }
        lines.extend(self.stage(latest, now).map(|stage| paint.row("origin", &stage, width)));
        let problems = self.problems(latest);
        if !problems.is_empty() {
            let problems = paint.apply(Style::new().yellow(), &problems.join("; "));
            lines.push(paint.row("problems", &problems, width));
        }
        lines
    }

    fn sparkline(
        &self,
        name: &str,
        of: fn(&SecondCounts) -> Option<u64>,
        (suffix, marks_disturbed): (&str, bool),
        width: usize,
        paint: Paint,
    ) -> String {
        let seconds = self.seconds.iter().map(|second| (of(second), marks_disturbed && second.is_disturbed));
        let seconds: Vec<_> = seconds.collect();
        sparkline(name, &seconds, suffix, width, paint)
    }

    /// The present stage of the origin, and when the next one begins.
    fn stage(&self, latest: &Latest, now: Duration) -> Option<String> {
        let at = latest.end + now.saturating_sub(latest.at).min(Duration::from_secs(1));
        let start = |stage: &OriginStage| Duration::try_from_secs_f64(stage.at_ms / 1e3).unwrap_or_default();
        let next = self.stages.iter().find(|stage| start(stage) > at);
        let present = self.stages.iter().rev().find(|stage| start(stage) <= at)?;
        let mut text = format!(
            "{} since {}",
            printable(&present.behavior),
            whole_seconds(at.saturating_sub(start(present)))
        );
        if let Some(next) = next {
            let wait = whole_seconds(start(next).saturating_sub(at));
            let _ = write!(text, "; in {wait}: {}", printable(&next.behavior));
        }
        Some(text)
    }

    fn problems(&self, latest: &Latest) -> Vec<String> {
        let mut problems = Vec::new();
        if self.total.error > 0 {
            let [last, all] = [latest.outcomes.error, self.total.error].map(format_count);
            let classes: Vec<_> = self
                .errors
                .iter()
                .map(|(class, count)| format!("{class}: {}", format_count(*count)))
                .collect();
            problems.push(if self.is_burst {
                format!("{all} failed")
            } else if classes.is_empty() {
                format!("{last} failed, {all} in all")
            } else {
                let requests = format_count(self.total.requests());
                format!("{all} of {requests} failed ({})", classes.join(", "))
            });
        }
        if self.dropped > 0 {
            problems.push(format!("{} not sent", format_count(self.dropped)));
        }
        if let Some(lag) = latest.times.send_lag.filter(|lag| *lag >= SEND_LAG_MIN) {
            problems.push(format!("send lag p99 {}", format_duration(lag)));
        }
        if let Some((second, words)) = &self.disturbance {
            let seconds = if self.disturbed == 1 { "second" } else { "seconds" };
            problems.push(format!("{} {seconds} disturbed, last {second}: {words}", self.disturbed));
        }
        problems
    }
}

/// Shares of the processor time that others took.
fn in_words(disturbance: &Disturbance) -> String {
    let Disturbance { stolen, throttled, others, stopped } = disturbance;
    let shares = [("stolen", stolen), ("throttled", throttled), ("used by others", others)];
    let shares = shares
        .into_iter()
        .filter(|(_, share)| **share > 0.0)
        .map(|(what, share)| format!("{:.0} % {what}", share * 100.0));
    let stopped = stopped.map(|role| format!("{} stopped", role.name()));
    shares.chain(stopped).collect::<Vec<_>>().join(", ")
}

impl RunObserver for LiveScreen<RunView> {
    fn on(&mut self, event: &RunProgress<'_>) {
        self.update(|view, now| view.apply(event, now));
    }
}

#[cfg(test)]
#[path = "run_view/tests.rs"]
mod tests;
