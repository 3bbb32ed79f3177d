//! An invalidated value is not served again, also if its load is in flight.

use std::time::Duration;

use stockade_cache::{
    Cache, Insertion, Invalidation, Limit, Outcome, StoreRejection, Strategy, Writer, heap_bytes,
};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Time, Virtual},
};

const MS: Duration = Duration::from_millis(1);

type Pages = Cache<u32, &'static str, Virtual>;

/// Each word of a value is a tag.
fn pages(time: &Virtual, strategy: Strategy) -> Pages {
    Cache::builder(strategy)
        .tags(|_, value: &&str, tag| value.split(' ').for_each(tag))
        .build_on(time.clone(), Seed(1))
        .unwrap()
}

/// A request with a load of 100 ms. Returns the value, the outcome and the waiting time.
async fn request(
    time: &Virtual,
    pages: &Pages,
    key: u32,
    brings: &'static str,
) -> (&'static str, Outcome, Duration) {
    let (sleeper, start) = (time.clone(), time.now());
    let load = async move || {
        sleeper.sleep_until(sleeper.now() + 100 * MS).await;
        Ok::<_, std::io::Error>(brings)
    };
    let answer = pages.get_with(key, load).await.unwrap();
    (answer.value, answer.outcome, time.now() - start)
}

#[test]
fn invalidated_load_answers_only_earlier_requests() {
    for what in ["key", "tag", "all", "insert"] {
        let time = Virtual::new();
        let pages = pages(&time, Strategy::preset("stampede").unwrap());
        time.run(async {
            let before = async {
                let leader = request(&time, &pages, 1, "old news");
                let waiter = request(&time, &pages, 1, "not loaded");
                let answers = futures_util::future::join(leader, waiter).await;
                assert_eq!(answers.0, ("old news", Outcome::Miss, 100 * MS), "{what}");
                assert_eq!(answers.1, ("old news", Outcome::Coalesced, 100 * MS), "{what}");
            };
            let after = async {
                time.sleep_until(Time::ZERO + 50 * MS).await;
                match what {
                    "key" => assert!(!pages.invalidate(&1, Invalidation::Hard), "it is not there yet"),
                    "tag" => assert_eq!(pages.invalidate_tag("news", Invalidation::Hard), 0),
                    "all" => assert_eq!(pages.invalidate_all(Invalidation::Hard), 0),
                    _ => assert_eq!(pages.insert(1, "new"), Insertion::Stored),
                }
                let (value, outcome, waited) = request(&time, &pages, 1, "new").await;
                assert_eq!(value, "new", "{what}");
                match what {
                    "insert" => assert_eq!((outcome, waited), (Outcome::Hit, Duration::ZERO)),
                    // The tags of a load are known only at its end.
                    "tag" => assert_eq!((outcome, waited), (Outcome::Miss, 150 * MS)),
                    _ => assert_eq!((outcome, waited), (Outcome::Miss, 100 * MS), "{what}"),
                }
            };
            futures_util::future::join(before, after).await;
            pages.wait_idle().await;
            assert_eq!(pages.get(&1), Some("new"), "{what}");
            assert_eq!(pages.stats().stores_outdated, 1, "{what}");
            assert_eq!(pages.stats().stores, 1, "{what}");
        })
        .unwrap();
    }
}

#[test]
fn unrelated_tag_does_not_outdate_a_load() {
    let time = Virtual::new();
    let pages = pages(&time, Strategy::preset("stampede").unwrap());
    time.run(async {
        let load = request(&time, &pages, 1, "weather wales");
        let invalidate = async {
            time.sleep_until(Time::ZERO + 50 * MS).await;
            pages.invalidate_tag("sport", Invalidation::Hard);
            pages.invalidate(&2, Invalidation::Hard);
            let (value, outcome, waited) = request(&time, &pages, 1, "not loaded").await;
            assert_eq!((value, outcome, waited), ("weather wales", Outcome::Coalesced, 50 * MS));
        };
        futures_util::future::join(load, invalidate).await;
        assert_eq!(pages.get(&1), Some("weather wales"));
    })
    .unwrap();
}

#[test]
fn entries_are_invalidated_by_key_by_tag_and_all() {
    let time = Virtual::new();
    let pages = pages(&time, Strategy::preset("stampede").unwrap());
    time.run(async {
        for key in 0..10_000 {
            pages.insert(key, if key % 10 == 0 { "sport wales" } else { "sport" });
        }
        pages.insert(10, "news");
        assert_eq!(pages.invalidate_tag("wales", Invalidation::Hard), 999, "one entry has another value now");
        assert_eq!((pages.get(&20), pages.get(&10), pages.get(&21)), (None, Some("news"), Some("sport")));
        assert!(pages.invalidate(&21, Invalidation::Hard) && !pages.invalidate(&21, Invalidation::Hard));
        assert_eq!(pages.invalidate_tag("nothing like it", Invalidation::Hard), 0);
        assert_eq!(pages.invalidate_all(Invalidation::Hard), 9_000);
        assert_eq!((pages.len(), pages.stats().invalidated), (0, 10_000));
    })
    .unwrap();
}

#[test]
fn softly_invalidated_value_serves_until_refreshed() {
    let time = Virtual::new();
    let strategy = Strategy { ttl: Some(Duration::from_mins(1)), ..Strategy::preset("swr").unwrap() };
    let pages = pages(&time, strategy);
    time.run(async {
        pages.insert(1, "old");
        pages.insert(2, "other");
        for _ in 0..2 {
            assert!(pages.invalidate(&1, Invalidation::Soft));
        }
        assert_eq!(pages.get(&1), None, "it is not fresh any more");
        assert_eq!(request(&time, &pages, 1, "new").await, ("old", Outcome::Stale, Duration::ZERO));
        time.sleep_until(Time::ZERO + 101 * MS).await;
        assert_eq!(request(&time, &pages, 1, "newer").await, ("new", Outcome::Hit, Duration::ZERO));
        assert_eq!(pages.get(&2), Some("other"));
        assert_eq!(pages.invalidate_all(Invalidation::Soft), 2);
        assert_eq!(pages.len(), 2);
        // A strategy without stale values removes the entry.
        let strict = Strategy::preset("stampede").unwrap();
        let strict: Pages = Cache::builder(strict).build_on(time.clone(), Seed(1)).unwrap();
        strict.insert(1, "old");
        assert!(strict.invalidate(&1, Invalidation::Soft));
        assert!(strict.is_empty());
    })
    .unwrap();
}

#[test]
fn uncacheable_load_keeps_a_value_written_meanwhile() {
    for brings in [None, Some("larger than any object may be".repeat(1_000))] {
        let time = Virtual::new();
        let limit = Limit { max_object: Some(4_096), ..Limit::bytes(1 << 20) };
        let strategy = Strategy { limit: Some(limit), ..Strategy::preset("stampede").unwrap() };
        let cache: Cache<u32, Option<String>, Virtual> = Cache::builder(strategy)
            .not_found(Option::is_none)
            .weigh(heap_bytes)
            .build_on(time.clone(), Seed(1))
            .unwrap();
        time.run(async {
            let load = cache.get_with(1, {
                let (sleeper, brings) = (time.clone(), brings.clone());
                async move || {
                    sleeper.sleep_until(sleeper.now() + 100 * MS).await;
                    Ok::<_, std::io::Error>(brings)
                }
            });
            let write = async {
                time.sleep_until(Time::ZERO + 50 * MS).await;
                assert_eq!(cache.insert(1, Some("new".to_owned())), Insertion::Stored);
            };
            let (answer, ()) = futures_util::future::join(load, write).await;
            assert_eq!(answer.unwrap().value, brings, "the caller receives it");
            assert_eq!(cache.get(&1), Some(Some("new".to_owned())));
        })
        .unwrap();
    }
}

#[test]
fn thousands_of_other_keys_do_not_outdate_a_load() {
    let time = Virtual::new();
    let pages = pages(&time, Strategy::preset("stampede").unwrap());
    time.run(async {
        let load = request(&time, &pages, 1, "news");
        let others = async {
            time.sleep_until(Time::ZERO + 50 * MS).await;
            for key in 1_000..60_000 {
                pages.insert(key, "other");
            }
        };
        futures_util::future::join(load, others).await;
        assert_eq!((pages.get(&1), pages.stats().stores_outdated), (Some("news"), 0));
    })
    .unwrap();
}

#[test]
fn panicking_tags_function_leaves_the_stored_tags() {
    let time = Virtual::new();
    let tags = |_: &u32, value: &&str, tag: &mut dyn FnMut(&str)| {
        assert!(*value != "bad", "on purpose");
        tag(value);
    };
    let pages: Pages = Cache::builder(Strategy::preset("stampede").unwrap())
        .tags(tags)
        .build_on(time.clone(), Seed(1))
        .unwrap();
    pages.insert(1, "good");
    let insert = std::panic::AssertUnwindSafe(|| pages.insert(1, "bad"));
    std::panic::catch_unwind(insert).unwrap_err();
    assert_eq!(pages.get(&1), Some("good"));
    assert_eq!(pages.invalidate_tag("good", Invalidation::Hard), 1);
    assert!(pages.is_empty());
}

#[test]
fn tags_count_under_a_limit_and_are_released() {
    let time = Virtual::new();
    let strategy = Strategy { limit: Some(Limit::bytes(1 << 20)), ..Strategy::preset("stampede").unwrap() };
    let pages: Pages = Cache::builder(strategy)
        .weigh(|_, value: &&str| value.len())
        .tags(|_, value: &&str, tag| value.split(' ').for_each(tag))
        .build_on(time.clone(), Seed(1))
        .unwrap();
    let held = || pages.byte_usage().unwrap().used;
    pages.insert(1, "one");
    let one = held();
    pages.insert(2, "one two three");
    assert_eq!(held() - one - one, 10 + 2 * 72, "ten letters and two tags more");
    for key in 0..20_000 {
        pages.insert(key % 700, ["", "a", "a b", "a b c d e f g"][key as usize % 4]);
        if key % 997 == 0 {
            pages.invalidate_tag("a", Invalidation::Hard);
        }
    }
    pages.invalidate_all(Invalidation::Hard);
    assert_eq!((held(), pages.len()), (0, 0));
}

#[test]
fn soft_invalidation_removes_not_founds_and_lifts_throttles() {
    let time = Virtual::new();
    let strategy = Strategy {
        ttl: Some(10 * MS),
        negative_ttl: Some(Duration::from_secs(9)),
        throttle: Duration::from_secs(9),
        ..Strategy::preset("fallback").unwrap()
    };
    let cache: Cache<u32, Option<u32>, Virtual> =
        Cache::builder(strategy).not_found(Option::is_none).build_on(time.clone(), Seed(1)).unwrap();
    time.run(async {
        cache.insert(1, None);
        assert!(cache.invalidate(&1, Invalidation::Soft));
        assert!(cache.is_empty());

        cache.insert(2, Some(2));
        time.sleep_until(Time::ZERO + 20 * MS).await;
        let request = async |brings: Result<Option<u32>, &'static str>| {
            cache.get_with(2, async move || brings).await.unwrap().outcome
        };
        assert_eq!(request(Err("on purpose")).await, Outcome::Fallback);
        assert_eq!(request(Ok(Some(3))).await, Outcome::Fallback, "the key is throttled");
        assert!(cache.invalidate(&2, Invalidation::Soft));
        assert_eq!(request(Ok(Some(3))).await, Outcome::Miss, "the invalidation lifts the throttle");
    })
    .unwrap();
}

#[test]
fn full_mailbox_rejects_insert_and_removes_the_old_value() {
    let time = Virtual::new();
    let writer = Writer::mailbox(Some(10 * MS), None, Some(1));
    let pages = pages(&time, Strategy { writer, ..Strategy::preset("stampede").unwrap() });
    time.run(async {
        time.sleep_until(Time::ZERO + Duration::from_hours(1)).await;
        pages.insert(1, "old");
        pages.wait_idle().await;
        let (value, outcome, _) = request(&time, &pages, 1, "not loaded").await;
        assert_eq!((value, outcome), ("old", Outcome::Hit));
        let age = pages.get_with(1, async || Err("not loaded")).await.unwrap().age;
        assert!(age <= 10 * MS, "{age:?}");
        pages.insert(2, "in the mailbox");
        assert_eq!(pages.insert(1, "new"), Insertion::Rejected(StoreRejection::MailboxFull));
        pages.wait_idle().await;
        assert_eq!(pages.get(&1), None);
    })
    .unwrap();
}

#[test]
fn value_in_the_mailbox_can_be_outdated() {
    let time = Virtual::new();
    let writer = Writer::mailbox(Some(10 * MS), None, None);
    let pages = pages(&time, Strategy { writer, ..Strategy::preset("stampede").unwrap() });
    time.run(async {
        pages.insert(1, "old");
        pages.insert(2, "kept");
        assert!(!pages.invalidate(&1, Invalidation::Hard), "it is not there yet");
        time.sleep_until(Time::ZERO + 50 * MS).await;
        assert_eq!((pages.get(&1), pages.get(&2)), (None, Some("kept")));
    })
    .unwrap();
}

#[test]
fn borrowed_keys_are_looked_at_and_invalidated() {
    let time = Virtual::new();
    let texts: Cache<String, u32, Virtual> =
        Cache::builder(Strategy::STAMPEDE).build_on(time.clone(), Seed(1)).unwrap();
    texts.insert("a".to_owned(), 1);
    assert_eq!(texts.peek("a").map(|found| found.value), Some(1));
    assert!(texts.invalidate("a", Invalidation::Hard) && texts.is_empty());

    // `String`, the owned form of `str`, becomes the key.
    let shared: Cache<std::sync::Arc<str>, u32, Virtual> =
        Cache::builder(Strategy::STAMPEDE).build_on(time.clone(), Seed(1)).unwrap();
    shared.insert("a".into(), 1);
    assert!(shared.invalidate("a", Invalidation::Hard));

    let numbers: Cache<u64, u32, Virtual> =
        Cache::builder(Strategy::STAMPEDE).build_on(time, Seed(1)).unwrap();
    numbers.insert(7, 1);
    assert!(numbers.peek(&7).is_some() && numbers.invalidate(&7, Invalidation::Hard));
}

/// Fresh for ever, stale once it is softly invalidated, served if the load then fails: with no ttl, and with the longest one.
#[test]
fn value_without_an_end_is_a_fallback_after_a_soft_invalidation() {
    for ttl in [None, Some(Duration::MAX)] {
        for how in [Invalidation::Soft, Invalidation::Fallback] {
            let time = Virtual::new();
            let strategy =
                Strategy { ttl, sie: Duration::from_hours(1), ..Strategy::preset("stampede").unwrap() };
            let cache: Cache<u64, u64, Virtual> =
                Cache::builder(strategy).build_on(time.clone(), Seed(1)).unwrap();
            let fails = async || Err::<u64, _>("the source is down");
            let run = time.run(async {
                cache.insert(1, 10);
                time.sleep_until(time.now() + Duration::from_hours(24 * 365)).await;
                assert_eq!(cache.get(&1), Some(10), "{ttl:?}");
                assert!(cache.invalidate(&1, how));
                assert_eq!(cache.get(&1), None, "{ttl:?} {how:?}");
                let answer = cache.get_with(1, fails).await.unwrap();
                assert_eq!((answer.value, answer.outcome), (10, Outcome::Fallback));
                time.sleep_until(time.now() + Duration::from_hours(1)).await;
                assert!(cache.get_with(1, fails).await.is_err());
            });
            run.unwrap();
        }
    }
}
