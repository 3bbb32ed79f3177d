//! The page of a run in progress: the report so far, and above it the measurement that goes on.
//!
//! ```text
//! RunProgress -> LiveFeed (in the run: owned copies, the report as HTML) -> LiveEvent -> LivePage (anywhere: the page, its changes)
//! ```
//!
//! A reader gets the page once, and then its changes: a point of the plots each second, or word that the page is to be fetched again, as
//! after each measurement. The changes of the current measurement are kept, so that a reader may be late.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::record::Record;
use maud::{Markup, PreEscaped, html};
use serde::Serialize;
use stockade_model::units::format_span;

use super::{
    PagePlots, data, drawing, figures,
    over_time::{self, ArmMoments, LivePoint, TestSeconds},
    page,
    plots::Stage,
    report,
};
use crate::{
    clock,
    metrics::{Moment, Results},
    progress::{Measuring, RunObserver, RunProgress},
};

const LIVE_SCRIPT: &str = include_str!("live.js");
/// The report so far is rendered again after this multiple of the time that it takes, so that it costs a run 1 % at most.
const PAUSE_FACTOR: u32 = 100;
/// The most seconds of a measurement that a reader may be late: 4 MB.
const CHANGES_MAX: usize = 10_000;
/// The first length in seconds of the plots of a measurement whose end is not known. It doubles when it is reached.
const UNKNOWN_END_SECONDS: u64 = 64;

/// A [`RunProgress`], owned, so that another thread can show it.
pub enum LiveEvent {
    Checking {
        place: String,
    },
    /// The report so far, without the page around it.
    Report(String),
    Measuring(Box<LiveMeasurement>),
    /// `None`: not of an open load. The share is the finished part of the measurement, from 0 to 1.
    Second(Option<Box<Moment>>, f64),
    /// The page as the record has it.
    Finished(String),
}

/// A measurement that goes on.
pub struct LiveMeasurement {
    /// `3 of 12: test `a`, arm `b`, repeat 1`.
    name: String,
    test: String,
    arms: Vec<String>,
    /// Index of its arm.
    arm: usize,
    /// `None`: a burst, or a load that ends with its requests. A burst has no seconds.
    lasts: Option<Duration>,
    stages: Vec<Stage>,
    /// The seconds of the arms that were measured before, by index.
    before: Vec<(usize, Vec<Moment>)>,
    /// Its seconds so far.
    moments: Vec<Moment>,
    /// From 0 to 1.
    share: f64,
}

/// Sends the progress of a run to its page.
pub struct LiveFeed<F> {
    send: F,
    /// When the report was rendered, and how long that took.
    rendered: Option<(Instant, Duration)>,
}

impl<F: FnMut(LiveEvent)> LiveFeed<F> {
    pub fn new(send: F) -> Self {
        Self { send, rendered: None }
    }
}

impl<F: FnMut(LiveEvent)> RunObserver for LiveFeed<F> {
    fn on(&mut self, progress: &RunProgress<'_>) {
        let event = match progress {
            RunProgress::Checking { test, arm } => {
                LiveEvent::Checking { place: format!("{test} {arm}").trim_start().to_owned() }
            }
            RunProgress::Record { record, results } => {
                let started = clock::instant();
                if self.rendered.is_some_and(|(at, took)| started - at < took * PAUSE_FACTOR) {
                    return;
                }
                let report = report(record, results).into_string();
                self.rendered = Some((started, clock::instant() - started));
                LiveEvent::Report(report)
            }
            RunProgress::Measuring { measuring, record, results } => {
                LiveEvent::Measuring(Box::new(LiveMeasurement::begin(measuring, record, results)))
            }
            RunProgress::Second { interval, share, .. } => {
                LiveEvent::Second(Moment::of(interval).map(Box::new), *share)
            }
            RunProgress::Begin { .. } | RunProgress::Continuing { .. } | RunProgress::WarmingUp { .. } => {
                return;
            }
            RunProgress::Finished { record, results } => LiveEvent::Finished(super::render(record, results)),
        };
        (self.send)(event);
    }
}

impl LiveMeasurement {
    fn begin(measuring: &Measuring<'_>, record: &Record, results: &Results) -> Self {
        let arms: Vec<String> = record.arms.iter().map(|arm| arm.name.clone()).collect();
        let Measuring { test, arm, repeat, lasts, stages, .. } = *measuring;
        let index = arms.iter().position(|name| name == arm).unwrap_or_default();
        let others = arms.iter().enumerate().filter(|(other, _)| *other != index && lasts.is_some());
        let before = others.map(|(other, name)| (other, results.moments(test, name).to_vec()));
        let place = [test, arm].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
        Self {
            name: format!("{} of {}: {place}, repeat {repeat}", record.runs.len() + 1, record.planned),
            test: test.to_owned(),
            arm: index,
            lasts,
            stages: over_time::stages(stages, lasts.unwrap_or_default().as_secs_f64()),
            before: before.filter(|(_, moments)| !moments.is_empty()).collect(),
            arms,
            moments: Vec::new(),
            share: 0.0,
        }
    }

    /// The length of its plots; 0: it has none.
    fn seconds(&self) -> u64 {
        let so_far = self.moments.last().map(|last| last.second + 1);
        match self.lasts {
            Some(lasts) => lasts.as_secs(),
            None => so_far.map_or(0, |so_far| so_far.next_power_of_two().max(UNKNOWN_END_SECONDS)),
        }
    }

    fn text(&self) -> String {
        let so_far = match (self.lasts, self.moments.last()) {
            (Some(lasts), _) => {
                format!(", {} of {}", format_span(lasts.mul_f64(self.share)), format_span(lasts))
            }
            (None, Some(last)) => format!(", {}", format_span(Duration::from_secs(last.second + 1))),
            (None, None) => String::new(),
        };
        format!("measurement {}{so_far}", self.name)
    }

    /// The plots of its test: this arm so far, and those that were measured before.
    fn plots(&self) -> PagePlots {
        let seconds = self.seconds();
        let arm = |arm: usize, moments, is_live| {
            let name = self.arms[arm].as_str();
            ArmMoments { arm, name, moments, seconds, is_live }
        };
        let mut arms: Vec<_> =
            self.before.iter().map(|(index, moments)| arm(*index, moments.as_slice(), false)).collect();
        arms.push(arm(self.arm, self.moments.as_slice(), true));
        arms.sort_by_key(|arm| arm.arm);
        let (test, stages) = (self.test.as_str(), self.stages.clone());
        let plots = over_time::plots(&TestSeconds { test, seconds, arms, stages, events: Vec::new() });
        PagePlots { arms: self.arms.clone(), plots }
    }
}

/// A change of the page, and its number.
#[derive(Clone, Debug)]
pub struct Change {
    pub number: u64,
    /// The type of a server-sent event: `page`, `second` or `end`.
    pub kind: &'static str,
    /// JSON in one line.
    pub data: Arc<str>,
}

/// The data of `second`.
#[derive(Serialize)]
struct LiveSecond<'a> {
    /// The measured arm, by index.
    arm: usize,
    share: f64,
    text: &'a str,
    point: Option<LivePoint>,
}

/// The page of a run in progress.
pub struct LivePage {
    title: String,
    /// The setup that is being checked, before the first measurement.
    checking: String,
    report: String,
    measuring: Option<Box<LiveMeasurement>>,
    /// The page as the record has it, once the run has ended.
    finished: Option<Arc<str>>,
    /// The last ones, in order.
    changes: Vec<Change>,
    /// The page of this change.
    rendered: Option<(u64, Arc<str>)>,
}

impl LivePage {
    /// `first`: the number of its first change, later than each change of an earlier run.
    #[must_use]
    pub fn new(title: &str, first: u64) -> Self {
        Self {
            title: title.to_owned(),
            checking: String::new(),
            report: String::new(),
            measuring: None,
            finished: None,
            changes: vec![Change { number: first, kind: "page", data: "{}".into() }],
            rendered: None,
        }
    }

    /// The number of the last change.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.changes.last().map_or(0, |last| last.number)
    }

    /// True: nothing changes any more.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.finished.is_some()
    }

    /// The changes after this one. A browser that lacks older ones gets the first that is kept, which replaces the page.
    #[must_use]
    pub fn changes_after(&self, number: u64) -> Vec<Change> {
        self.changes.iter().filter(|change| change.number > number).cloned().collect()
    }

    pub fn on(&mut self, event: LiveEvent) {
        match event {
            LiveEvent::Checking { place } => {
                self.checking = place;
                self.replace();
            }
            LiveEvent::Report(report) => self.report = report,
            LiveEvent::Measuring(measuring) => {
                self.measuring = Some(measuring);
                self.replace();
            }
            LiveEvent::Second(moment, share) => self.second(moment, share),
            LiveEvent::Finished(page) => {
                self.finished = Some(page.into());
                self.measuring = None;
                self.replace();
            }
        }
    }

    /// The page as a whole is another one.
    fn replace(&mut self) {
        let number = self.number();
        self.changes.clear();
        let kind = if self.is_finished() { "end" } else { "page" };
        self.changes.push(Change { number: number + 1, kind, data: "{}".into() });
    }

    fn second(&mut self, moment: Option<Box<Moment>>, share: f64) {
        let Some(measuring) = &mut self.measuring else { return };
        measuring.share = share;
        let seconds = measuring.seconds();
        measuring.moments.extend(moment.map(|moment| *moment));
        if measuring.seconds() != seconds {
            return self.replace();
        }
        let point = over_time::last_point(&measuring.moments, seconds);
        let second = LiveSecond { arm: measuring.arm, share, text: &measuring.text(), point };
        let data = serde_json::to_string(&second).unwrap_or_default();
        if self.changes.len() >= CHANGES_MAX {
            self.replace();
        }
        self.change("second", data.into());
    }

    fn change(&mut self, kind: &'static str, data: Arc<str>) {
        self.changes.push(Change { number: self.number() + 1, kind, data });
    }

    /// The page at its last change.
    pub fn html(&mut self) -> Arc<str> {
        if let Some(finished) = &self.finished {
            return Arc::clone(finished);
        }
        let number = self.number();
        match &self.rendered {
            Some((of, page)) if *of == number => Arc::clone(page),
            _ => {
                let page: Arc<str> = self.render().into();
                self.rendered = Some((number, Arc::clone(&page)));
                page
            }
        }
    }

    fn render(&self) -> String {
        let body = html! {
            (self.now())
            @if self.report.is_empty() { main #report { h1 { (self.title) } } } @else { (PreEscaped(&self.report)) }
            (drawing())
            script { (PreEscaped(LIVE_SCRIPT)) }
        };
        page(&self.title, &body)
    }

    fn now(&self) -> Markup {
        let (share, text) = match &self.measuring {
            Some(measuring) => (measuring.share, measuring.text()),
            None if self.checking.is_empty() => (0.0, "the run starts".to_owned()),
            None => (0.0, format!("check of {}", self.checking)),
        };
        html! {
            section #now aria-label="now" data-change=(self.number()) {
                p.progress { strong { (self.title) } " " progress max="1" value=(share) aria-label="done" {} " " span { (text) } }
                @if let Some(measuring) = self.measuring.as_ref().filter(|measuring| measuring.seconds() > 0) {
                    @let mut plots = PagePlots { arms: measuring.arms.clone(), plots: Vec::new() };
                    (figures(&mut plots, measuring.plots().plots))
                    (data(&plots))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::record::{Interval, Times};
    use proptest::prelude::*;
    use stockade_model::outcome::Outcomes;

    use super::*;

    fn interval(second: u64, hits: u64, misses: u64) -> Interval {
        let outcomes = Outcomes { hit: hits, miss: misses, ..Outcomes::default() };
        let response = (1..=hits + misses).map(Duration::from_millis).collect();
        let times = Times { response, ..Times::default() };
        Interval {
            second,
            outcomes,
            times,
            source_loads: Some(misses),
            dropped: Some(0),
            ..Interval::default()
        }
    }

    fn measurement(seconds: u64) -> LiveMeasurement {
        LiveMeasurement {
            name: "1 of 1: a, repeat 1".to_owned(),
            test: String::new(),
            arms: vec!["a".to_owned()],
            arm: 0,
            lasts: Some(Duration::from_secs(seconds)),
            stages: Vec::new(),
            before: Vec::new(),
            moments: Vec::new(),
            share: 0.0,
        }
    }

    proptest! {
        /// Point by point a reader has what a page has that is rendered at the end; also where a point groups seconds.
        #[test]
        fn points_add_up_to_the_plots(
            counts in prop::collection::vec((0_u64..4, 0_u64..4), 1..40),
            seconds in prop::sample::select(vec![40_u64, 7_000]),
        ) {
            let mut live = measurement(seconds);
            let mut ys: Vec<Vec<Vec<Option<f64>>>> = Vec::new();
            for (second, (hits, misses)) in (0..).zip(&counts) {
                live.moments.extend(Moment::of(&interval(second, *hits, *misses)));
                let point = over_time::last_point(&live.moments, seconds).unwrap();
                let (at, columns) = point.parts();
                ys.resize(columns.len(), Vec::new());
                for (lines, column) in ys.iter_mut().zip(columns) {
                    lines.resize(column.len(), Vec::new());
                    for (line, y) in lines.iter_mut().zip(column) {
                        line.resize(at + 1, None);
                        line[at] = y;
                    }
                }
            }
            let plots = live.plots();
            for (plot, lines) in plots.plots.iter().zip(&ys) {
                let columns: Vec<_> = plot.lines.iter().map(|line| line.ys.0.clone()).collect();
                prop_assert_eq!(&columns, lines, "{}", plot.title);
            }
        }
    }

    #[test]
    fn source_loads_that_nothing_counts_are_not_drawn_as_zero() {
        let of_load = Interval { source_loads: None, ..interval(0, 1, 0) };
        let moments: Vec<_> = Moment::of(&of_load).into_iter().collect();
        let (_, columns) = over_time::last_point(&moments, 40).unwrap().parts();
        assert_eq!(columns[0], [Some(1.0), None]);
    }

    #[test]
    fn late_reader_fetches_the_page_and_then_follows() {
        let mut page = LivePage::new("t", 500);
        let kinds = |page: &LivePage, after| -> Vec<&str> {
            page.changes_after(after).iter().map(|change| change.kind).collect()
        };
        page.on(LiveEvent::Measuring(Box::new(measurement(100))));
        let begun = page.number();
        for second in 0..3 {
            page.on(LiveEvent::Second(Moment::of(&interval(second, 1, 0)).map(Box::new), 0.01));
        }
        assert_eq!(kinds(&page, begun), ["second"; 3]);
        assert_eq!(kinds(&page, begun + 2), ["second"]);
        assert_eq!(kinds(&page, page.number()), [""; 0]);
        // It has missed the start, or it is from an earlier run.
        assert_eq!(kinds(&page, 0), ["page", "second", "second", "second"]);
        assert_eq!(kinds(&page, 499), ["page", "second", "second", "second"]);
        for second in 3..CHANGES_MAX as u64 + 3 {
            page.on(LiveEvent::Second(Moment::of(&interval(second, 1, 0)).map(Box::new), 0.01));
        }
        assert!(page.changes.len() <= CHANGES_MAX);
        assert_eq!(kinds(&page, begun)[0], "page", "the changes that it lacks are gone");
        page.on(LiveEvent::Finished("saved".to_owned()));
        assert_eq!((kinds(&page, begun), &*page.html()), (vec!["end"], "saved"));
    }

    #[test]
    fn plots_of_a_load_without_a_known_end_grow() {
        let mut page = LivePage::new("t", 1);
        page.on(LiveEvent::Measuring(Box::new(LiveMeasurement { lasts: None, ..measurement(0) })));
        assert!(!page.html().contains("<figure"));
        let mut fetched = Vec::new();
        for second in 0..129 {
            let before = page.number();
            page.on(LiveEvent::Second(Moment::of(&interval(second, 1, 0)).map(Box::new), 0.0));
            let change = page.changes_after(before).pop().unwrap();
            match change.kind {
                "page" => fetched.push(second),
                _ => {
                    assert!(
                        change.data.contains(&format!("\"point\":{{\"at\":{second},")),
                        "{}",
                        change.data
                    );
                }
            }
        }
        assert_eq!(fetched, [0, 64, 128]);
        let measuring = page.measuring.as_ref().unwrap();
        assert_eq!((measuring.plots().plots[0].xs.0.len(), measuring.seconds()), (256, 256));
        assert!(page.html().contains("<figure") && page.html().contains("repeat 1, 2m9s"), "{}", page.html());
        // A burst has no seconds.
        page.on(LiveEvent::Measuring(Box::new(LiveMeasurement { lasts: None, ..measurement(0) })));
        page.on(LiveEvent::Second(None, 0.5));
        assert!(!page.html().contains("<figure"));
    }

    #[test]
    fn page_is_text_of_its_title_and_is_rendered_once_for_a_change() {
        let mut page = LivePage::new("<b>", 1);
        let first = page.html();
        assert!(first.contains("&lt;b&gt;") && !first.contains("<b>"));
        assert!(Arc::ptr_eq(&first, &page.html()));
        page.on(LiveEvent::Checking { place: "a".to_owned() });
        assert!(page.html().contains("check of a"));
    }
}
