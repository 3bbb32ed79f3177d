//! A source with scheduled failures, in virtual time.

use std::{collections::BTreeMap, ops::Bound, sync::Arc, time::Duration};

use stockade_model::{
    capacity::Capacity,
    seed::Seed,
    source::Source,
    time::{Runtime, Time, Virtual, before},
};
use stockade_source::{Availability, SourceBehavior, SourceStage, SourceStages, SourceUrl, StagedSource};

const SECOND: Duration = Duration::from_secs(1);

fn staged(behavior: &SourceBehavior, time: &Virtual) -> (Arc<StagedSource<Virtual>>, Arc<str>) {
    let source = Virtual::new().run("simulated:3".parse::<SourceUrl>().unwrap().open()).unwrap().unwrap();
    let id = Arc::clone(&Virtual::new().run(source.ids()).unwrap().unwrap()[0]);
    (Arc::new(StagedSource::new(source, behavior, time.clone(), Seed(1))), id)
}

fn behavior(later: &[SourceStage]) -> SourceBehavior {
    let first = SourceStage { latency: "100ms".parse().unwrap(), ..SourceStage::default() };
    SourceBehavior { stages: SourceStages::new(first, later.iter().cloned()), capacity: None }
}

#[test]
fn each_stage_has_its_own_behavior() {
    let slow =
        SourceStage { at: SECOND, latency: "500ms".parse().unwrap(), errors: 1.0, state: Availability::Up };
    let gone = SourceStage { at: SECOND * 2, state: Availability::Refusing, ..slow.clone() };
    let mute = SourceStage { at: SECOND * 3, state: Availability::Silent, ..slow.clone() };
    let time = Virtual::new();
    let (staged, id) = staged(&behavior(&[slow, gone, mute]), &time);
    let results = time
        .run(async {
            let mut results = Vec::new();
            staged.fetch(&id).await.unwrap();
            results.push(format!(
                "before the start: {:?}, {} fetches",
                time.now().elapsed(),
                staged.fetches()
            ));
            let began = time.now();
            staged.start();
            for second in 0..4 {
                let at = began + SECOND * second;
                time.sleep_until(at).await;
                let answer = before(&time, at + SECOND * 9, staged.fetch_stamped(&id)).await;
                let answer = match answer {
                    Some(Ok(found)) => format!("found: {}", found.is_some()),
                    Some(Err(error)) => error.to_string(),
                    None => "no answer".to_owned(),
                };
                results.push(format!("{answer} after {:?}", time.now() - at));
            }
            results
        })
        .unwrap();
    assert_eq!(
        results,
        [
            "before the start: 100ms, 0 fetches",
            "found: true after 100ms",
            "the origin: it answered with an error after 500ms",
            "the origin: connection refused after 0ns",
            "no answer after 9s",
        ]
    );
    let fetches = staged.take_fetches(Bound::Included(1));
    assert_eq!((staged.fetches(), fetches), (4, BTreeMap::from([(0, 1), (1, 1)])));
    let fetches = [Bound::Unbounded, Bound::Unbounded].map(|until| staged.take_fetches(until));
    assert_eq!(fetches, [BTreeMap::from([(2, 1), (3, 1)]), BTreeMap::new()], "counted once");
}

#[test]
fn error_share_matches_the_stage() {
    let time = Virtual::new();
    let some = SourceStage { errors: 0.25, ..SourceStage::default() };
    let (staged, id) = staged(&SourceBehavior { stages: SourceStages::new(some, []), capacity: None }, &time);
    let failed = time
        .run(async {
            staged.start();
            let mut failed = 0;
            for _ in 0..10_000 {
                failed += u32::from(staged.fetch(&id).await.is_err());
            }
            failed
        })
        .unwrap();
    // Four standard deviations.
    assert!((2_500 - 174..2_500 + 174).contains(&failed), "{failed}");
}

#[test]
fn cancelled_fetch_still_uses_its_worker() {
    let time = Virtual::new();
    let capacity = Some(Capacity { workers: 1, queue: 1 });
    let (staged, id) = staged(&SourceBehavior { capacity, ..behavior(&[]) }, &time);
    let results = time
        .run(async {
            staged.start();
            // Two callers with a timeout of a millisecond: one has the worker, one is in the queue.
            for _ in 0..2 {
                let patience = time.now() + Duration::from_millis(1);
                assert!(before(&time, patience, staged.fetch(&id)).await.is_none());
            }
            let full = staged.fetch(&id).await.unwrap_err().to_string();
            time.sleep_until(Time::ZERO + Duration::from_millis(150)).await;
            staged.fetch(&id).await.unwrap();
            format!("{full}; the next is done after {:?}", time.now().elapsed())
        })
        .unwrap();
    assert_eq!(results, "the origin: its queue is full; the next is done after 300ms");
    assert_eq!(staged.concurrent_max(), 2);
}

#[test]
fn response_has_its_version_and_time() {
    let time = Virtual::new();
    let (staged, id) = staged(&behavior(&[]), &time);
    let stamps = time
        .run(async {
            staged.start();
            let old = staged.fetch_stamped(&id).await.unwrap().unwrap();
            assert_eq!((staged.write(&id), staged.write(&id)), (1, 2));
            let new = staged.fetch_stamped(&id).await.unwrap().unwrap();
            assert_eq!(staged.fetch_stamped("not written").await.unwrap(), None);
            [(old.version, old.at.elapsed()), (new.version, new.at.elapsed())]
        })
        .unwrap();
    assert_eq!(stamps, [(0, SECOND / 10), (2, SECOND / 5)]);
}
