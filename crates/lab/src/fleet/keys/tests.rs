use proptest::prelude::*;
use stockade_model::seed::Seed;

use super::*;

fn zipf(exponent: f64) -> Popularity {
    Popularity::Zipf { exponent }
}

fn partitions(popularity: Popularity, keys: u64, count: u64) -> Vec<PartitionKeys> {
    (0..count).map(|number| PartitionKeys::new(popularity, keys, count, number)).collect()
}

/// Far from rank 1 the weights are small compared with an integral from 1.
#[test]
fn weight_sum_of_rare_keys_is_exact() {
    for (exponent, keys, count) in
        [(2.992_188_071_934_165, 10_010, 286), (3.0, 20_000, 299), (2.9, 19_999, 201)]
    {
        let parts = partitions(zipf(exponent), keys, count);
        let last = &parts[parts.len() - 1];
        let exact: f64 = (0..last.count()).rev().map(|key| last.rank(key).powf(-exponent)).sum();
        assert!(
            (last.weight_sum() / exact - 1.0).abs() < 1e-11,
            "{exponent} {keys} {count}: {} {exact}",
            last.weight_sum()
        );
    }
}

proptest! {
    #[test]
    fn weight_sums_of_partitions_add_up_to_the_whole(
        exponent in 0.0..3.0_f64,
        keys in 1..20_000_u64,
        count in 1..300_u64,
    ) {
        let count = count.min(keys);
        let parts = partitions(zipf(exponent), keys, count);
        prop_assert_eq!(parts.iter().map(|part| u64::from(part.count())).sum::<u64>(), keys);
        let exact: f64 = (1..=keys).rev().map(|rank| (rank as f64).powf(-exponent)).sum();
        let weight_sum: f64 = parts.iter().map(PartitionKeys::weight_sum).sum();
        prop_assert!((weight_sum / exact - 1.0).abs() < 1e-11, "{weight_sum} {exact}");
        // The sum of one partition, which errors of others cannot hide.
        let of_last = &parts[parts.len() - 1];
        let exact: f64 = (0..of_last.count()).rev().map(|key| of_last.rank(key).powf(-exponent)).sum();
        prop_assert!((of_last.weight_sum() / exact - 1.0).abs() < 1e-11, "{} {exact}", of_last.weight_sum());
    }

    #[test]
    fn draws_follow_the_weights(
        exponent in 0.0..3.0_f64,
        count in 1..40_u64,
        number in 0..40_u64,
        of_each in 1..60_u64,
        seed: u64,
    ) {
        const DRAWS: u32 = 20_000;
        let number = number.min(count - 1);
        let part = PartitionKeys::new(zipf(exponent), count * of_each, count, number);
        let mut rng = Seed(seed).stream("draws");
        let mut drawn = vec![0_u32; part.count() as usize];
        (0..DRAWS).for_each(|_| drawn[part.draw(&mut rng) as usize] += 1);
        // Each count within five standard deviations; rare keys together.
        let (mut rare, mut rare_expected) = (0.0, 0.0);
        let check = |drawn: f64, expected: f64| {
            let within = 6.0 * expected.sqrt() + 1.0;
            prop_assert!((drawn - expected).abs() <= within, "{drawn} {expected}");
            Ok(())
        };
        for (key, drawn) in (0..).zip(drawn) {
            let expected = part.rank(key).powf(-exponent) / part.weight_sum() * f64::from(DRAWS);
            if expected < 20.0 {
                rare += f64::from(drawn);
                rare_expected += expected;
            } else {
                check(drawn.into(), expected)?;
            }
        }
        check(rare, rare_expected)?;
    }
}

/// Draws from a billion keys in 4,096 partitions, compared with those of the existing sampler, which has no partitions.
#[test]
fn partitions_together_have_the_distribution_of_the_whole() {
    const KEYS: u64 = 1_000_000_000;
    const DRAWS: u32 = 400_000;
    let parts = partitions(zipf(0.99), KEYS, 4_096);
    let total: f64 = parts.iter().map(PartitionKeys::weight_sum).sum();
    // Up to which rank: a decade each.
    let bounds: Vec<f64> = (0..=9).map(|decade| 10_f64.powi(decade)).collect();
    let decade = |rank: f64| bounds.partition_point(|bound| *bound < rank);
    let mut here = [0_f64; 11];
    let mut rng = Seed(1).stream("draws");
    for part in &parts {
        let draws = f64::from(DRAWS) * part.weight_sum() / total;
        let draws = draws.floor() + f64::from(rng.random::<f64>() < draws.fract());
        let mut left = draws;
        while left > 0.0 {
            here[decade(part.rank(part.draw(&mut rng)))] += 1.0;
            left -= 1.0;
        }
    }
    let mut whole = [0_f64; 11];
    let mut draws = zipf(0.99).keys(usize::try_from(KEYS).unwrap(), Seed(2));
    (0..DRAWS).for_each(|_| whole[decade((draws.draw() + 1) as f64)] += 1.0);
    for (here, whole) in here.into_iter().zip(whole) {
        assert!((here - whole).abs() <= 5.0 * (here + whole).sqrt() + 1.0, "{here} {whole}");
    }
}

#[test]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole numbers")]
fn uniform_keys_have_equal_weight_sums() {
    let parts = partitions(Popularity::Uniform, 1_003, 10);
    assert_eq!(parts.iter().map(|part| part.weight_sum() as u64).sum::<u64>(), 1_003);
    let mut rng = Seed(1).stream("draws");
    assert!((0..10_000).all(|_| parts[9].draw(&mut rng) < parts[9].count()));
    assert_eq!((parts[2].count(), parts[3].count(), parts[3].rank(1) as u64), (101, 100, 14));
}
