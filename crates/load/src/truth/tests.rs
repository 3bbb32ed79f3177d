use stockade_record::statement::{
    BodyStatement, DELAY_FIELD, FieldStatement, OWNER_FIELD, STATEMENT_FIELD, TIME_FIELD, VARIANT_FIELD,
};

use super::*;

const MADE_S: u64 = 1_700_000_000;

/// An answer that was made at [`MADE_S`], with lifetimes of 10 s, 5 s and 20 s.
fn answer(sent_after_s: f64, age_s: Option<u64>) -> StatedAnswer {
    let freshness = Some(Freshness { lifetime_s: 10, stale_s: 5, stale_if_error_s: 20 });
    let body = Some(BodyStatement { bytes: 9, crc32: 7 });
    StatedAnswer {
        statement: Statement { status: 200, body, freshness },
        made: Duration::from_secs(MADE_S),
        delay: Duration::ZERO,
        owner: None,
        variant: None,
        has_validator: false,
        age_s,
        may_be_fallback: false,
        received: Duration::from_secs(MADE_S) + Duration::from_secs_f64(sent_after_s) + TOOK,
        purge_sent: None,
        body: Some((9, 7)),
    }
}

const TOOK: Duration = Duration::from_millis(100);

fn finding(answer: &StatedAnswer, status: u16, violation: Violation) -> Option<bool> {
    answer.findings(status, TOOK).0[violation as usize]
}

#[test]
fn answer_is_too_old_after_its_lifetime_and_the_stale_time_that_is_allowed() {
    let of = |sent_after_s, change: fn(&mut StatedAnswer)| {
        let mut answer = answer(sent_after_s, None);
        change(&mut answer);
        finding(&answer, 200, Violation::TooOld)
    };
    let unchanged = |_: &mut StatedAnswer| {};
    for (sent_after_s, expected) in [(0.0, false), (10.0, false), (16.2, false), (16.3, true)] {
        assert_eq!(of(sent_after_s, unchanged), Some(expected), "{sent_after_s}");
    }
    // The time of an error counts only if the answer could be one.
    assert_eq!(of(20.0, |answer| answer.may_be_fallback = true), Some(false));
    assert_eq!(of(31.3, |answer| answer.may_be_fallback = true), Some(true));
    // A cache counts from when it has the response.
    assert_eq!(of(20.0, |answer| answer.delay = Duration::from_secs(4)), Some(false));
    // The answer to a request from before it was made.
    assert_eq!(of(0.0, |answer| answer.made += Duration::from_mins(1)), Some(false));
    assert_eq!(of(99.0, |answer| answer.statement.freshness = None), None);
    let forbidden = |answer: &mut StatedAnswer| answer.statement.freshness = Some(Freshness::default());
    assert_eq!([of(1.2, forbidden), of(1.3, forbidden)], [Some(false), Some(true)]);
}

#[test]
fn age_is_missing_or_wrong_by_more_than_two_seconds() {
    for (sent_after_s, age_s, expected) in [
        (0.0, None, false),
        (2.0, None, false),
        (2.1, None, true),
        (9.0, Some(9), false),
        (9.0, Some(7), false),
        (9.0, Some(6), true),
        (9.0, Some(11), false),
        (9.0, Some(12), true),
    ] {
        let found = finding(&answer(sent_after_s, age_s), 200, Violation::AgeWrong);
        assert_eq!(found, Some(expected), "{sent_after_s} {age_s:?}");
    }
    let delayed = StatedAnswer { delay: Duration::from_secs(4), ..answer(9.0, Some(4)) };
    assert_eq!(finding(&delayed, 200, Violation::AgeWrong), Some(false));
    assert_eq!(finding(&StatedAnswer { age_s: Some(2), ..delayed }, 200, Violation::AgeWrong), Some(true));
}

#[test]
fn answer_that_may_have_been_validated_is_judged_by_an_age_that_is_true() {
    let with_validator = |sent_after_s, age_s| {
        let answer = StatedAnswer { has_validator: true, ..answer(sent_after_s, age_s) };
        [Violation::TooOld, Violation::AgeWrong].map(|violation| finding(&answer, 200, violation))
    };
    assert_eq!(with_validator(60.0, None), [None, Some(false)], "validated, with the first fields");
    assert_eq!(with_validator(60.0, Some(3)), [None, Some(false)]);
    assert_eq!(with_validator(60.0, Some(60)), [Some(true), Some(false)]);
    assert_eq!(with_validator(9.0, Some(9)), [Some(false), Some(false)]);
    assert_eq!(with_validator(9.0, Some(60)), [None, Some(true)], "older than its first response");
}

#[test]
fn response_from_before_an_answered_purge_is_false() {
    let purged_after = |ms: u64, change: fn(&mut StatedAnswer)| {
        let purge_sent = Some(Duration::from_secs(MADE_S) + Duration::from_millis(ms));
        let mut answer = StatedAnswer { purge_sent, ..answer(5.0, None) };
        change(&mut answer);
        finding(&answer, 200, Violation::AfterPurge)
    };
    let unchanged = |_: &mut StatedAnswer| {};
    assert_eq!(finding(&answer(5.0, None), 200, Violation::AfterPurge), None);
    assert_eq!([purged_after(1, unchanged), purged_after(2, unchanged)], [Some(false), Some(true)]);
    // The origin responded after the purge.
    assert_eq!(purged_after(4_000, |answer| answer.delay = Duration::from_secs(4)), Some(false));
    // It may have been validated since.
    assert_eq!(purged_after(4_000, |answer| answer.has_validator = true), None);
    let not_validated = |answer: &mut StatedAnswer| (answer.has_validator, answer.age_s) = (true, Some(5));
    assert_eq!(purged_after(4_000, not_validated), Some(true));
}

#[test]
fn body_is_compared_by_its_length_and_its_checksum() {
    use Violation::{Truncated, WrongBody};
    for (body, status, truncated, wrong) in [
        (Some((9, 7)), 200, Some(false), Some(false)),
        (Some((8, 7)), 200, Some(true), Some(false)),
        (Some((9, 8)), 200, Some(false), Some(true)),
        (Some((10, 7)), 200, Some(false), Some(true)),
        (Some((4, 1)), 206, None, None),
        (None, 200, None, None),
    ] {
        let answer = StatedAnswer { body, ..answer(0.0, None) };
        let found = [Truncated, WrongBody].map(|violation| finding(&answer, status, violation));
        assert_eq!(found, [truncated, wrong], "{body:?} {status}");
    }
}

#[test]
fn response_to_another_user_or_of_another_variant_is_false() {
    use Violation::{WrongOwner, WrongVariant};
    let field = |stated, sent_crc32| {
        Some(ComparedField {
            stated: FieldStatement { name: "cookie".into(), values_crc32: stated },
            sent_crc32,
        })
    };
    for (stated, sent, foreign, other_variant) in [
        (Some(1), Some(1), false, false),
        (Some(1), Some(2), true, true),
        (Some(1), None, true, true),
        (None, Some(2), false, true),
        (None, None, false, false),
    ] {
        let answer =
            StatedAnswer { owner: field(stated, sent), variant: field(stated, sent), ..answer(0.0, None) };
        let found = [WrongOwner, WrongVariant].map(|violation| finding(&answer, 200, violation));
        assert_eq!(found, [Some(foreign), Some(other_variant)], "{stated:?} {sent:?}");
    }
    let found = [WrongOwner, WrongVariant].map(|violation| finding(&answer(0.0, None), 200, violation));
    assert_eq!(found, [None, None], "a page for all");
}

#[test]
fn status_is_the_one_that_the_origin_sent() {
    for (stated, status, expected) in [
        (200, 200, false),
        (200, 206, false),
        (200, 304, false),
        (200, 404, true),
        (404, 404, false),
        (404, 200, true),
        (503, 206, true),
    ] {
        let statement = Statement { status: stated, ..answer(0.0, None).statement };
        let answer = StatedAnswer { statement, ..answer(0.0, None) };
        assert_eq!(finding(&answer, status, Violation::WrongStatus), Some(expected), "{stated} {status}");
    }
}

#[test]
fn answer_without_a_valid_statement_is_not_checked() {
    let time = (TIME_FIELD, "1700000000.5");
    let sent = (STATEMENT_FIELD, "200 9 7 10 5 20");
    let read = |fields: &[(&str, &'static str)]| {
        let mut of = StatementFields::default();
        fields.iter().for_each(|(name, value)| of.record(name, value.as_bytes()));
        of.stated(|| Some(3), true)
    };
    assert_eq!(read(&[]), None);
    assert_eq!(read(&[time]), None, "only the time");
    assert_eq!(read(&[sent]), None);
    assert_eq!(read(&[(TIME_FIELD, "-1"), sent]), None);
    assert_eq!(read(&[time, (STATEMENT_FIELD, "200")]), None);
    let whole = read(&[time, sent, (DELAY_FIELD, "1.5"), ("ETag", "\"a\"")]).unwrap();
    assert_eq!(whole.made, Duration::from_millis(1_700_000_000_500));
    assert_eq!((whole.delay, whole.has_validator), (Duration::from_millis(1_500), true));
    assert!(read(&[time, sent, ("last-modified", "x")]).unwrap().has_validator);
    assert!(!read(&[time, sent, ("cache-control", "x")]).unwrap().has_validator);
    let fields = read(&[time, sent, (OWNER_FIELD, "cookie 0a"), (VARIANT_FIELD, "x-kind -")]).unwrap();
    let crc32s = [fields.owner, fields.variant].map(|field| field.unwrap().stated.values_crc32);
    assert_eq!(crc32s, [Some(10), None]);
    assert_eq!(read(&[time, sent, (OWNER_FIELD, "cookie")]).unwrap().owner, None);
}

#[test]
fn kinds_that_applied_are_counted_and_the_first_example_stays() {
    let mut tally = AnswerTally::default();
    assert_eq!(tally.audit(), None);
    let (good, old) = (answer(0.0, None), answer(60.0, Some(60)));
    for (answer, request) in [(good, "GET /good"), (old.clone(), "GET /old"), (old, "GET /later")] {
        tally.record(&answer, 200, TOOK);
        tally.explain(&answer, 200, TOOK, || request.to_owned());
    }
    let mut all = AnswerTally::default();
    all.merge(&tally);
    all.merge(&tally);
    let audit = all.audit().unwrap();
    assert_eq!(audit.count(Violation::TooOld), Some(4));
    assert_eq!(audit.count(Violation::AgeWrong), Some(0));
    for absent in [Violation::AfterPurge, Violation::WrongOwner, Violation::WrongVariant] {
        assert_eq!(audit.count(absent), None);
    }
    let example = Example {
        request: "GET /old".to_owned(),
        answer: "status 200, 60.0 s old when it was requested, `Age: 60`".to_owned(),
        rule: "the origin allows 15 s (RFC 9111, 4.2; RFC 5861)".to_owned(),
    };
    assert_eq!(audit.examples, [(Violation::TooOld, example)].into());
}
