//! What was invalidated is not served again, also if it is just being loaded.

use std::time::Duration;

use stockade_cache::{Cache, Insertion, Invalidation, Outcome, Strategy, Writer};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Time, Virtual},
};

const MS: Duration = Duration::from_millis(1);

type Pages = Cache<u32, &'static str, Virtual>;

/// Values are tagged with their words.
fn pages(time: &Virtual, strategy: Strategy) -> Pages {
    Cache::builder(strategy)
        .tags(|_, value: &&str, tag| value.split(' ').for_each(tag))
        .build_on(time.clone(), Seed(1))
        .unwrap()
}

/// A request whose load takes 100 ms; what it was given, how and after how long.
async fn ask(
    time: &Virtual,
    pages: &Pages,
    key: u32,
    brings: &'static str,
) -> (&'static str, Outcome, Duration) {
    let (sleeper, asked) = (time.clone(), time.now());
    let load = async move || {
        sleeper.sleep_until(sleeper.now() + 100 * MS).await;
        Ok::<_, std::io::Error>(brings)
    };
    let answer = pages.get_with(key, load).await.unwrap();
    (answer.value, answer.outcome, time.now() - asked)
}

#[test]
fn who_asked_before_is_given_what_was_being_loaded_and_who_asks_after_is_not() {
    for what in ["key", "tag", "all", "insert"] {
        let time = Virtual::new();
        let pages = pages(&time, Strategy::preset("stampede").unwrap());
        time.run(async {
            let before = async {
                let leader = ask(&time, &pages, 1, "old news");
                let waiter = ask(&time, &pages, 1, "not asked for");
                let told = futures_util::future::join(leader, waiter).await;
                assert_eq!(told.0, ("old news", Outcome::Miss, 100 * MS), "{what}");
                assert_eq!(told.1, ("old news", Outcome::Coalesced, 100 * MS), "{what}");
            };
            let after = async {
                time.sleep_until(Time::ZERO + 50 * MS).await;
                match what {
                    "key" => assert!(!pages.invalidate(&1, Invalidation::Hard), "it is not there yet"),
                    "tag" => assert_eq!(pages.invalidate_tag("news", Invalidation::Hard), 0),
                    "all" => assert_eq!(pages.clear(Invalidation::Hard), 0),
                    _ => assert_eq!(pages.insert(1, "new"), Insertion::Stored),
                }
                let (told, outcome, waited) = ask(&time, &pages, 1, "new").await;
                assert_eq!(told, "new", "{what}");
                if what != "insert" {
                    // It sits out the load that is under way, and leads the next one.
                    assert_eq!((outcome, waited), (Outcome::Miss, 150 * MS), "{what}");
                }
            };
            futures_util::future::join(before, after).await;
            pages.idle().await;
            assert_eq!(pages.get(&1), Some("new"), "{what}");
            assert_eq!(pages.stats().stores_outdated, 1, "{what}");
            assert_eq!(pages.stats().stores, 1, "{what}");
        })
        .unwrap();
    }
}

#[test]
fn a_tag_that_what_is_loaded_does_not_have_leaves_it_alone() {
    let time = Virtual::new();
    let pages = pages(&time, Strategy::preset("stampede").unwrap());
    time.run(async {
        let load = ask(&time, &pages, 1, "weather wales");
        let invalidate = async {
            time.sleep_until(Time::ZERO + 50 * MS).await;
            pages.invalidate_tag("sport", Invalidation::Hard);
            pages.invalidate(&2, Invalidation::Hard);
            let (told, outcome, waited) = ask(&time, &pages, 1, "not asked for").await;
            assert_eq!((told, outcome, waited), ("weather wales", Outcome::Coalesced, 50 * MS));
        };
        futures_util::future::join(load, invalidate).await;
        assert_eq!(pages.get(&1), Some("weather wales"));
    })
    .unwrap();
}

#[test]
fn entries_go_by_key_by_tag_and_altogether() {
    let time = Virtual::new();
    let pages = pages(&time, Strategy::preset("stampede").unwrap());
    time.run(async {
        for key in 0..10_000 {
            pages.insert(key, if key % 10 == 0 { "sport wales" } else { "sport" });
        }
        pages.insert(10, "news");
        assert_eq!(pages.invalidate_tag("wales", Invalidation::Hard), 999, "one has another value now");
        assert_eq!((pages.get(&20), pages.get(&10), pages.get(&21)), (None, Some("news"), Some("sport")));
        assert!(pages.invalidate(&21, Invalidation::Hard) && !pages.invalidate(&21, Invalidation::Hard));
        assert_eq!(pages.invalidate_tag("nothing like it", Invalidation::Hard), 0);
        assert_eq!(pages.clear(Invalidation::Hard), 9_000);
        assert_eq!((pages.len(), pages.stats().invalidated), (0, 10_000));
    })
    .unwrap();
}

#[test]
fn what_is_softly_invalidated_is_refreshed_and_serves_until_then() {
    let time = Virtual::new();
    let strategy = Strategy { ttl: Some(Duration::from_mins(1)), ..Strategy::preset("swr").unwrap() };
    let pages = pages(&time, strategy);
    time.run(async {
        pages.insert(1, "old");
        pages.insert(2, "other");
        for _ in 0..2 {
            assert!(pages.invalidate(&1, Invalidation::Soft));
        }
        assert_eq!(pages.get(&1), None, "it is fresh no more");
        assert_eq!(ask(&time, &pages, 1, "new").await, ("old", Outcome::Stale, Duration::ZERO));
        time.sleep_until(Time::ZERO + 101 * MS).await;
        assert_eq!(ask(&time, &pages, 1, "newer").await, ("new", Outcome::Hit, Duration::ZERO));
        assert_eq!(pages.get(&2), Some("other"));
        assert_eq!(pages.clear(Invalidation::Soft), 2);
        assert_eq!(pages.len(), 2);
        // Under a strategy that serves nothing stale it simply goes.
        let strict = Strategy::preset("stampede").unwrap();
        let strict: Pages = Cache::builder(strict).build_on(time.clone(), Seed(1)).unwrap();
        strict.insert(1, "old");
        assert!(strict.invalidate(&1, Invalidation::Soft));
        assert!(strict.is_empty());
    })
    .unwrap();
}

#[test]
fn a_value_that_waits_in_the_mailbox_is_outdated_there() {
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
