use proptest::prelude::*;

use super::*;
use crate::policy::testing::{Lines, head};

fn vary(value: &str) -> Vary {
    Vary::of(&head(&[("vary", value)]))
}

fn selects_same(vary: &Vary, one: &HeaderMap, other: &HeaderMap) -> bool {
    let (there, back) =
        (vary.matches(&vary.selecting(one), other), vary.matches(&vary.selecting(other), one));
    assert_eq!(there, back);
    assert_eq!(there, vary.selecting(one) == vary.selecting(other));
    there
}

/// http-tests: `vary-parse`.
#[test]
fn parsed_field_names() {
    for any in ["*", "*, *", ", *", "*, Foo", "Foo, *", "Foo Bar", "Foo,\"*\""] {
        assert_eq!(vary(any), Vary::Any, "{any}");
    }
    assert_eq!(Vary::of(&head(&[("vary", ""), ("vary", "*")])), Vary::Any);
    assert_eq!(Vary::of(&head(&[("vary", "*"), ("vary", "*")])), Vary::Any);
    assert_eq!(Vary::of(&HeaderMap::new()), Vary::None);
    assert_eq!(vary(" , "), Vary::None);
    let names: Vec<_> = vary("Foo, bar,FOO").fields().iter().map(|name| name.as_str().to_owned()).collect();
    assert_eq!(names, ["bar", "foo"]);
    assert_eq!(vary("Foo, Bar"), vary("bar,foo"));
    let many: Vec<String> = (0..40).map(|number| format!("x-{number}")).collect();
    assert_eq!(vary(&many.join(",")), Vary::Any);
    assert_eq!(vary(&many[..FIELDS_MAX].join(",")).fields().len(), FIELDS_MAX);
}

/// http-tests: `vary`.
#[test]
fn matching_requests() {
    let one = [("foo", "1")];
    let three = [("foo", "1"), ("bar", "abc"), ("baz", "789")];
    let table: [(&str, Lines<'_>, Lines<'_>, bool); 14] = [
        ("Foo", &one, &one, true),
        ("Foo", &one, &[("foo", "2")], false),
        ("Foo", &one, &[], false),
        ("Foo", &[], &[], true),
        ("Foo", &[("foo", "")], &[], false),
        ("Foo", &[("foo", "1"), ("other", "2")], &[("foo", "1"), ("other", "3")], true),
        ("Foo, Bar, Baz", &three, &three, true),
        ("Foo, Bar, Baz", &three, &[("foo", "1"), ("baz", "789"), ("bar", "abcde")], false),
        ("Foo, Bar, Baz", &[("foo", "1"), ("baz", "789")], &[("baz", "789"), ("foo", "1")], true),
        ("Foo, Bar", &[("foo", "1")], &[("bar", "1")], false),
        ("Foo", &[("foo", "1, 2")], &[("foo", "1"), ("foo", "2")], true),
        ("Foo", &[("foo", "1,2")], &[("foo", " 1, 2 ")], true),
        ("Foo", &[("foo", "1,2")], &[("foo", "2,1")], false),
        ("Foo", &[("foo", "a\" , \"b")], &[("foo", "a\",\"b")], false),
    ];
    for (fields, one, other, expected) in table {
        assert_eq!(
            selects_same(&vary(fields), &head(one), &head(other)),
            expected,
            "{fields} {one:?} {other:?}"
        );
    }
    assert!(Vary::None.matches(&SelectingValues::default(), &head(&one)));
    assert!(!Vary::Any.matches(&Vary::Any.selecting(&head(&one)), &head(&one)));
}

#[test]
fn weighted_choices_are_normalised() {
    for (field, one, other, expected) in [
        ("accept-language", "en, de", "de, en", true),
        ("accept-language", "en, de", "eN, De", true),
        ("accept-language", "en, de", " en ,   de", true),
        ("accept-language", "en, de", "en, de;q=1.0", true),
        ("accept-language", "en, de", "en, de;q=0.9", false),
        ("accept-language", "en;q=0.50", "en ; Q=0.5", true),
        ("accept-language", "en;q=1.5", "en", false),
        // A weight has three digits at most: origins may read a longer one in different ways.
        ("accept-language", "en, de;q=0.501", "en, de;q=0.5", false),
        ("accept-language", "en, de;q=0.5000", "en, de;q=0.5", false),
        ("accept-language", "en, en", "en", true),
        ("accept-language", "en, de;q=0", "en", false),
        ("accept-encoding", "gzip, br", "br,gzip", true),
        ("accept-encoding", "gzip", "x-gzip", true),
        ("accept-encoding", "gzip, br", "gzip", false),
        ("accept-encoding", "gzip, br;q=0", "gzip", true),
        ("accept-encoding", "gzip, br;q=0, *", "gzip, *", false),
        ("accept-encoding", "gzip, identity;q=0", "gzip", false),
        ("accept-encoding", "", "br;q=0", true),
        ("accept", "text/html, */*;q=0.8", "*/*; q=0.8, TEXT/html", true),
        ("accept", "text/html;level=1", "text/html", false),
        ("accept", "text/html;level=1", "text/html; level=1", true),
        ("accept", "text/html;a=\"x;  y\"", "text/html;a=\"x; y\"", false),
        ("user-agent", "a, b", "a,b", false),
        ("cookie", "a=1,2", "a=1, 2", false),
    ] {
        let (one, other) = (head(&[(field, one)]), head(&[(field, other)]));
        assert_eq!(selects_same(&vary(field), &one, &other), expected, "{field} {one:?} {other:?}");
    }
    // An HTTP/2 client may send each cookie in a line of its own.
    let (crumbs, whole) = (head(&[("cookie", "a=1"), ("cookie", "b=2")]), head(&[("cookie", "a=1; b=2")]));
    assert!(selects_same(&vary("cookie"), &crumbs, &whole));
    let many = vec!["en"; CHOICES_MAX + 1].join(",");
    assert!(!selects_same(
        &vary("accept-language"),
        &head(&[("accept-language", &many)]),
        &head(&[("accept-language", "en")])
    ));
}

#[test]
fn values_of_two_fields_do_not_mix() {
    let both = vary("a, b");
    assert!(!selects_same(&both, &head(&[("a", "1"), ("b", "")]), &head(&[("a", ""), ("b", "1")])));
    assert!(!selects_same(&both, &head(&[("a", "1")]), &head(&[("a", "1"), ("b", "")])));
}

proptest! {
    #[test]
    fn order_of_choices_does_not_matter(mut choices in prop::collection::vec("[a-z]{1,3}(;q=0(\\.[0-9]{1,3})?)?", 0..10), turn: prop::sample::Index) {
        let before = head(&[("accept-language", &choices.join(", "))]);
        if !choices.is_empty() {
            let turn = turn.index(choices.len());
            choices.rotate_left(turn);
        }
        let after = head(&[("accept-language", &choices.join(" ,"))]);
        prop_assert!(selects_same(&vary("accept-language"), &before, &after));
    }

    #[test]
    fn each_value_matches_itself(one in "[ -~]{0,40}", other in "[ -~]{0,40}") {
        for name in ["accept", "accept-encoding", "accept-language", "cookie", "foo"] {
            let (vary, one, other) = (vary(name), head(&[(name, &one)]), head(&[(name, &other)]));
            prop_assert!(selects_same(&vary, &one, &one));
            let _ = selects_same(&vary, &one, &other);
        }
        let _ = Vary::of(&head(&[("vary", &one), ("vary", &other)]));
    }

    /// Values that differ in more than white space and commas do not match.
    #[test]
    fn other_differences_are_kept(one in "[a-z,= \"]{0,20}", other in "[a-z,= \"]{0,20}") {
        let bare = |value: &str| value.replace([',', ' '], "");
        if bare(&one) != bare(&other) {
            prop_assert!(!selects_same(&vary("foo"), &head(&[("foo", &one)]), &head(&[("foo", &other)])));
        }
    }
}
