//! Each switch changes the behaviour that it names: the first text is what clients of the good cache see, the second one has the fault.

use std::time::Duration;

use tokio::{
    join,
    time::{sleep, timeout},
};

use super::{
    faulty_cache::Fault,
    lab::{Lab, Script, field, page},
};

const EN: &[(&str, &str)] = &[("accept-language", "en")];
const DE: &[(&str, &str)] = &[("accept-language", "de")];

async fn check(fault: Fault, script: Script, scenario: impl AsyncFn(&Lab) -> String, texts: [&str; 2]) {
    for (faults, text) in [&[][..], &[fault]].into_iter().zip(texts) {
        let lab = Lab::start(faults, script).await;
        assert_eq!(scenario(&lab).await, text, "{faults:?}");
    }
}

async fn pause(ms: u64) {
    sleep(Duration::from_millis(ms)).await;
}

/// Two requests for a page.
async fn twice(lab: &Lab) -> String {
    format!("{} {}", lab.get("/").await, lab.get("/").await)
}

/// Two requests for a page, and a pause between them.
async fn twice_in(lab: &Lab, seconds: u64) -> String {
    let first = lab.get("/").await;
    lab.advance(seconds);
    format!("{first} {}", lab.get("/").await)
}

/// Declares a test for each fault.
macro_rules! switches {
    ($($name:ident, $fault:ident: $script:expr, $scenario:expr => $good:literal, $faulty:literal;)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                check(Fault::$fault, $script, $scenario, [$good, $faulty]).await;
            }
        )*

        #[test]
        fn every_fault_has_a_scenario() {
            let tested = [$(Fault::$fault),*];
            assert!(Fault::ALL.iter().chain(&Fault::FRESH).eq(&tested));
        }
    };
}

switches! {
    serves_past_limit, ServesPastLimit:
        |_, n| page(n).cached("max-age=10"), async |lab| twice_in(lab, 15).await => "1 2", "1 1";
    ignores_vary, IgnoresVary:
        |request, _| page(field(request, "accept-language")).cached("max-age=60").with("vary", "Accept-Language"),
        async |lab| format!("{} {}", lab.get_with("/", EN).await.body, lab.get_with("/", DE).await.body)
        => "en de", "en en";
    cross_user_coalescing, CrossUserCoalescing:
        |_, n| page(n).cached("private").after_ms(200), async |lab| lab.together(4).await => "1 2 3 4", "1 1 1 1";
    late_purge, LatePurge:
        |_, n| page(n).cached("max-age=60"),
        async |lab| {
            let before = lab.get("/").await;
            lab.send("PURGE", "/", &[]).await;
            format!("{before} {}", twice_in(lab, 3).await)
        } => "1 2 2", "1 1 2";
    purge_lost_during_load, PurgeLostDuringLoad:
        |_, n| page(n).cached("max-age=60").after_ms(200),
        async |lab| {
            let purge = async {
                pause(100).await;
                lab.send("PURGE", "/", &[]).await
            };
            let (before, _) = join!(lab.get("/"), purge);
            format!("{before} {}", lab.get("/").await)
        } => "1 2", "1 1";
    stores_truncated, StoresTruncated:
        |_, n| if n == 1 { page("whole").cached("max-age=60").cut() } else { page("whole") },
        async |lab| format!("{} {}", lab.get_with("/", &[]).await.status, lab.get("/").await)
        => "502 whole", "200 whol";
    stores_errors, StoresErrors:
        |_, n| if n == 1 { page("error").status(500) } else { page(n) }, twice => "error 2", "error error";
    ignores_no_store, IgnoresNoStore:
        |request, n| page(n).cached(if request.uri == "/" { "no-store" } else { "private, max-age=60" }),
        async |lab| format!("{} {} {}", twice(lab).await, lab.get("/own").await, lab.get("/own").await)
        => "1 2 3 4", "1 1 2 2";
    merges_not_modified_wrongly, MergesNotModifiedWrongly:
        |_, n| page("").status(if n == 1 { 200 } else { 304 }).with("etag", "\"a\"")
            .cached(if n == 1 { "max-age=10" } else { "max-age=1000" }),
        async |lab| {
            twice_in(lab, 15).await;
            twice_in(lab, 15).await;
            lab.requests().len().to_string()
        } => "2", "3";
    drops_fields, DropsFields:
        |_, _| page("").cached("max-age=60").with("etag", "\"a\"").with("link", "</b>").with("x-id", "c"),
        async |lab| {
            lab.get("/").await;
            let hit = lab.get_with("/", &[]).await;
            format!("{} {} {}", hit.field("etag"), hit.field("link"), hit.field("x-id"))
        } => "\"a\" </b> c", "none none none";
    cuts_keys, CutsKeys:
        |_, n| page(n).cached("max-age=60"),
        async |lab| {
            let long = "a".repeat(600);
            format!("{} {}", lab.get(&format!("/{long}b")).await, lab.get(&format!("/{long}c")).await)
        } => "1 2", "1 1";
    wrong_age, WrongAge:
        |_, _| page("").cached("max-age=60"),
        async |lab| {
            twice_in(lab, 5).await;
            lab.get_with("/", &[]).await.field("age").to_owned()
        } => "5", "none";
    serialises_uncacheable, SerialisesUncacheable:
        |_, n| page(n).cached("no-store").after_ms(200),
        async |lab| {
            lab.together(4).await;
            lab.running_max().to_string()
        } => "3", "1";
    refreshes_without_coalescing, RefreshesWithoutCoalescing:
        |_, n| page("").cached("max-age=10, stale-while-revalidate=60").after_ms(if n == 1 { 0 } else { 400 }),
        async |lab| {
            twice_in(lab, 15).await;
            lab.together(3).await;
            pause(100).await;
            lab.requests().len().to_string()
        } => "2", "5";
    forgets_after_reload, ForgetsAfterReload:
        |_, n| page(n).cached("max-age=60"),
        async |lab| {
            let before = lab.get("/").await;
            lab.cache.reload();
            format!("{before} {}", lab.get("/").await)
        } => "1 1", "1 2";
    revalidates_with_another_tag, RevalidatesWithAnotherTag:
        |request, _| page("").cached("max-age=10").with("vary", "accept-language")
            .with("etag", &format!("\"{}\"", field(request, "accept-language"))),
        async |lab| {
            lab.get_with("/", EN).await;
            lab.get_with("/", DE).await;
            lab.advance(15);
            lab.get_with("/", DE).await;
            field(&lab.requests()[2], "if-none-match").to_owned()
        } => "\"de\"", "\"en\"";
    mixes_ranges, MixesRanges:
        |_, _| page("0123456789").cached("max-age=60").with("etag", "\"new\""),
        async |lab| {
            lab.get("/").await;
            let part = lab.get_with("/", &[("range", "bytes=2-4"), ("if-range", "\"old\"")]).await;
            format!("{} {}", part.status, part.body)
        } => "200 0123456789", "206 234";
    head_with_other_length, HeadWithOtherLength:
        |_, _| page("0123456789").cached("max-age=60"),
        async |lab| {
            lab.get("/").await;
            lab.send("HEAD", "/", &[]).await.field("content-length").to_owned()
        } => "10", "0";
    leaks_memory, LeaksMemory:
        |_, _| page("0123456789").cached("max-age=60"),
        async |lab| {
            twice(lab).await;
            lab.cache.leaked_bytes().to_string()
        } => "0", "20";
    breaker_for_all, BreakerForAll:
        |request, n| if request.uri == "/bad" { page("").status(500) } else { page(n).cached("max-age=60") },
        async |lab| {
            let before = lab.get("/").await;
            for _ in 0..5 {
                lab.get("/bad").await;
            }
            format!("{before} {}", twice_in(lab, 6).await)
        } => "1 1 1", "1 Service Unavailable 1";
    retries_post, RetriesPost:
        |_, _| page("").closed(),
        async |lab| {
            let status = lab.send("POST", "/", &[]).await.status;
            format!("{status} {}", lab.requests().len())
        } => "502 1", "502 2";
    nothing_after_reset, NothingAfterReset:
        |_, n| if n == 1 { page("").closed() } else { page(n) },
        async |lab| format!("{} {}", lab.get("/").await, twice_in(lab, 6).await)
        => "Bad Gateway 2 3", "Bad Gateway Bad Gateway 2";
    unkeyed_field, UnkeyedField:
        |request, _| page(field(request, "x-forwarded-host")).cached("max-age=60"),
        async |lab| {
            let first = lab.get_with("/", &[("x-forwarded-host", "other.test")]).await.body;
            format!("{first} {}", lab.get("/").await)
        } => "none none", "other.test other.test";
    stale_after_gone, StaleAfterGone:
        |_, n| if n == 1 { page(n).cached("max-age=10") } else { page("gone").status(410) },
        async |lab| twice_in(lab, 15).await => "1 gone", "1 1";

    stores_authorized, StoresAuthorized:
        |_, n| page(n).cached("max-age=60"),
        async |lab| {
            let first = lab.get_with("/", &[("authorization", "Basic YTpi")]).await.body;
            format!("{first} {}", lab.get("/").await)
        } => "1 2", "1 1";
    stores_part_as_whole, StoresPartAsWhole:
        |request, _| match field(request, "range") {
            "none" => page("whole").cached("max-age=60"),
            _ => page("wh").status(206).with("content-range", "bytes 0-1/5").cached("max-age=60"),
        },
        async |lab| {
            let part = lab.get_with("/", &[("range", "bytes=0-1")]).await.body;
            format!("{part} {}", lab.get("/").await)
        } => "wh whole", "wh wh";
    forgets_origin_age, ForgetsOriginAge:
        |_, n| page(n).cached("max-age=60").with("age", "50"), async |lab| twice_in(lab, 15).await => "1 2", "1 1";
    stale_despite_must_revalidate, StaleDespiteMustRevalidate:
        |_, n| match n {
            1 => page(n).cached("max-age=10, must-revalidate, stale-if-error=60"),
            _ => page("error").status(500),
        },
        async |lab| twice_in(lab, 15).await => "1 error", "1 1";
    key_without_host, KeyWithoutHost:
        |request, _| page(field(request, "host")).cached("max-age=60"),
        async |lab| {
            let first = lab.get_with("/", &[("host", "a.test")]).await.body;
            format!("{first} {}", lab.get_with("/", &[("host", "b.test")]).await.body)
        } => "a.test b.test", "a.test a.test";
    decodes_keys, DecodesKeys:
        |_, n| page(n).cached("max-age=60"),
        async |lab| format!("{} {}", lab.get("/a/b").await, lab.get("/a%2Fb").await) => "1 2", "1 1";
    purges_one_variant, PurgesOneVariant:
        |_, n| page(n).cached("max-age=60").with("vary", "accept-language"),
        async |lab| {
            lab.get_with("/", EN).await;
            lab.get_with("/", DE).await;
            lab.send("PURGE", "/", EN).await;
            format!("{} {}", lab.get_with("/", EN).await.body, lab.get_with("/", DE).await.body)
        } => "3 4", "3 2";
    shares_leaders_variant, SharesLeadersVariant:
        |request, _| page(field(request, "accept-language")).cached("max-age=60")
            .with("vary", "accept-language").after_ms(200),
        async |lab| {
            let second = async {
                pause(50).await;
                lab.get_with("/", DE).await.body
            };
            let (first, second) = join!(lab.get_with("/", EN), second);
            format!("{} {second}", first.body)
        } => "en de", "en en";
    reads_one_cache_control_line, ReadsOneCacheControlLine:
        |_, n| page(n).cached("max-age=60").cached("private"), twice => "1 2", "1 1";
    stores_head_as_page, StoresHeadAsPage:
        |_, _| page("whole").cached("max-age=60"),
        async |lab| {
            lab.send("HEAD", "/", &[]).await;
            lab.get("/").await
        } => "whole", "";
    default_lifetime, DefaultLifetime: |_, n| page(n), twice => "1 2", "1 1";
    ends_with_leader, EndsWithLeader:
        |_, n| page(n).cached("max-age=60").after_ms(400),
        async |lab| {
            let waiter = async {
                pause(50).await;
                lab.get("/").await
            };
            let leader = timeout(Duration::from_millis(150), lab.get("/"));
            join!(leader, waiter).1
        } => "1", "Bad Gateway";
}
