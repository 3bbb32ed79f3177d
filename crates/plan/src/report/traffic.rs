//! The traffic of the log, in each format.

use std::fmt::Write as _;

use serde_json::{Value, json};
use stockade_model::{
    message::{columns, cut, printable},
    units::{format_count, format_size, ratio},
};

use super::{
    CachePlan, capacity_text, peak, percent,
    table::Table,
    text::{COLUMNS, paragraph},
};
use crate::traffic::{Count, Traffic, TrafficGroup};

/// A smaller share of the requests is not named in the text.
const SHARE_MIN: f64 = 0.005;
/// Rows of each kind in a table.
const ROWS_MAX: usize = 8;

impl Traffic {
    fn share(&self, count: Count) -> f64 {
        ratio(count.requests, self.all.requests).unwrap_or(0.0)
    }

    fn byte_share(&self, count: Count) -> f64 {
        ratio(count.bytes, self.all.bytes).unwrap_or(0.0)
    }

    /// The kinds that the log has, each with its groups.
    fn kinds(&self) -> Vec<(&'static str, &[TrafficGroup])> {
        let bots = self.bots.as_ref().map_or(&[][..], |(_, names)| names);
        let kinds = [
            ("bots", bots),
            ("routes", &self.routes),
            ("hosts", &self.hosts),
            ("types", &self.types),
            ("statuses", &self.statuses),
        ];
        kinds.into_iter().filter(|(_, groups)| !groups.is_empty()).collect()
    }
}

/// Nothing for a trace, whose requests have keys alone.
fn traffic(plan: &CachePlan) -> Option<&Traffic> {
    Some(&plan.traffic).filter(|traffic| !traffic.kinds().is_empty())
}

/// A line for each kind, of at most [`COLUMNS`].
pub(super) fn text(plan: &CachePlan) -> String {
    let Some(traffic) = traffic(plan) else { return String::new() };
    let mut text = paragraph(&heading(traffic));
    for (kind, groups) in traffic.kinds() {
        let mut line = format!("  {kind:<8}  ");
        if let (true, Some((bots, _))) = (kind == "bots", &traffic.bots) {
            let _ = write!(
                line,
                "{} of the requests, {} of the bytes: ",
                percent(traffic.share(*bots)),
                percent(traffic.byte_share(*bots))
            );
        }
        for (nth, group) in groups.iter().enumerate() {
            let share = traffic.share(group.count);
            let separator = if nth == 0 { "" } else { ", " };
            let next = format!("{separator}{} {}", group.name, percent(share));
            let is_long = columns(&line) + columns(&next) > COLUMNS;
            if nth > 0 && (is_long || share < SHARE_MIN) {
                break;
            }
            line += &next;
        }
        let _ = writeln!(text, "{}", cut(&printable(&line), COLUMNS));
    }
    text + &without_bots(plan).map_or(String::new(), |sentence| paragraph(&sentence))
}

fn heading(traffic: &Traffic) -> String {
    let about = match traffic.too_low_by {
        0 => String::new(),
        requests => format!("; counts are too low by {} at most", format_count(requests)),
    };
    let bytes = format_size(traffic.all.bytes as f64);
    format!("All {} requests of the log, {bytes}{about}:", format_count(traffic.all.requests))
}

/// The answer for the requests that are not by bots, in one sentence.
pub(super) fn without_bots(plan: &CachePlan) -> Option<String> {
    let chosen = plan.without_bots.as_ref()?;
    let about = if chosen.point.is_exact { "" } else { "about " };
    let mut text = format!(
        "Without the {} of requests by bots: {}, hit ratio {about}{}",
        percent(plan.traffic.bots_share()),
        capacity_text(chosen.capacity),
        percent(1.0 - chosen.point.miss_ratio)
    );
    if plan.has_times {
        let loads = peak(chosen.loads_per_s_in_busiest_minute);
        let _ = write!(text, ", {loads} requests a second to the origin at the busiest minute");
    }
    Some(text + ".")
}

/// The heading, the tables with their names, and the answer without bots.
pub(super) type Tables = (String, Vec<(&'static str, Table)>, Option<String>);

/// A heading, a table for each kind with its name, and the answer without bots.
pub(super) fn tables(plan: &CachePlan) -> Option<Tables> {
    let traffic = traffic(plan)?;
    let table = |(kind, groups): (&'static str, &[TrafficGroup])| {
        let row = |name: &str, count: Count| {
            vec![name.to_owned(), percent(traffic.share(count)), percent(traffic.byte_share(count))]
        };
        let mut rows: Vec<_> =
            groups.iter().take(ROWS_MAX).map(|group| row(&group.name, group.count)).collect();
        if let (true, Some((bots, _))) = (kind == "bots", &traffic.bots) {
            rows.insert(0, row("all bots", *bots));
        }
        (kind, Table { header: [kind, "requests", "bytes"].map(str::to_owned).to_vec(), rows })
    };
    Some((heading(traffic), traffic.kinds().into_iter().map(table).collect(), without_bots(plan)))
}

/// Counts of requests and bytes.
pub(super) fn json(plan: &CachePlan) -> Value {
    let traffic = &plan.traffic;
    let group = |group: &TrafficGroup| json!({ "name": group.name, "requests": group.count.requests, "bytes": group.count.bytes });
    let groups = |groups: &[TrafficGroup]| groups.iter().map(group).collect::<Value>();
    let mut json = json!({
        "requests": traffic.all.requests,
        "bytes": traffic.all.bytes,
        "too_low_by": traffic.too_low_by,
        "routes": groups(&traffic.routes),
        "hosts": groups(&traffic.hosts),
        "types": groups(&traffic.types),
        "statuses": groups(&traffic.statuses),
    });
    if let Some((bots, names)) = &traffic.bots {
        json["bots"] = json!({ "requests": bots.requests, "bytes": bots.bytes, "names": groups(names) });
    }
    json
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        PlanOptions, TtlOption,
        read::KeyRules,
        report::FORMATS,
        testing::{self, rendered},
    };

    /// Each second a person asks for one of ten pages, and a crawler for a page without other requests.
    fn half_by_bots() -> CachePlan {
        let mut log = String::new();
        for n in 0..1_000 {
            let time = format!("[31/Jan/2026:08:{:02}:{:02} +0000]", n / 60, n % 60);
            let _ = write!(
                log,
                "192.0.2.1 - - {time} \"GET /shop/{} HTTP/1.1\" 200 3000 \"-\" \"Mozilla/5.0 (X11; Linux x86_64)\"\n\
                 192.0.2.2 - - {time} \"GET /archive/{n}.html HTTP/1.1\" 200 1000 \"-\" \"Mozilla/5.0 (compatible; Googlebot/2.1)\"\n",
                n % 10
            );
        }
        let options =
            PlanOptions { ttls: vec![TtlOption::Fixed(Duration::from_hours(1))], ..testing::options() };
        testing::planned(&log, None, &KeyRules::default(), &options).expect("a plan")
    }

    #[test]
    fn traffic_and_the_answer_without_bots_are_shown() {
        let plan = half_by_bots();
        let point = |chosen: &crate::recommend::Recommendation| chosen.point.miss_ratio;
        let misses = (plan.recommendation.as_ref().map(point), plan.without_bots.as_ref().map(point));
        assert_eq!(misses, (Ok(1_010.0 / 2_000.0), Some(10.0 / 1_000.0)));
        assert_eq!(
            text(&plan),
            "All 2,000 requests of the log, 3.81 MiB:\n\
             \x20 bots      50.0 % of the requests, 25.0 % of the bytes: Googlebot 50.0 %\n\
             \x20 routes    /archive/* 50.0 %, /shop/* 50.0 %\n\
             \x20 types     .html 50.0 %, no ending 50.0 %\n\
             \x20 statuses  2xx 100.0 %\n\
             Without the 50.0 % of requests by bots: 64MiB, hit ratio 99.0 %, 0.17 requests a\n\
             second to the origin at the busiest minute.\n"
        );
        for format in FORMATS.parsed_names() {
            let page = rendered(&plan, format);
            assert!(page.contains("/archive/*") && page.contains("Googlebot"), "{format}");
        }
        let json: Value = serde_json::from_str(&rendered(&plan, "json")).expect("JSON");
        assert_eq!(json["traffic"]["bots"]["requests"], 1_000);
        assert_eq!(json["without_bots"]["hit_ratio"], 0.99);
    }

    #[test]
    fn lines_are_short_and_leave_out_small_parts() {
        let mut plan = half_by_bots();
        let group = |n: u64| TrafficGroup {
            name: format!("/a-rather-long-name-of-a-route-{n}/*"),
            count: Count { requests: 400 - 20 * n, bytes: 0 },
        };
        plan.traffic.routes = (0..5).map(group).collect();
        plan.traffic.hosts = vec![
            TrafficGroup { name: "x".repeat(100), count: Count { requests: 9, bytes: 0 } },
            TrafficGroup { name: "y".to_owned(), count: Count { requests: 9, bytes: 0 } },
        ];
        let text = text(&plan);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].ends_with("  /a-rather-long-name-of-a-route-0/* 20.0 %"), "{text}");
        assert!(lines.iter().all(|line| columns(line) <= COLUMNS), "{text}");
        // A name that is too long is cut, and the next one of less than half a percent is left out.
        assert!(lines[3].ends_with("xxx"), "{text}");
    }
}
