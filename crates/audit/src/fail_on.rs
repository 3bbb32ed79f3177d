//! The answers that fail an audit. Pure.

use std::str::FromStr;

use stockade_model::nearest::remedy;

use crate::{
    answer::{Answer, Mark},
    compare::{AnswerChange, ChangeKind},
    questions::{Question, questions},
};

/// In words, for `--fail-on`.
const WORSE: &str = "worse";

/// The answers that fail an audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailingAnswer {
    /// This mark, or a worse one.
    Mark(Mark),
    /// A weak or wrong answer to the question with this id.
    Question(&'static str),
    /// A worse mark than in the earlier audit.
    Worse,
}

impl FailingAnswer {
    /// `change`: that of the question since an earlier audit, if there is one.
    pub(crate) fn has(&self, question: &Question, answer: &Answer, change: Option<&AnswerChange>) -> bool {
        let is_at_least = |mark| (mark..=Mark::Wrong).contains(&answer.mark);
        match self {
            Self::Mark(mark) => is_at_least(*mark),
            Self::Question(id) => question.id == *id && is_at_least(Mark::Weak),
            Self::Worse => change.is_some_and(|change| change.kind() == ChangeKind::Worse),
        }
    }
}

impl FromStr for FailingAnswer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let marks = [Mark::Weak, Mark::Wrong];
        if let Some(mark) = marks.into_iter().find(|mark| mark.name() == text) {
            return Ok(Self::Mark(mark));
        }
        if text == WORSE {
            return Ok(Self::Worse);
        }
        let mut ids = questions().map(|question| question.id);
        ids.clone().find(|id| *id == text).map(Self::Question).ok_or_else(|| {
            let names = marks.map(Mark::name).into_iter().chain([WORSE]).chain(&mut ids);
            format!(
                "`{text}` is neither a mark, nor `{WORSE}`, nor a question: {}",
                remedy(text, names.collect::<Vec<_>>())
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn answers_fail_by_their_mark_question_or_change() {
        let report = report();
        let (question, answer) =
            report.answers.iter().find(|(_, answer)| answer.mark == Mark::Weak).expect("a weak answer");
        let change = |was| AnswerChange {
            id: question.id.to_owned(),
            question: String::new(),
            was: Some(was),
            now: Some(answer.mark),
        };
        for (what, was, fails) in [
            ("weak", Mark::Weak, true),
            ("wrong", Mark::Best, false),
            ("herd.cold", Mark::Weak, true),
            ("herd.expired", Mark::Best, false),
            ("worse", Mark::Best, true),
            ("worse", Mark::Weak, false),
            ("worse", Mark::Wrong, false),
            ("worse", Mark::Unknown, false),
        ] {
            let failing: FailingAnswer = what.parse().unwrap();
            assert_eq!(failing.has(question, answer, Some(&change(was))), fails, "{what} {was:?}");
        }
        assert!(!FailingAnswer::Worse.has(question, answer, None));
    }

    #[test]
    fn misspelt_names_have_a_remedy() {
        for (text, remedy) in [("worze", "`worse`"), ("herd.colt", "`herd.cold`")] {
            let message = text.parse::<FailingAnswer>().unwrap_err();
            assert!(message.contains(remedy), "{message}");
        }
    }
}
