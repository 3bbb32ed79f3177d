use std::collections::BTreeSet;

use super::*;

fn push(builder: &mut TraceBuilder, at_ns: u64, key: u64, bytes: Option<u64>) {
    builder.push(&NewRequest { bytes, ..NewRequest::read(at_ns, &key.to_le_bytes()) });
}

fn times_of(seconds: &[u64]) -> (Vec<u64>, Totals) {
    let mut builder = TraceBuilder::new(usize::MAX, 1);
    seconds.iter().for_each(|second| push(&mut builder, second * SECOND_NS, 1, None));
    let trace = builder.finish();
    (trace.requests().iter().map(|request| request.at_ns / 1_000_000).collect(), *trace.totals())
}

#[test]
fn whole_seconds_are_spread() {
    let (times_ms, totals) = times_of(&[100, 100, 100, 100, 101, 103]);
    assert_eq!(times_ms, [0, 250, 500, 750, 1_000, 3_000]);
    assert_eq!(totals.span_ns, 4 * SECOND_NS - 1);
}

#[test]
fn lines_are_sorted_by_time() {
    let mut builder = TraceBuilder::new(usize::MAX, 1);
    for (second, key, ttl_ns) in
        [(105, 1, None), (103, 2, Some(7)), (99, 3, None), (105, 4, Some(8)), (106, 5, None)]
    {
        let key = [key];
        builder.push(&NewRequest { ttl_ns, ..NewRequest::read(second * SECOND_NS, &key) });
    }
    let trace = builder.finish();
    let order: Vec<_> =
        trace.requests().iter().map(|request| (request.at_ns / 1_000_000, request.key())).collect();
    assert_eq!(order, [(0, 2), (4_000, 1), (6_000, 0), (6_500, 3), (7_000, 4)]);
    let ttls: Vec<_> = (0..5).map(|index| trace.ttl_ns(index)).collect();
    assert_eq!(ttls, [None, Some(7), None, Some(8), None]);
    assert_eq!((trace.totals().reversals, trace.totals().reversal_max_ns), (2, 6 * SECOND_NS));
}

#[test]
fn sizes_that_the_log_lacks_are_those_of_the_key() {
    let mut builder = TraceBuilder::new(usize::MAX, 1);
    for (key, bytes) in [(1, None), (1, Some(10)), (2, None), (1, None), (1, Some(20)), (1, None)] {
        push(&mut builder, 1, key, bytes);
    }
    let trace = builder.finish();
    let sizes: Vec<u32> = trace.requests().iter().map(|request| request.bytes).collect();
    assert_eq!(sizes, [10, 10, 0, 10, 20, 20]);
    assert_eq!((trace.totals().bytes, trace.totals().object_bytes), (30, 70));
    assert_eq!(trace.footprint_bytes(1), 20 + 1 + 1);
}

#[test]
fn long_logs_are_sampled_by_key() {
    let mut builder = TraceBuilder::new(10_000, 64);
    // Key k is requested every k + 1 rounds.
    for round in 0..100_u64 {
        for key in 0..4_096 {
            if round % (key % 32 + 1) == 0 {
                push(&mut builder, round * 1_000 + key, key, Some(key));
            }
        }
    }
    let trace = builder.finish();
    assert!(trace.requests().len() <= 10_000 && !trace.is_whole());
    let halvings = -trace.sampled_share().log2();
    assert!(halvings >= 1.0 && halvings.fract() == 0.0, "rate {}", trace.sampled_share());
    // Keys are numbered densely, each has all of its requests, and a key is known by its size.
    let mut requests = vec![0_u64; trace.key_count()];
    let mut sizes = vec![BTreeSet::new(); trace.key_count()];
    for request in trace.requests() {
        requests[request.key() as usize] += 1;
        sizes[request.key() as usize].insert(request.bytes);
    }
    for (requests, sizes) in requests.iter().zip(&sizes) {
        let key = u64::from(*sizes.first().expect("each number is used"));
        assert_eq!(sizes.len(), 1);
        assert_eq!(*requests, 99 / (key % 32 + 1) + 1, "key {key}");
    }
    let estimate = trace.keys_estimate() as f64;
    assert!((0.8..1.2).contains(&(estimate / 4_096.0)), "{estimate}");
    assert_eq!(trace.totals().requests, (0..4_096).map(|key| 99 / (key % 32 + 1) + 1).sum::<u64>());
}

#[test]
fn sample_has_the_share_of_each_kind_of_key() {
    let mut builder = TraceBuilder::new(usize::MAX, 1);
    for round in 0..64_u64 {
        for key in 0..1_024 {
            // A quarter of the keys each is requested 64, 16, 4 and 1 times.
            if round % [1, 4, 16, 64][usize::try_from(key % 4).unwrap_or(0)] == 0 {
                push(&mut builder, round * 10_000 + key, key, Some(1));
            }
        }
    }
    let trace = builder.finish();
    let sample = trace.sample(16);
    assert_eq!((sample.key_count(), sample.sampled_share()), (64, 1.0 / 16.0));
    assert_eq!(sample.requests().len() * 16, trace.requests().len());
    assert_eq!(sample.totals(), trace.totals());
}

#[test]
fn next_positions_are_those_of_the_same_key() {
    let mut builder = TraceBuilder::new(usize::MAX, 1);
    [1, 2, 1, 3, 2, 1].into_iter().for_each(|key| push(&mut builder, 1, key, None));
    assert_eq!(builder.finish().next_positions(), [3, 5, 6, NEVER, NEVER, NEVER]);
}

#[test]
fn memory_is_bounded_whatever_the_keys() {
    // Few keys: nothing is sampled, and the log is refused in the end.
    let mut builder = TraceBuilder::new(1_000, 64);
    for n in 0..10_000 {
        push(&mut builder, n, n % 3, None);
    }
    assert!(builder.is_full());
    assert_eq!(builder.finish().requests().len(), 2_000);
    // More keys than are wanted at least, and fewer than twice as many: twice as many requests are kept.
    let mut builder = TraceBuilder::new(10_000, 20_000);
    for n in 0..60_000 {
        push(&mut builder, n, n % 30_000, None);
    }
    assert!(!builder.is_full());
    let trace = builder.finish();
    assert!(
        trace.requests().len() <= 20_000 && trace.key_count() >= 1_024,
        "{} requests",
        trace.requests().len()
    );
}

#[test]
fn times_at_the_end_of_the_range_are_kept() {
    let mut builder = TraceBuilder::new(usize::MAX, 1);
    push(&mut builder, 0, 1, Some(u64::MAX));
    push(&mut builder, u64::MAX / SECOND_NS * SECOND_NS, 1, Some(u64::MAX));
    push(&mut builder, u64::MAX / SECOND_NS * SECOND_NS, 2, None);
    let trace = builder.finish();
    assert!(trace.requests().is_sorted_by_key(|request| request.at_ns));
    assert_eq!(trace.totals().bytes, u64::MAX);
}

#[test]
fn busiest_part_is_bounded_in_time() {
    let at = |at_ns: u64| Request::new(at_ns, 0, Exchange::Planned, 1);
    let requests: Vec<_> = [0, 100, 101, 102, 103, 200, 300].into_iter().map(at).collect();
    let times = |span| {
        requests[busiest(&requests, span, 100)].iter().map(|request| request.at_ns).collect::<Vec<_>>()
    };
    assert_eq!(times(3), [100, 101, 102, 103]);
    assert_eq!(times(100), [100, 101, 102, 103, 200]);
    assert_eq!(times(u64::MAX).len(), 7);
    assert!(busiest(&[], 1, 1).is_empty());
}
