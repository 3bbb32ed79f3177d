//! `stockade load` in progress: state from its seconds, and lines from the state. Pure.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use console::Style;
use stockade_load::{generator::LoadProgress, plan::Plan};
use stockade_model::{
    outcome::Outcomes,
    units::{format_count, format_duration},
};

use super::{
    layout::{
        Paint, SEND_LAG_MIN, SPARKLINE_SECONDS_MAX, cut, outcomes, progress_bar, sides, sparkline,
        time_or_dash, whole_seconds,
    },
    screen::View,
};

/// The state of a load.
pub struct LoadView {
    plan: Plan,
    title: String,
    /// The end of the last second, since the start of the load; `None`: it connects.
    latest: Option<LatestSecond>,
    /// Of the last seconds.
    requests: VecDeque<u64>,
    /// Ended so far.
    total: u64,
    failed: u64,
    failed_by_class: BTreeMap<String, u64>,
    has_started: bool,
}

struct LatestSecond {
    /// When it was received.
    at: Duration,
    /// Its end, since the start of the load.
    end: Duration,
    is_warmup: bool,
    response: [Option<Duration>; 3],
    send_lag: Option<Duration>,
    statuses: BTreeMap<u16, u64>,
    outcomes: Outcomes,
}

impl LoadView {
    /// Before the start.
    pub fn new(plan: &Plan) -> Self {
        Self {
            title: plan.to_string(),
            plan: plan.clone(),
            latest: None,
            requests: VecDeque::with_capacity(SPARKLINE_SECONDS_MAX),
            total: 0,
            failed: 0,
            failed_by_class: BTreeMap::new(),
            has_started: false,
        }
    }

    pub fn start(&mut self) {
        self.has_started = true;
    }

    pub fn add(&mut self, second: &LoadProgress<'_>, now: Duration) {
        let LoadProgress { tally, requests, failed, .. } = *second;
        let (elapsed, is_warmup) = (second.elapsed(), second.is_warmup());
        if self.requests.len() == SPARKLINE_SECONDS_MAX {
            self.requests.pop_front();
        }
        self.requests.push_back(tally.requests());
        (self.total, self.failed) = (requests, failed);
        for (class, count) in tally.failed_by_class() {
            *self.failed_by_class.entry(class).or_default() += count;
        }
        let response = tally.latencies();
        self.latest = Some(LatestSecond {
            at: now,
            end: elapsed,
            is_warmup,
            response: [response.quantile(0.5), response.quantile(0.99), response.max()],
            send_lag: tally.times.send_lag.quantile(0.99),
            statuses: tally.status_codes.clone(),
            outcomes: tally.outcomes,
        });
    }

    fn head(&self, width: usize, now: Duration, paint: Paint) -> String {
        let Some(latest) = &self.latest else {
            let state = if self.has_started { "started" } else { "connecting" };
            return paint.apply(Style::new().bold(), &sides(&self.title, state, width));
        };
        let right = match self.plan.duration() {
            None => format!("{} requests", format_count(self.total)),
            Some(lasts) => {
                let left = lasts.saturating_sub(latest.end).saturating_sub(now.saturating_sub(latest.at));
                let left = match left {
                    Duration::ZERO => "waiting for answers".to_owned(),
                    left => format!("{} left", whole_seconds(left)),
                };
                let share = latest.end.as_secs_f64() / lasts.as_secs_f64();
                let bar = if width < 60 { String::new() } else { progress_bar(share, 20) + "  " };
                format!("{bar}{} of {}, {left}", whole_seconds(latest.end.min(lasts)), whole_seconds(lasts))
            }
        };
        paint.apply(Style::new().bold(), &sides(&self.title, &right, width))
    }

    /// The rate, and the one that the plan asks for in the last second.
    fn rate(&self, latest: &LatestSecond, width: usize, paint: Paint) -> String {
        let from = latest.end.saturating_sub(Duration::from_secs(1));
        let asked = self.plan.expected_requests(from, latest.end);
        let asked = asked.map(|requests| format!(", asked {requests:.0}")).unwrap_or_default();
        let seconds: Vec<_> = self.requests.iter().map(|requests| (Some(*requests), false)).collect();
        sparkline("requests", &seconds, &asked, width, paint)
    }
}

impl View for LoadView {
    fn lines(&self, width: usize, now: Duration, paint: Paint) -> Vec<String> {
        let mut lines = vec![self.head(width, now, paint)];
        let Some(latest) = &self.latest else { return lines };
        lines.push(self.rate(latest, width, paint));
        let [p50, p99, max] = latest.response.map(time_or_dash);
        lines.push(paint.row("response", &format!("p50 {p50}  p99 {p99}  max {max}"), width));
        let statuses = latest.statuses.iter().map(|(status, count)| match status {
            0 => format!("none {}", format_count(*count)),
            status => format!("{status} {}", format_count(*count)),
        });
        lines.push(paint.row("status", &statuses.collect::<Vec<_>>().join("  "), width));
        if latest.outcomes.reported() > 0 {
            lines.extend(outcomes(&latest.outcomes, width, paint));
        }
        let mut problems = Vec::new();
        if self.failed > 0 {
            let classes: Vec<_> = self
                .failed_by_class
                .iter()
                .map(|(class, count)| format!("{class}: {}", format_count(*count)))
                .collect();
            let [failed, total] = [self.failed, self.total].map(format_count);
            problems.push(format!("{failed} of {total} failed ({})", classes.join(", ")));
        }
        if let Some(lag) = latest.send_lag.filter(|lag| *lag >= SEND_LAG_MIN) {
            problems.push(format!("send lag p99 {}", format_duration(lag)));
        }
        if !problems.is_empty() {
            let problems = paint.apply(Style::new().yellow(), &problems.join("; "));
            lines.push(paint.row("problems", &problems, width));
        }
        if latest.is_warmup {
            lines.push(cut("warming up: these requests are not measured", width));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stockade_load::{generator::GeneratorSecond, schedule::Rate, tally::Tally};

    use super::*;

    const PLAIN: Paint = Paint { has_colors: false };

    fn view(seconds: &[(u64, bool)]) -> LoadView {
        let plan = Plan::constant("100/s".parse::<Rate>().unwrap(), Duration::from_mins(1)).unwrap();
        let mut view = LoadView::new(&plan);
        let (mut requests, mut failed) = (0, 0);
        for (index, (count, is_warmup)) in seconds.iter().enumerate() {
            let mut tally = Tally { successes: count - count / 10, ..Tally::default() };
            tally.status_codes = BTreeMap::from([(200, count - count / 10), (503, count / 10)]);
            tally.times.response.record(Duration::from_millis(12));
            tally.times.send_lag.record(Duration::from_millis(3));
            (requests, failed) = (requests + count, failed + count / 10);
            let mut second = GeneratorSecond { second: index as u64, ..GeneratorSecond::default() };
            if *is_warmup {
                second.warmup = tally.clone();
            }
            let progress = LoadProgress { second: &second, tally: &tally, requests, failed };
            view.add(&progress, progress.elapsed());
        }
        view
    }

    #[test]
    fn load_shows_rate_times_statuses_and_failures() {
        let lines =
            view(&[(50, false), (100, false), (90, false)]).lines(79, Duration::from_millis(3_400), PLAIN);
        insta::assert_snapshot!(lines.join("\n"), @r"
        60s at 100/s                        [#...................]  3s of 60s, 57s left
        requests                                              ▄██ 90/s, asked 100
        response p50 12ms  p99 12ms  max 12ms
        status   200 81  503 9
        problems 24 of 240 failed (status 503: 24); send lag p99 3ms
        ");
    }

    #[test]
    fn narrow_line_and_warmup() {
        let lines = view(&[(100, true)]).lines(39, Duration::from_secs(1), PLAIN);
        insta::assert_snapshot!(lines.join("\n"), @r"
        60s at 100/s        1s of 60s, 59s left
        requests        █ 100/s, asked 100
        response p50 12ms  p99 12ms  max 12ms
        status   200 90  503 10
        problems 10 of 100 failed (status 503:…
        warming up: these requests are not mea…
        ");
    }

    #[test]
    fn load_that_has_not_started_says_so() {
        let mut view = view(&[]);
        insta::assert_snapshot!(view.lines(39, Duration::ZERO, PLAIN).join("\n"), @"60s at 100/s                 connecting");
        view.start();
        assert!(view.lines(39, Duration::ZERO, PLAIN)[0].ends_with("started"));
    }
}
