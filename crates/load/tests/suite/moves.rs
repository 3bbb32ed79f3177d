//! Shares that move during a load: each request is still sent once.

use std::{future::ready, num::NonZeroUsize, pin::Pin, sync::Arc, time::Duration};

use stockade_load::generator::{CancellationToken, Control, LoadTest, Share, ShareMove};

use super::{
    pacing::constant,
    stub::{SampleLog, load, ok, responding},
};

/// Starts at once, and has these moves.
#[derive(Debug)]
struct Moves(Vec<ShareMove>);

impl Control for Moves {
    fn time_until_start(&self, _: usize) -> Pin<Box<dyn Future<Output = Duration> + Send + '_>> {
        Box::pin(ready(Duration::from_millis(10)))
    }

    fn next_move(&self, followed: usize, place: u64) -> Option<ShareMove> {
        self.0.get(followed).filter(|next| next.from <= place).cloned()
    }

    fn may_send(&self) -> bool {
        true
    }
}

#[test]
fn each_request_is_sent_once_wherever_shares_move() {
    let address = responding(|_| ok("hello"));
    // 60 requests of the warm-up, and 120 others.
    let plan = constant("600/s", Duration::from_millis(200)).with_warmup(Duration::from_millis(100)).unwrap();
    let whole = LoadTest {
        observes_samples: true,
        threads: NonZeroUsize::new(2),
        first_request: 1_000,
        ..load(&format!("http://{address}/"), plan)
    };
    let shares = |weights: &[u32]| {
        Share::by_weight(&weights.iter().map(|weight| (*weight).try_into().unwrap()).collect::<Vec<_>>())
    };
    for places in [[0, 1], [13, 60], [59, 61], [60, 179], [77, 78], [100, 5_000]] {
        let [first, second, third] = [shares(&[1, 1]), shares(&[1, 3]), shares(&[5, 1])];
        let (mut numbers, mut warmup) = (Vec::new(), 0);
        for ((first, second), third) in first.into_iter().zip(second).zip(third) {
            let moves = Moves(vec![
                ShareMove { from: places[0], share: second },
                ShareMove { from: places[1], share: third },
            ]);
            let load = LoadTest { share: first, ..whole.clone() };
            let mut log = SampleLog::default();
            let ready = load.prepare().unwrap().with_control(Arc::new(moves));
            let summary = ready.run(&mut log, &CancellationToken::new()).unwrap().summary;
            warmup += summary.warmup.expect("one").requests();
            let numbered = log.samples.iter().map(|sample| {
                let due = sample.timing.scheduled - summary.measured_from;
                (sample.number, due)
            });
            numbers.extend(numbered);
        }
        numbers.sort_unstable();
        let due = |n| Duration::from_nanos(n * 1_000_000_000 / 600);
        let expected: Vec<_> = (0..120_u64).map(|n| (1_000 + n, due(n))).collect();
        assert_eq!((numbers, warmup), (expected, 60), "{places:?}");
    }
}
