use proptest::prelude::*;

use super::*;
use crate::policy::testing::head;

fn response(value: &str) -> ResponseDirectives {
    ResponseDirectives::read(&head(&[("cache-control", value)]), &[])
}

fn targets() -> [HeaderName; 2] {
    [HeaderName::from_static("stockade-cache-control"), HeaderName::from_static("cdn-cache-control")]
}

#[expect(clippy::unnecessary_wraps, reason = "the type of the directives")]
fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

/// http-tests: `cc-parse` and `cc-freshness`.
#[test]
fn max_age() {
    for (value, expected) in [
        ("max-age=3600", seconds(3600)),
        ("MaX-aGe=3600", seconds(3600)),
        ("foobar, max-age=3600", seconds(3600)),
        ("max-age=1800, max-age=1", seconds(1)),
        ("max-age=1, max-age=1800", seconds(1)),
        ("max-age=\"3600\"", seconds(3600)),
        ("extension=\"max-age=3600\", max-age=1", seconds(1)),
        ("max-age=1, extension=\"max-age=3600\"", seconds(1)),
        ("extension=\"a, max-age=3600\"", None),
        ("max-age =3600", seconds(0)),
        ("max-age= 3600", seconds(0)),
        ("max-age=003600", seconds(3600)),
        ("max-age='3600'", seconds(0)),
        ("max-age=3600.0", seconds(0)),
        ("max-age=3600.5", seconds(0)),
        ("max-age=a3600", seconds(0)),
        ("max-age=3600a", seconds(0)),
        ("max-age=-3600", seconds(0)),
        ("max-age=", seconds(0)),
        ("max-age", seconds(0)),
        ("max-age=2147483648", seconds(1 << 31)),
        ("max-age=99999999999", seconds(1 << 31)),
        ("max-age;3600", None),
        ("", None),
    ] {
        assert_eq!(response(value).max_age, expected, "{value}");
    }
    let lines = head(&[("cache-control", "max-age=1800"), ("cache-control", "max-age=1")]);
    assert_eq!(ResponseDirectives::read(&lines, &[]).max_age, seconds(1));
    assert_eq!(response("max-age=1, s-maxage=3600").lifetime(), seconds(3600));
    assert_eq!(response("s-maxage=1, max-age=3600").lifetime(), seconds(1));
}

#[test]
fn no_store_no_cache_and_private() {
    assert!(response("No-StOrE").no_store);
    assert!(response("max-age=10000, no-store").no_store);
    assert!(response("x=\"never ends, no-store").no_store);
    assert!(!response("x=\"no-store\"").no_store);
    assert!(response("max-age=10000, No-CaChE").no_cache.is_whole());
    assert!(response("private, max-age=3600").private.is_whole());
    let (a, b) = (HeaderName::from_static("a"), HeaderName::from_static("b"));
    for (value, expected) in [
        ("no-cache=\"a\"", Scope::Fields(vec![a.clone()])),
        ("no-cache=\"A, b\"", Scope::Fields(vec![a.clone(), b.clone()])),
        ("no-cache=\"a\", no-cache=\"b\"", Scope::Fields(vec![a, b])),
        ("no-cache=b", Scope::Whole),
        ("no-cache=1", Scope::Whole),
        ("\"no-cache\"", Scope::Whole),
        ("no-cache=\"a\", no-cache", Scope::Whole),
        ("no-cache, no-cache=\"a\"", Scope::Whole),
        ("no-cache=\"\"", Scope::Whole),
        ("no-cache=\"a b\"", Scope::Whole),
        ("no-cache=", Scope::Whole),
        ("max-age=1", Scope::Nothing),
    ] {
        assert_eq!(response(value).no_cache, expected, "{value}");
    }
    let names: Vec<String> = (0..100).map(|number| format!("x-{number}")).collect();
    assert!(response(&format!("private=\"{}\"", names.join(","))).private.is_whole());
    let public = response("public, must-revalidate, immutable, must-understand, proxy-revalidate");
    assert!(public.public && public.must_revalidate && public.immutable);
    assert!(public.must_understand && public.proxy_revalidate);
    let doubtful = response("public=0, immutable=no, must-understand=?");
    assert!(!doubtful.public && !doubtful.immutable && !doubtful.must_understand);
    let stale = response("stale-while-revalidate=4, stale-if-error=60, stale-if-error=x");
    assert_eq!((stale.stale_while_revalidate, stale.stale_if_error), (seconds(4), seconds(0)));
}

/// http-tests: `cdn-cache-control`.
#[test]
fn targeted() {
    for (field, expected) in [
        ("max-age=3600", Some(seconds(3600))),
        ("max-age=2147483648", Some(seconds(1 << 31))),
        ("max-age=99999999999", Some(seconds(1 << 31))),
        ("max-age=0", Some(seconds(0))),
        ("foobar, max-age=3600", Some(seconds(3600))),
        ("max-age=1, max-age=2", Some(seconds(2))),
        ("max-age=-1", Some(seconds(0))),
        ("max-age=1.5", Some(seconds(0))),
        ("max-age=\"10000\"", Some(seconds(0))),
        ("max-age", Some(seconds(0))),
        ("max-age=10;x=1", Some(seconds(10))),
        ("foo", Some(None)),
        ("max-age =100", None),
        ("max-age= 100", None),
        ("MaX-aGe=3600", None),
        ("max-age=10000, &&&&&", None),
        ("max-age=9999999999999999", None),
        ("", None),
    ] {
        let head = head(&[("cache-control", "max-age=7"), ("cdn-cache-control", field)]);
        let response = ResponseDirectives::read(&head, &targets());
        let expected = expected.map_or((false, seconds(7)), |age| (true, age));
        assert_eq!((response.is_targeted, response.max_age), expected, "{field}");
    }
    let head = head(&[
        ("cdn-cache-control", "no-store, no-cache=\"a\""),
        ("cdn-cache-control", "private, public=?0, must-revalidate"),
        ("cache-control", "public"),
    ]);
    let response = ResponseDirectives::read(&head, &targets());
    assert!(response.no_store && response.private.is_whole() && !response.public && response.must_revalidate);
    assert_eq!(response.no_cache.fields(), [HeaderName::from_static("a")]);
}

#[test]
fn first_valid_targeted_field_counts() {
    let both = head(&[("cdn-cache-control", "max-age=1"), ("stockade-cache-control", "max-age=2")]);
    assert_eq!(ResponseDirectives::read(&both, &targets()).max_age, seconds(2));
    let broken = head(&[("cdn-cache-control", "max-age=1"), ("stockade-cache-control", "MAX")]);
    assert_eq!(ResponseDirectives::read(&broken, &targets()).max_age, seconds(1));
    assert_eq!(ResponseDirectives::read(&both, &[]).max_age, None);
}

#[test]
fn request_directives() {
    let read = |value: &str| RequestDirectives::read(&head(&[("cache-control", value)]));
    let nothing = RequestDirectives::default();
    for (value, expected) in [
        ("nothing-to-see-here", nothing),
        ("no-store", RequestDirectives { no_store: true, ..nothing }),
        ("No-Cache", RequestDirectives { no_cache: true, ..nothing }),
        ("only-if-cached", RequestDirectives { only_if_cached: true, ..nothing }),
        ("max-age=1, max-age=2", RequestDirectives { max_age: seconds(1), ..nothing }),
        ("max-age=x", RequestDirectives { max_age: seconds(0), ..nothing }),
        ("min-fresh=2000, min-fresh=1", RequestDirectives { min_fresh: seconds(2000), ..nothing }),
        ("min-fresh=x", RequestDirectives { min_fresh: Some(Duration::MAX), ..nothing }),
        ("max-stale=1000", RequestDirectives { max_stale: seconds(1000), ..nothing }),
        ("max-stale", RequestDirectives { max_stale: Some(Duration::MAX), ..nothing }),
        ("max-stale, max-stale=5", RequestDirectives { max_stale: seconds(5), ..nothing }),
        ("max-stale=x", RequestDirectives { max_stale: seconds(0), ..nothing }),
    ] {
        assert_eq!(read(value), expected, "{value}");
        assert_eq!(read(value).is_empty(), expected == nothing);
    }
    assert!(RequestDirectives::read(&head(&[("pragma", "foo, No-Cache")])).no_cache);
    assert!(RequestDirectives::read(&head(&[("pragma", "foo")])).is_empty());
    let both = head(&[("pragma", "no-cache"), ("cache-control", "nothing-to-see-here")]);
    assert!(RequestDirectives::read(&both).is_empty());
    assert!(RequestDirectives::read(&HeaderMap::new()).is_empty());
}

/// Splits at each comma, without quoted strings.
fn naive(value: &str) -> (bool, bool, Option<u64>) {
    let parts = || value.split(',').map(|part| part.trim_matches([' ', '\t']).to_ascii_lowercase());
    let ages = parts().filter_map(|part| {
        part.strip_prefix("max-age=").map(|age| match age.parse::<u64>() {
            Ok(age) if age.to_string().len() <= age.to_string().len().max(1) && !part.contains('+') => age,
            _ => 0,
        })
    });
    let ages = ages.chain(parts().filter(|part| part == "max-age").map(|_| 0));
    (parts().any(|part| part == "no-store"), parts().any(|part| part == "public"), ages.min())
}

fn directive() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("no-store".to_owned()),
        Just("PUBLIC".to_owned()),
        Just("public".to_owned()),
        Just("max-age".to_owned()),
        (0_u64..100_000).prop_map(|age| format!("Max-Age={age}")),
        "[a-z+-]{0,6}".prop_map(|value| format!("max-age={value}")),
        "[a-z]{0,9}",
    ]
}

proptest! {
    #[test]
    fn without_quotes_equals_a_naive_reader(parts in prop::collection::vec(directive(), 0..8), space in "[ \t]{0,2}") {
        let value = parts.join(&format!("{space},{space}"));
        let response = response(&value);
        prop_assert_eq!((response.no_store, response.public, response.max_age.map(|age| age.as_secs())), naive(&value));
    }

    #[test]
    fn arbitrary_values_do_not_panic(value in "[ -~\t]{0,60}", target in "[ -~\t]{0,60}") {
        let head = head(&[("cache-control", &value), ("cdn-cache-control", &target), ("pragma", &value)]);
        let once = ResponseDirectives::read(&head, &targets());
        prop_assert_eq!(&once, &ResponseDirectives::read(&head, &targets()));
        let _ = RequestDirectives::read(&head);
    }

    #[test]
    fn said_twice_is_said_once(value in "[ -!#-~]{0,40}") {
        let (mut once, mut twice) = (response(&value), response(&format!("{value}, {value}")));
        for scope in [&mut once.no_cache, &mut once.private, &mut twice.no_cache, &mut twice.private] {
            if let Scope::Fields(fields) = scope {
                fields.sort_by(|one, other| one.as_str().cmp(other.as_str()));
                fields.dedup();
            }
        }
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(prop_oneof![32_u8..127, 128_u8..=255], 0..40)) {
        let mut head = HeaderMap::new();
        head.insert(CACHE_CONTROL, http::HeaderValue::from_bytes(&bytes).unwrap());
        let _ = (ResponseDirectives::read(&head, &[CACHE_CONTROL]), RequestDirectives::read(&head));
    }
}
