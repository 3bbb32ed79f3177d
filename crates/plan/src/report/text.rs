//! For a terminal: the facts, the curves, the block to copy. No line is longer than [`COLUMNS`].

use std::{fmt::Write as _, iter};

use stockade_model::message::{columns, wrapped};

use super::{
    CachePlan, answer, cache_block, curve_heading, curve_table, facts, notes, outlook, route_block,
    sentences, strategies_heading, strategies_table, traffic,
};

/// The columns of a terminal that is not made wider.
pub(super) const COLUMNS: usize = 80;

pub(super) fn render(plan: &CachePlan) -> String {
    let facts = facts(plan);
    let label = facts.iter().map(|(label, _)| columns(label)).max().unwrap_or(0);
    let mut text = String::new();
    for (name, fact) in &facts {
        let head = format!("{name:<label$}  ");
        text += &hanging(&head, fact, &" ".repeat(label + 2));
    }
    if !facts.is_empty() {
        text.push('\n');
    }
    text += &paragraph(&answer(plan));
    text.push('\n');
    sentences(plan).for_each(|sentence| text += &paragraph(&sentence));
    notes(plan).iter().for_each(|note| text += &hanging("- ", note, "  "));
    let traffic = traffic::text(plan);
    if !traffic.is_empty() {
        let _ = write!(text, "\n{traffic}");
    }
    let mut table = |heading: &str, table: &str| {
        let _ = write!(text, "\n{}\n{table}", paragraph(heading));
    };
    for lifetime in &plan.settings.lifetimes {
        let heading = curve_heading(plan, "Hit ratio in percent", *lifetime);
        table(&heading, &curve_table(plan, *lifetime).text());
    }
    if let Some(conditions) = outlook::table(plan) {
        table(outlook::HEADING, &conditions.text());
    }
    if let Some(runs) = &plan.strategies {
        table(&strategies_heading(runs), &strategies_table(runs).text());
    }
    if let Ok(recommendation) = &plan.recommendation {
        if let Some(route) = route_block(plan) {
            let _ =
                write!(text, "\n# For the configuration of the proxy, with the [cache] table below\n{route}");
        }
        let _ = write!(text, "\n{}", cache_block(recommendation));
    }
    text
}

/// A text in lines.
pub(super) fn paragraph(text: &str) -> String {
    hanging("", text, "")
}

/// A text in lines, the first of them after `head`, the others after `indent`.
pub(super) fn hanging(head: &str, text: &str, indent: &str) -> String {
    // A number keeps its percent sign.
    let lines = wrapped(&text.replace(" %", "\u{a0}%"), COLUMNS - columns(head).max(columns(indent)));
    let heads = iter::once(head).chain(iter::repeat(indent));
    let line =
        |(head, line): (&str, String)| format!("{head}{line}").replace('\u{a0}', " ").trim_end().to_owned();
    heads.zip(lines).map(|both| line(both) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stockade_cache::{PRESETS, Seed};

    use super::*;
    use crate::{
        Capacity, POLICIES, PlanOptions, TtlOption, Warmup,
        outlook::outlook,
        read::KeyRules,
        report::{FORMATS, StrategyRuns},
        strategies::{BusiestRequests, Candidate, OriginModel, run},
        testing,
    };

    /// Half an hour of a server with these hosts, paths and user agents.
    fn log(host: &str, path: &str, agent: &str) -> String {
        let mut log = String::new();
        for n in 0..3_600_u32 {
            let (status, bytes) = if n % 50 == 0 { (404, 9) } else { (200, 2_000_000 + n % 7) };
            let line = serde_json::json!({
                "ts": 1_760_000_000.5 + f64::from(n) / 2.0,
                "method": if n % 90 == 0 { "POST" } else { "GET" },
                "host": format!("{host}{}", n % 3),
                "uri": format!("{path}{}?q={}", n % 40, n % 5),
                "status": status,
                "body_bytes_sent": bytes,
                "user_agent": if n % 2 == 0 { agent } else { "Mozilla/5.0" },
            });
            let _ = writeln!(log, "{line}");
        }
        log
    }

    fn planned(log: &str, options: &PlanOptions) -> CachePlan {
        let rules = KeyRules { by_host: true, ..KeyRules::default() };
        let mut plan = testing::planned(log, None, &rules, options).expect("a plan");
        plan.log = format!("/var/log/{}/access.log", "a-long-name/".repeat(12));
        plan.outlook = outlook(&plan, 2.0);
        let origin = OriginModel {
            latency: Duration::from_millis(20).into(),
            capacity: None,
            outage: Duration::from_mins(1),
        };
        let busiest = BusiestRequests::from_trace(&plan.trace, &origin);
        let candidates: Vec<Candidate> = PRESETS.iter().map(Candidate::Preset).collect();
        let chosen = plan.recommendation.as_ref().expect("a cache");
        let figures = run(&busiest, &candidates, chosen, &origin, Seed(1)).expect("sound strategies");
        plan.strategies =
            Some(StrategyRuns { requests: busiest.requests(), span: busiest.span(), origin, figures });
        plan
    }

    #[test]
    fn rates_have_two_digits() {
        for (per_second, expected) in [
            (0.0, "0.0"),
            (0.0004, "0.0"),
            (0.012, "0.012"),
            (0.05, "0.05"),
            (0.1, "0.1"),
            (0.167, "0.17"),
            (0.996, "1.0"),
            (9.96, "10.0"),
            (1_234.4, "1,234"),
        ] {
            assert_eq!(super::super::rate(per_second), expected);
        }
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let all = PlanOptions { policies: POLICIES.iter().collect(), ..testing::options() };
        let short = PlanOptions {
            memory: Some(Capacity::Bytes(123_456_789)),
            ttls: vec![
                TtlOption::Fixed(Duration::from_millis(12_345)),
                TtlOption::Fixed(Duration::from_hours(1)),
            ],
            warmup: Warmup::default(),
            max_object: Some(100 << 20),
            ..all.clone()
        };
        let long = "a-rather-long-segment-of-a-path/".repeat(9);
        for (host, path, agent) in [
            ("example.org", "/page/", "ExampleBot/1.0"),
            (
                &*format!("{}.example.org", "host.".repeat(20)),
                &*format!("/{long}"),
                "Bot with a long name/1.0",
            ),
            ("\u{6771}\u{4eac}.example", &*format!("/{}/", "\u{6771}\u{4eac}".repeat(40)), "\u{202e}bot"),
        ] {
            for options in [&all, &short] {
                let plan = planned(&log(host, path, agent), options);
                let text = render(&plan);
                let wide = text.lines().find(|line| columns(line) > COLUMNS);
                assert_eq!(wide, None, "{text}");
            }
        }
    }

    /// In the words of a page a fact is the same as in the text.
    #[test]
    fn five_facts_come_first_in_each_format() {
        let plan = planned(&log("a", "/page/", "ExampleBot/1.0"), &testing::options());
        let facts = facts(&plan);
        let names = facts.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        let expected = [
            "Cache size",
            "Time to live (ttl)",
            "Origin load, warm cache",
            "Origin load, empty cache",
            "Another size",
        ];
        assert_eq!(names, expected);
        for format in FORMATS.parsed_names().filter(|format| *format != "json") {
            let page = testing::rendered(&plan, format);
            let body = page.find("<main>").map_or(&*page, |start| &page[start..]);
            let plain = body.split(['<', '>', '*', '#']).collect::<Vec<_>>().join(" ");
            let plain = plain.split_whitespace().collect::<Vec<_>>().join(" ");
            let mut from = 0;
            for (name, fact) in &facts {
                let at =
                    plain.find(fact.as_str()).unwrap_or_else(|| panic!("{format}: {name} {fact}: {plain}"));
                assert!(at > from && at < 900, "{format}: {name} at {at}: {plain}");
                from = at;
            }
            assert!(plain.find("Hit ratio in percent").is_none_or(|table| table > from), "{format}");
        }
    }
}
