use super::Question;

pub(super) const QUESTIONS: &[Question] = &[];
