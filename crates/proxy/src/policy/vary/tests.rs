use proptest::prelude::*;

use super::*;
use crate::policy::testing::{Lines, head};

fn vary(value: &str) -> Vary {
    Vary::of(&head(&[("vary", value)]))
}

fn is_one(vary: &Vary, one: &HeaderMap, other: &HeaderMap) -> bool {
    let (there, back) =
        (vary.matches(&vary.selecting(one), other), vary.matches(&vary.selecting(other), one));
    assert_eq!(there, back);
    assert_eq!(there, vary.selecting(one) == vary.selecting(other));
    there
}

/// The suite's `vary-parse`.
#[test]
fn what_it_names() {
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
    assert_eq!(vary(&many[..FIELDS_MOST].join(",")).fields().len(), FIELDS_MOST);
}

/// The suite's `vary`.
#[test]
fn what_matches() {
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
        assert_eq!(is_one(&vary(fields), &head(one), &head(other)), expected, "{fields} {one:?} {other:?}");
    }
    assert!(Vary::None.matches(&Selecting::default(), &head(&one)));
    assert!(!Vary::Any.matches(&Vary::Any.selecting(&head(&one)), &head(&one)));
}

#[test]
fn choices() {
    for (field, one, other, expected) in [
        ("accept-language", "en, de", "de, en", true),
        ("accept-language", "en, de", "eN, De", true),
        ("accept-language", "en, de", " en ,   de", true),
        ("accept-language", "en, de", "en, de;q=1.0", true),
        ("accept-language", "en, de", "en, de;q=0.9", false),
        ("accept-language", "en;q=0.50", "en ; Q=0.5", true),
        ("accept-language", "en;q=1.5", "en", false),
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
        assert_eq!(is_one(&vary(field), &one, &other), expected, "{field} {one:?} {other:?}");
    }
    // An HTTP/2 client may send each cookie in a line of its own.
    let (crumbs, whole) = (head(&[("cookie", "a=1"), ("cookie", "b=2")]), head(&[("cookie", "a=1; b=2")]));
    assert!(is_one(&vary("cookie"), &crumbs, &whole));
    let many = vec!["en"; CHOICES_MOST + 1].join(",");
    assert!(!is_one(
        &vary("accept-language"),
        &head(&[("accept-language", &many)]),
        &head(&[("accept-language", "en")])
    ));
}

#[test]
fn values_are_kept_apart() {
    let both = vary("a, b");
    assert!(!is_one(&both, &head(&[("a", "1"), ("b", "")]), &head(&[("a", ""), ("b", "1")])));
    assert!(!is_one(&both, &head(&[("a", "1")]), &head(&[("a", "1"), ("b", "")])));
}

proptest! {
    #[test]
    fn the_order_of_choices_is_nothing(mut choices in prop::collection::vec("[a-z]{1,3}(;q=0(\\.[0-9]{1,3})?)?", 0..10), turn: prop::sample::Index) {
        let before = head(&[("accept-language", &choices.join(", "))]);
        if !choices.is_empty() {
            let turn = turn.index(choices.len());
            choices.rotate_left(turn);
        }
        let after = head(&[("accept-language", &choices.join(" ,"))]);
        prop_assert!(is_one(&vary("accept-language"), &before, &after));
    }

    #[test]
    fn any_value_selects_itself(one in "[ -~]{0,40}", other in "[ -~]{0,40}") {
        for name in ["accept", "accept-encoding", "accept-language", "cookie", "foo"] {
            let (vary, one, other) = (vary(name), head(&[(name, &one)]), head(&[(name, &other)]));
            prop_assert!(is_one(&vary, &one, &one));
            let _ = is_one(&vary, &one, &other);
        }
        let _ = Vary::of(&head(&[("vary", &one), ("vary", &other)]));
    }

    /// Two values that differ in more than white space and commas are told apart.
    #[test]
    fn nothing_else_is_lost(one in "[a-z,= \"]{0,20}", other in "[a-z,= \"]{0,20}") {
        let bare = |value: &str| value.replace([',', ' '], "");
        if bare(&one) != bare(&other) {
            prop_assert!(!is_one(&vary("foo"), &head(&[("foo", &one)]), &head(&[("foo", &other)])));
        }
    }
}
