//! Experiments that ask a question of an audit again: for minutes, with other settings, or in a pipeline. Pure.

use crate::{
    answer::Mark,
    compare::{EarlierAnswer, EarlierAudit},
    questions::STALE_ALLOWED,
};

/// The part of an experiment that belongs to a question.
struct Asked {
    question: &'static str,
    /// The values of `headers` and `stages` of the recipe.
    headers: &'static str,
    stages: &'static str,
    load: &'static str,
    text: &'static str,
    expect: &'static str,
}

/// The loads are those of the question, or last longer. Questions about owners, variants, broken bodies and purges have none: the origin
/// of an experiment serves the same page to all.
const EXPERIMENTS: &[Asked] = &[
    Asked {
        question: "herd.cold",
        headers: "max-age=60",
        stages: r#"{ at = 0, latency = "1s" }"#,
        load: "connections = 200\nduration    = \"3s\"",
        text: "the page is loaded once, or nearly so",
        expect: "mine.source_loads <= 3",
    },
    Asked {
        question: "herd.expired",
        headers: "max-age=1",
        stages: r#"{ at = 0, latency = "1s" }"#,
        load: "rate     = \"200/s\"\nduration = \"30s\"",
        text: "the origin gets a load for each expiry, not for each request",
        expect: "mine.source_loads <= 60",
    },
    Asked {
        question: "herd.uncacheable",
        headers: "no-store",
        stages: r#"{ at = 0, latency = "200ms" }"#,
        load: "connections = 50\nduration    = \"10s\"",
        text: "requests do not wait for one another",
        expect: "mine.response.p99 < 1s",
    },
    Asked {
        question: "herd.slow",
        headers: "max-age=60",
        stages: r#"{ at = 0, latency = "12s" }"#,
        load: "connections = 50\nduration    = \"15s\"\ntimeout     = \"30s\"",
        text: "a slow page is loaded once, or nearly so",
        expect: "mine.source_loads <= 3",
    },
    Asked {
        question: "outage.errors",
        headers: STALE_ALLOWED,
        stages: r#"{ at = 0 }, { at = "10s", status = 503 }, { at = "20s", status = 200 }"#,
        load: OUTAGE_LOAD,
        text: SERVED_TEXT,
        expect: SERVED,
    },
    Asked {
        question: "outage.reset",
        headers: STALE_ALLOWED,
        stages: r#"{ at = 0 }, { at = "10s", fault = "reset" }, { at = "20s", fault = {} }"#,
        load: OUTAGE_LOAD,
        text: SERVED_TEXT,
        expect: SERVED,
    },
    Asked {
        question: "outage.silence",
        headers: STALE_ALLOWED,
        stages: r#"{ at = 0 }, { at = "10s", fault = "silent" }, { at = "20s", fault = {} }"#,
        load: OUTAGE_LOAD,
        text: SERVED_TEXT,
        expect: SERVED,
    },
    Asked {
        question: "outage.slow",
        headers: STALE_ALLOWED,
        stages: r#"{ at = 0 }, { at = "10s", latency = "4s" }, { at = "20s", latency = 0 }"#,
        load: OUTAGE_LOAD,
        text: "requests do not wait for the slow origin",
        expect: "mine.response.p99(10s..20s) < 1s",
    },
    Asked {
        question: "outage.recovery",
        headers: "max-age=1, stale-if-error=60",
        stages: r#"{ at = 0 }, { at = "10s", status = 503 }, { at = "20s", status = 200 }"#,
        load: OUTAGE_LOAD,
        text: "the origin is asked again when it works",
        expect: "mine.source_loads(25s..30s) > 0",
    },
];

const OUTAGE_LOAD: &str = "rate     = \"50/s\"\nduration = \"30s\"\ntimeout  = \"5s\"";
const SERVED_TEXT: &str = "stale pages bridge the outage";
const SERVED: &str = "mine.success(10s..20s) > 0.95";

/// An answer has no experiment.
#[derive(Debug, thiserror::Error)]
pub enum NoExperiment {
    #[error("the audit has no answer `{0}`; it has {1}")]
    NotAsked(String, String),
    #[error(
        "no experiment can ask `{0}`: its origin serves the same page to all; these questions have one: {1}"
    )]
    NotServable(String, String),
    #[error("the audit has no answer that an experiment can ask; these questions have one: {0}")]
    NoAnswer(String),
}

/// The experiment of an answer of an audit. Without an id: of the worst answer that has one.
///
/// # Errors
/// The question was not asked, or no experiment can ask it.
pub fn experiment(audit: &EarlierAudit, id: Option<&str>) -> Result<String, NoExperiment> {
    let known = || joined(EXPERIMENTS.iter().map(|asked| asked.question));
    let with_id = |id: &str| audit.answers.iter().find(|answer| answer.id == id);
    let Some(id) = id else {
        let asked = EXPERIMENTS.iter().filter_map(|asked| Some((with_id(asked.question)?, asked)));
        // The marks are in the order from best to wrong, and unknown.
        let rank = |answer: &EarlierAnswer| Some(answer.mark).filter(|mark| *mark != Mark::Unknown);
        let worst = asked.rev().max_by_key(|(answer, _)| rank(answer));
        return worst
            .map(|(answer, asked)| text(audit, answer, asked))
            .ok_or_else(|| NoExperiment::NoAnswer(known()));
    };
    let answer = with_id(id).ok_or_else(|| {
        NoExperiment::NotAsked(id.to_owned(), joined(audit.answers.iter().map(|answer| answer.id.as_str())))
    })?;
    let asked = EXPERIMENTS.iter().find(|asked| asked.question == id);
    let asked = asked.ok_or_else(|| NoExperiment::NotServable(id.to_owned(), known()))?;
    Ok(text(audit, answer, asked))
}

fn joined<'a>(ids: impl Iterator<Item = &'a str>) -> String {
    ids.collect::<Vec<_>>().join(", ")
}

fn text(audit: &EarlierAudit, answer: &EarlierAnswer, asked: &Asked) -> String {
    let Asked { question, headers, stages, load, text, expect } = asked;
    let [title, said, url, origin] = [&answer.question, &answer.answer, &audit.url, &audit.origin]
        .map(|value| value.replace(['\n', '"'], " "));
    let mark = answer.mark.name();
    format!(
        "#:schema ./experiment.schema.json

# The question `{question}` of an audit, whose answer was {mark}: {said}
# `stockade check FILE` starts the cache once and shows what a run takes, `stockade run FILE` runs it.

title = \"{title}\"

# Where the cache forwards to.
[origin]
listen = \"{origin}\"
recipe = [{{ route = \"/*\", random_content = \"4kb\", headers = {{ cache-control = \"{headers}\" }}, stages = [
    {stages}
] }}]

[load]
{load}
path = \"/page\"

[[arm]]
name = \"mine\"
target.url = \"{url}\"
# Started for each measurement, in the folder of this file:
# target.command = \"nginx -p . -c nginx.conf -g 'daemon off;'\"
# A cache that runs already is emptied before each measurement:
# target.reset = {{ command = \"...\" }}

[[hypothesis]]
text   = \"{text}\"
expect = [\"{expect}\"]
"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn audit() -> EarlierAudit {
        let answer =
            |id, mark| json!({"id": id, "mark": mark, "question": "A \"page\"", "answer": "It\nis."});
        let record = json!({
            "schema": crate::report::SCHEMA, "cache": {}, "url": "http://127.0.0.1:8080", "origin": "127.0.0.1:9080",
            "answers": [answer("herd.cold", "best"), answer("outage.slow", "weak"), answer("keys.host", "wrong")],
        });
        record.to_string().parse().unwrap()
    }

    #[test]
    fn worst_answer_with_an_experiment_is_taken() {
        let text = experiment(&audit(), None).unwrap();
        assert!(text.contains("`outage.slow` of an audit, whose answer was weak: It is."), "{text}");
        assert!(text.contains("listen = \"127.0.0.1:9080\"") && text.contains("A  page "), "{text}");
        assert!(experiment(&audit(), Some("herd.cold")).unwrap().contains("source_loads <= 3"));
    }

    #[test]
    fn answers_without_an_experiment_are_named() {
        let message = |id| experiment(&audit(), Some(id)).unwrap_err().to_string();
        assert!(message("herd.slow").contains("it has herd.cold, outage.slow, keys.host"));
        assert!(message("keys.host").contains("have one: herd.cold, herd.expired"));
    }

    #[test]
    fn each_experiment_is_of_a_question() {
        for asked in EXPERIMENTS {
            assert!(crate::questions().any(|question| question.id == asked.question), "{}", asked.question);
        }
    }
}
