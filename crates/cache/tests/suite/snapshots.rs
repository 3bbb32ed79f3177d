//! Snapshots: what they keep, and what damage does.

use std::{
    fs,
    io::{self, Write},
    ops::Range,
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
    time::{Duration, SystemTime},
};

use proptest::prelude::*;
use stockade_cache::{
    Cache, Insertion, Invalidation, Lifespan, Limit, RawCodec, Refresh, RestoreError, Restored, SnapshotFile,
    Snapshots, Strategy, heap_bytes, policy::POLICIES,
};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Time, Virtual},
};

type TestedCache = Cache<String, String, Virtual>;

const SECOND: Duration = Duration::from_secs(1);
/// The time of day at the start of each test.
const NOON: SystemTime = SystemTime::UNIX_EPOCH;

fn snapshots() -> Snapshots<String, String> {
    Snapshots::new("test 1", RawCodec, RawCodec)
}

/// A cache in a process that has run for an hour.
async fn started(strategy: &Strategy, time: &Virtual, seed: u64) -> TestedCache {
    time.sleep_until(Time::ZERO + 3_600 * SECOND).await;
    Cache::builder(strategy.clone()).weigh(heap_bytes).build_on(time.clone(), Seed(seed)).unwrap()
}

fn run<T>(test: impl AsyncFnOnce(Virtual) -> T) -> T {
    let time = Virtual::new();
    time.run(test(time.clone())).unwrap()
}

fn stampede() -> Strategy {
    Strategy::preset("stampede").unwrap()
}

fn key(number: usize) -> String {
    format!("key {number}")
}

/// A snapshot of `entries` entries of some length.
fn written(entries: usize) -> Vec<u8> {
    run(async |time| {
        let cache = started(&stampede(), &time, 1).await;
        for number in 0..entries {
            cache.insert(key(number), number.to_string().repeat(1 + number % 50));
        }
        let mut bytes = Vec::new();
        assert_eq!(snapshots().write(&cache, NOON, &mut bytes).unwrap(), entries as u64);
        bytes
    })
}

fn read(bytes: &[u8]) -> (Result<Restored, RestoreError>, Vec<(String, String)>) {
    run(async |time| {
        let cache = started(&stampede(), &time, 2).await;
        let restored = snapshots().read(&cache, NOON, bytes);
        let mut entries: Vec<_> = cache.entries().map(|(key, stored)| (key, stored.value)).collect();
        entries.sort();
        (restored, entries)
    })
}

#[test]
fn entries_keep_their_times_through_a_restart() {
    let strategy = Strategy {
        ttl: Some(100 * SECOND),
        swr: 50 * SECOND,
        sie: 500 * SECOND,
        refresh: Refresh::Early { at: 0.8 },
        ..stampede()
    };
    let mut bytes = Vec::new();
    run(async |time| {
        let cache = started(&strategy, &time, 1).await;
        cache.insert("old".to_owned(), "1".to_owned());
        time.sleep_until(time.now() + 30 * SECOND).await;
        cache.insert("young".to_owned(), "2".to_owned());
        let own = Lifespan { ttl: 20 * SECOND, keep: 5 * SECOND, ..Lifespan::NONE };
        cache.insert_for("own".to_owned(), "3".to_owned(), own);
        cache.insert_for("brief".to_owned(), "4".to_owned(), Lifespan { ttl: 11 * SECOND, ..Lifespan::NONE });
        cache.insert("invalidated".to_owned(), "5".to_owned());
        cache.invalidate("invalidated", Invalidation::Soft);
        time.sleep_until(time.now() + 10 * SECOND).await;
        assert_eq!(snapshots().write(&cache, NOON + 40 * SECOND, &mut bytes).unwrap(), 5);
    });
    run(async |time| {
        let cache = started(&strategy, &time, 2).await;
        let restored = snapshots().read(&cache, NOON + 45 * SECOND, &bytes[..]).unwrap();
        assert_eq!(restored, Restored { entries: 4, expired: 1, ..Restored::default() });
        let times = |key: &str| {
            let stored = cache.peek(key).unwrap();
            [stored.age, stored.fresh_for, stored.servable_for].map(|time| (time + SECOND / 2).as_secs())
        };
        assert_eq!(times("old"), [45, 55, 605]);
        assert_eq!(times("young"), [15, 85, 635]);
        assert_eq!(times("own"), [15, 5, 5]);
        assert_eq!(times("invalidated"), [15, 0, 535]);
        time.sleep_until(time.now() + 36 * SECOND).await;
        assert!(cache.get_answer("old").is_none(), "from 80 s on it is refreshed early");
        assert_eq!(cache.get_answer("young").unwrap().value, "2");
        // A clock that was set back adds no time.
        let cache = started(&strategy, &time, 3).await;
        snapshots().read(&cache, NOON, &bytes[..]).unwrap();
        assert_eq!(cache.peek("old").unwrap().age, 40 * SECOND);
    });
}

fn fill(cache: &TestedCache, keys: Range<usize>) {
    for number in keys {
        cache.insert(key(number), String::new());
    }
}

/// A cache that was restored evicts as the other would have: from a full cache of each policy, after hits on a third of its entries, the
/// entries that are left when half were replaced are nearly the same.
#[test]
fn the_order_of_every_policy_is_kept() {
    const ENTRIES: usize = 2_000;
    for policy in &POLICIES {
        let limit = Limit { policy, ..Limit::entries(ENTRIES) };
        let strategy = Strategy { limit: Some(limit), ..stampede() };
        let left = |cache: &TestedCache| -> Vec<usize> {
            fill(cache, ENTRIES..ENTRIES * 3 / 2);
            (0..ENTRIES).filter(|number| cache.peek(&key(*number)).is_some()).collect()
        };
        let mut bytes = Vec::new();
        let expected = run(async |time| {
            let cache = started(&strategy, &time, 1).await;
            fill(&cache, 0..ENTRIES);
            for number in (0..ENTRIES).step_by(3) {
                (0..3).for_each(|_| drop(cache.get(&key(number))));
            }
            snapshots().write(&cache, NOON, &mut bytes).unwrap();
            left(&cache)
        });
        let found = run(async |time| {
            let cache = started(&strategy, &time, 2).await;
            snapshots().read(&cache, NOON, &bytes[..]).unwrap();
            left(&cache)
        });
        let same = expected.iter().filter(|number| found.binary_search(number).is_ok()).count();
        let share = same as f64 / expected.len().max(1) as f64;
        assert!(share > 0.9, "{}: {share:.3} of {} entries", policy.name, expected.len());
    }
}

#[test]
fn younger_and_invalidated_entries_are_not_replaced_and_a_limit_holds() {
    let limit = Limit { max_object: Some(10_000), ..Limit::bytes(160_000) };
    let limited = Strategy { limit: Some(limit), ..stampede() };
    let bytes = written(5_000);
    run(async |time| {
        let cache = started(&limited, &time, 2).await;
        let restored = snapshots().read(&cache, NOON, &bytes[..]).unwrap();
        assert_eq!((restored.entries, restored.expired), (5_000, 0), "each was stored, and evicted again");
        let usage = cache.byte_usage().unwrap();
        assert!(usage.peak <= 160_000 && usage.used > 100_000, "{usage:?}");
        let cache = started(&stampede(), &time, 3).await;
        time.sleep_until(time.now() + SECOND).await;
        cache.insert(key(7), "younger".to_owned());
        let restored = snapshots().read(&cache, NOON + SECOND, &bytes[..]).unwrap();
        assert_eq!((restored.entries, restored.invalidated), (4_999, 1));
        assert_eq!(cache.get(&key(7)).unwrap(), "younger");
        assert_eq!(cache.len(), 5_000);
    });
    // A value that the limit does not take, and one that cannot be decoded.
    run(async |time| {
        let cache: Cache<String, Vec<u8>, Virtual> =
            Cache::builder(stampede()).build_on(time.clone(), Seed(1)).unwrap();
        cache.insert("large".to_owned(), vec![b'a'; 20_000]);
        cache.insert("no text".to_owned(), vec![0xff]);
        cache.insert("text".to_owned(), vec![b'a']);
        let mut bytes = Vec::new();
        Snapshots::new("test 1", RawCodec, RawCodec).write(&cache, NOON, &mut bytes).unwrap();
        let cache = started(&limited, &time, 2).await;
        let restored = snapshots().read(&cache, NOON, &bytes[..]).unwrap();
        assert_eq!(restored, Restored { entries: 1, refused: 2, ..Restored::default() });
    });
}

#[test]
fn another_shape_or_format_is_refused() {
    let bytes = written(3);
    let error = |shape: &str, bytes: &[u8]| {
        run(async |time| {
            let cache = started(&stampede(), &time, 1).await;
            let snapshots = Snapshots::new(shape, RawCodec, RawCodec);
            let error = snapshots.read(&cache, NOON, bytes).unwrap_err().to_string();
            assert!(cache.is_empty());
            error
        })
    };
    assert_eq!(error("test 2", &bytes), "the snapshot is of `test 1`, and `test 2` is expected");
    let mut later = bytes.clone();
    later[8] = 9;
    assert_eq!(error("test 1", &later), "the snapshot has format 9; this version reads format 1");
    assert_eq!(error("test 1", b"stockpile of something else"), "this is not a snapshot of a cache");
    assert_eq!(error("test 1", b""), "the snapshot ends after 0 bytes, before its last entry");
}

/// Fails after this number of bytes, as a full disk does.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = bytes.len().min(self.0);
        self.0 -= written;
        if written == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(written) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_snapshot_that_fails_leaves_the_old_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache.snapshot");
    run(async |time| {
        let (cache, file, _) = restarted(&time, &path, 1).await;
        cache.insert(key(1), "one".to_owned());
        assert_eq!(file.write(&cache, NOON).unwrap(), 1);
        cache.insert(key(2), "two".to_owned());
        assert!(snapshots().write(&cache, NOON, Full(100)).is_err());
        // A directory has the name of the unfinished file.
        let unfinished = directory.path().join("cache.snapshot.new");
        fs::create_dir(&unfinished).unwrap();
        file.write(&cache, NOON).unwrap_err();
        cache.invalidate(&key(1), Invalidation::Hard);
        assert_eq!(
            restarted(&time, &path, 2).await.2.invalidated,
            1,
            "the journal of the snapshot that failed counts"
        );
        fs::remove_dir(&unfinished).unwrap();
        assert_eq!(file.write(&cache, NOON).unwrap(), 1);
        assert_eq!(restarted(&time, &path, 3).await.2.entries, 1);
        assert!(!unfinished.exists());
        assert!(matches!(file.restore(&cache, NOON), Err(RestoreError::SecondFile)));
    });
}

/// A cache and its file, as a service has them that starts with this snapshot.
async fn restarted(
    time: &Virtual,
    path: &Path,
    seed: u64,
) -> (TestedCache, SnapshotFile<String, String>, Restored) {
    time.sleep_until(time.now().max(Time::ZERO + 3_600 * SECOND)).await;
    let cache: TestedCache = Cache::builder(stampede())
        .tags(|key: &String, _, tag| tag(&key[..1]))
        .build_on(time.clone(), Seed(seed))
        .unwrap();
    let file = SnapshotFile::new(path, snapshots());
    let restored = file.restore(&cache, NOON).unwrap();
    (cache, file, restored)
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn invalidations_after_a_snapshot_outlive_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache.snapshot");
    let insert = |cache: &TestedCache, keys: &[&str]| {
        keys.iter()
            .for_each(|key| assert_eq!(cache.insert((*key).to_owned(), "old".to_owned()), Insertion::Stored));
    };
    let left = |cache: &TestedCache| {
        let mut keys: Vec<_> = cache.entries().map(|(key, _)| key).collect();
        keys.sort();
        keys.join(" ")
    };
    run(async |time| {
        let (cache, file, restored) = restarted(&time, &path, 1).await;
        assert_eq!(restored, Restored::default(), "there is no file yet");
        insert(&cache, &["a1", "a2", "b1", "b2", "c1", "c2"]);
        cache.invalidate("c2", Invalidation::Hard);
        assert_eq!(file.write(&cache, NOON).unwrap(), 5);
        cache.invalidate_tag("b", Invalidation::Hard);
        cache.invalidate("c1", Invalidation::Soft);
        // Written again since: the older value must not come back.
        insert(&cache, &["a1"]);
        // The process ends here without a word, and the next one, too.
        let (cache, _, restored) = restarted(&time, &path, 2).await;
        assert_eq!((left(&cache).as_str(), restored.invalidated), ("a2", 4));
        cache.invalidate("a2", Invalidation::Hard);
        let (cache, file, _) = restarted(&time, &path, 3).await;
        assert_eq!(left(&cache), "");
        insert(&cache, &["d1", "d2"]);
        file.write(&cache, NOON).unwrap();
        assert_eq!(names(directory.path()), ["cache.snapshot", "cache.snapshot.invalidated.4"]);
        assert!(!file.is_outdated());
        assert_eq!(cache.invalidate_if(|key, _| key == "d1", Invalidation::Hard), 1);
        assert!(file.is_outdated());
        let (_, _, restored) = restarted(&time, &path, 4).await;
        assert_eq!((restored.entries, restored.invalidated), (0, 2), "of a function nothing can be recorded");
        file.write(&cache, NOON).unwrap();
        assert!(!file.is_outdated());
        let (cache, _, _) = restarted(&time, &path, 5).await;
        assert_eq!(left(&cache), "d2");
    });
}

/// For instance because the restore failed.
#[test]
fn invalidations_are_recorded_also_if_nothing_was_restored() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache.snapshot");
    run(async |time| {
        let cache = started(&stampede(), &time, 1).await;
        cache.insert(key(1), String::new());
        cache.insert(key(2), String::new());
        SnapshotFile::new(&path, snapshots()).write(&cache, NOON).unwrap();
        cache.invalidate(&key(1), Invalidation::Hard);
        let (_, _, restored) = restarted(&time, &path, 2).await;
        assert_eq!((restored.entries, restored.invalidated), (1, 1));
    });
}

/// A journal that is cut within a record, is of another version, or cannot be written.
#[test]
fn a_damaged_journal_restores_nothing_that_was_invalidated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache.snapshot");
    let journal = directory.path().join("cache.snapshot.invalidated.1");
    run(async |time| {
        let (cache, file, _) = restarted(&time, &path, 1).await;
        (1..=3).for_each(|number| assert_eq!(cache.insert(key(number), String::new()), Insertion::Stored));
        file.write(&cache, NOON).unwrap();
        cache.invalidate(&key(1), Invalidation::Hard);
        cache.invalidate(&key(2), Invalidation::Hard);
        let whole = fs::read(&journal).unwrap();
        let entries_with = async |bytes: &[u8]| {
            names(directory.path())
                .iter()
                .filter(|name| name.contains("invalidated"))
                .for_each(|name| fs::remove_file(directory.path().join(name)).unwrap());
            fs::write(&journal, bytes).unwrap();
            restarted(&time, &path, 2).await.2.entries
        };
        assert_eq!(entries_with(&whole).await, 1);
        assert_eq!(entries_with(&whole[..whole.len() - 1]).await, 2, "that call had not returned");
        for damaged in 0..36 {
            let mut bytes = whole.clone();
            bytes[damaged] ^= 1;
            assert_eq!(entries_with(&bytes).await, 0, "byte {damaged}");
            assert_eq!(entries_with(&whole[..damaged]).await, 0, "of {damaged} bytes");
        }
    });
}

#[test]
fn snapshots_and_journals_are_for_their_owner_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache.snapshot");
    let modes = || {
        let modes = names(directory.path()).into_iter().map(|name| {
            let about = fs::symlink_metadata(directory.path().join(&name)).unwrap();
            format!("{name} {:o}", about.mode())
        });
        modes.collect::<Vec<_>>()
    };
    run(async |time| {
        let (cache, file, _) = restarted(&time, &path, 1).await;
        assert_eq!(modes(), ["cache.snapshot.invalidated.0 100600"]);
        cache.insert(key(1), "a user's answer".to_owned());
        for number in 1..=2 {
            file.write(&cache, NOON).unwrap();
            let journal = format!("cache.snapshot.invalidated.{number} 100600");
            assert_eq!(modes(), ["cache.snapshot 100600".to_owned(), journal]);
        }
    });
}

/// In a folder that others may write, a link under a name that is known beforehand leads to a file of this process.
#[test]
fn snapshots_follow_no_link() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let snapshot = path("cache.snapshot");
    fs::write(path("victim"), "untouched").unwrap();
    run(async |time| {
        let (cache, file, _) = restarted(&time, &snapshot, 1).await;
        cache.insert(key(1), String::new());
        symlink(path("victim"), path("cache.snapshot.new")).unwrap();
        symlink(path("victim"), path("cache.snapshot.invalidated.1")).unwrap();
        file.write(&cache, NOON).unwrap();
        cache.invalidate(&key(1), Invalidation::Hard);
        assert_eq!(fs::read_to_string(path("victim")).unwrap(), "untouched");
        assert_eq!(names(directory.path()), ["cache.snapshot", "cache.snapshot.invalidated.1", "victim"]);
        assert!(fs::symlink_metadata(&snapshot).unwrap().is_file());

        // Nor is one read: another user may have written its target.
        file.write(&cache, NOON).unwrap();
        fs::rename(&snapshot, path("elsewhere")).unwrap();
        symlink(path("elsewhere"), &snapshot).unwrap();
        let cache = started(&stampede(), &time, 2).await;
        let file = SnapshotFile::new(&snapshot, snapshots());
        let refused = file.restore(&cache, NOON).unwrap_err();
        assert!(refused.to_string().contains("it is a link"), "{refused}");
        // The next snapshot takes its place.
        file.write(&cache, NOON).unwrap();
        assert!(fs::symlink_metadata(&snapshot).unwrap().is_file() && path("elsewhere").exists());
    });
}

/// A crash at each of a thousand points while a snapshot is written over an old one, as the file system shows it: the unfinished
/// file has another name, so that the old snapshot is read.
#[test]
fn a_crash_at_any_point_leaves_the_old_or_the_new_snapshot() {
    let (old, new) = (written(100), written(1_000));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache.snapshot");
    for point in 0..=1_000 {
        let written = new.len() * point / 1_000;
        fs::write(&path, &old).unwrap();
        fs::write(path.with_extension("snapshot.new"), &new[..written]).unwrap();
        let entries = run(async |time| {
            let (cache, _, restored) = restarted(&time, &path, 2).await;
            assert_eq!(restored.entries, 100);
            cache.entries().count()
        });
        assert_eq!(entries, 100);
        // Should a file be cut all the same, only whole blocks of it are used.
        if point < 1_000 {
            let (restored, entries) = read(&new[..written]);
            assert!(matches!(restored, Err(RestoreError::Truncated { .. })), "{restored:?}");
            assert!(entries.iter().all(|(key, value)| is_written(key, value)));
        }
    }
}

/// True for the entries of [`written`].
fn is_written(key: &str, value: &str) -> bool {
    let number: usize = key["key ".len()..].parse().unwrap();
    value == number.to_string().repeat(1 + number % 50)
}

proptest! {
    /// No change of a byte leads to a wrong value.
    #[test]
    fn damage_is_found(at in any::<prop::sample::Index>(), by in 1_u8..) {
        let mut bytes = written(500);
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        let (restored, entries) = read(&bytes);
        prop_assert!(restored.is_err());
        prop_assert!(entries.iter().all(|(key, value)| is_written(key, value)));
    }

    /// Whatever the keys, values and times are, they are the same afterwards.
    #[test]
    fn what_is_written_is_read(
        stored in prop::collection::btree_map(".{0,40}", (".{0,400}", 1_u64..1_000_000, 0_u64..1_000_000), 0..60),
    ) {
        let mut bytes = Vec::new();
        let listed = |cache: &TestedCache| {
            let mut listed: Vec<_> = cache
                .entries()
                .map(|(key, stored)| (key, stored.value, stored.age, stored.fresh_for, stored.servable_for))
                .collect();
            listed.sort();
            listed
        };
        let before = run(async |time| {
            let cache = started(&stampede(), &time, 1).await;
            for (key, (value, ttl, swr)) in &stored {
                let ms = Duration::from_millis;
                let lifespan = Lifespan { ttl: ms(*ttl), swr: ms(*swr), ..Lifespan::NONE };
                cache.insert_for(key.clone(), value.clone(), lifespan);
            }
            snapshots().write(&cache, NOON, &mut bytes).unwrap();
            listed(&cache)
        });
        let after = run(async |time| {
            let cache = started(&stampede(), &time, 2).await;
            snapshots().read(&cache, NOON, &bytes[..]).unwrap();
            listed(&cache)
        });
        prop_assert_eq!(before.len(), stored.len());
        prop_assert_eq!(before, after);
    }
}

#[test]
fn a_large_value_is_a_block_of_its_own() {
    run(async |time| {
        let cache = started(&stampede(), &time, 1).await;
        let large = "0123456789".repeat(100_000);
        cache.insert("a".to_owned(), large.clone());
        cache.insert("b".to_owned(), "small".to_owned());
        cache.insert("c".to_owned(), large.clone());
        let mut bytes = Vec::new();
        snapshots().write(&cache, NOON, &mut bytes).unwrap();
        let restarted = started(&stampede(), &time, 2).await;
        assert_eq!(snapshots().read(&restarted, NOON, &bytes[..]).unwrap().entries, 3);
        assert_eq!(
            [restarted.get("a"), restarted.get("b"), restarted.get("c")].map(Option::unwrap),
            [large.clone(), "small".to_owned(), large]
        );
    });
}
