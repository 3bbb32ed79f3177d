//! The choice of documents for loads.

use std::{str::FromStr, sync::Arc};

use rand::{RngExt, seq::index};
use rand_distr::{Distribution, Zipf};
use stockade_model::seed::{Rng, Seed};

/// The number of documents that the workers choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentCount {
    Fixed(usize),
    /// The published rule: workers div (documents div 2) + 1, so that the documents grow with the
    /// load. With 680 documents: 1, 1, 3 and 30 for 10, 100, 1,000 and 10,000 workers.
    Scaled,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentCountError {
    /// Not a rule.
    #[error("`{0}` is not a choice of documents: write `scaled`, or `fixed:K` with K of 1 or more")]
    Unknown(String),
    /// The source has fewer than a burst requires.
    #[error(
        "fixed:{requested} asks for {requested} documents, and the source has {available}: ask for at most {available}"
    )]
    TooMany { requested: usize, available: usize },
    /// The source has fewer than an open load requires.
    #[error(
        "the load is for {requested} keys, and the source has {available} documents: ask for at most {available}"
    )]
    TooManyKeys { requested: usize, available: usize },
    /// A key that no request has.
    #[error(
        "an event purges key {key}, and the load is for {keys} keys: write a number up to {keys}, or \"*\""
    )]
    PurgedKey { key: usize, keys: usize },
    #[error("the source has no documents: fill it with --docs-from FILE.jsonl")]
    NoDocuments,
}

impl DocumentCount {
    pub(super) fn count(self, workers: usize, available: usize) -> Result<usize, DocumentCountError> {
        match self {
            _ if available == 0 => Err(DocumentCountError::NoDocuments),
            Self::Fixed(requested) if requested > available => {
                Err(DocumentCountError::TooMany { requested, available })
            }
            Self::Fixed(requested) => Ok(requested),
            Self::Scaled => Ok((workers / (available / 2).max(1) + 1).min(available)),
        }
    }

    /// Chooses the documents, and one of them for each worker.
    pub(super) fn assign(
        self,
        workers: usize,
        ids: &[Arc<str>],
        seed: Seed,
    ) -> Result<DocumentAssignment, DocumentCountError> {
        let count = self.count(workers, ids.len())?;
        let mut rng = seed.stream("documents");
        let chosen: Vec<_> =
            index::sample(&mut rng, ids.len(), count).into_iter().map(|i| Arc::clone(&ids[i])).collect();
        let by_worker: Vec<_> = (0..workers).map(|_| rng.random_range(0..count)).collect();
        let mut is_drawn = vec![false; count];
        by_worker.iter().for_each(|document| is_drawn[*document] = true);
        let distinct = is_drawn.into_iter().filter(|drawn| *drawn).count();
        Ok(DocumentAssignment { chosen, by_worker, distinct })
    }
}

impl FromStr for DocumentCount {
    type Err = DocumentCountError;

    fn from_str(text: &str) -> Result<Self, DocumentCountError> {
        match text.split_once(':') {
            None if text == "scaled" => Ok(Self::Scaled),
            Some(("fixed", count)) => match count.parse() {
                Ok(count @ 1..) => Ok(Self::Fixed(count)),
                _ => Err(DocumentCountError::Unknown(text.to_owned())),
            },
            _ => Err(DocumentCountError::Unknown(text.to_owned())),
        }
    }
}

impl std::fmt::Display for DocumentCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fixed(count) => write!(f, "fixed:{count}"),
            Self::Scaled => f.write_str("scaled"),
        }
    }
}

/// The distribution of requests over keys.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Popularity {
    #[default]
    Uniform,
    /// The k-th key has a weight of `1 / k^exponent` (Zipf's law).
    Zipf {
        /// 0 or more; about 1 is typical.
        exponent: f64,
    },
}

pub(crate) struct KeyDraws {
    count: usize,
    zipf: Option<Zipf<f64>>,
    draws: Rng,
}

impl Popularity {
    /// The number of keys: `requested`, or all documents.
    pub(super) fn count(requested: Option<usize>, available: usize) -> Result<usize, DocumentCountError> {
        match requested {
            _ if available == 0 => Err(DocumentCountError::NoDocuments),
            Some(requested) if requested > available => {
                Err(DocumentCountError::TooManyKeys { requested, available })
            }
            requested => Ok(requested.unwrap_or(available)),
        }
    }

    /// Keys from 0 to `count - 1`, drawn from `seed`.
    ///
    /// # Panics
    /// With an exponent below 0, which no file can have.
    pub(crate) fn keys(self, count: usize, seed: Seed) -> KeyDraws {
        let zipf = match self {
            Self::Uniform => None,
            Self::Zipf { exponent } => {
                Some(Zipf::new(count as f64, exponent).expect("an exponent is 0 or more"))
            }
        };
        KeyDraws { count, zipf, draws: seed.stream("keys") }
    }
}

impl KeyDraws {
    pub(crate) fn draw(&mut self) -> usize {
        let Some(zipf) = &self.zipf else { return self.draws.random_range(0..self.count) };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "ranks from 1 to `count`"
        )]
        let rank = zipf.sample(&mut self.draws) as usize;
        rank.clamp(1, self.count) - 1
    }
}

/// The documents of one burst and the one that each worker requests: the same for every compared strategy.
pub(super) struct DocumentAssignment {
    pub(super) chosen: Vec<Arc<str>>,
    pub(super) by_worker: Vec<usize>,
    pub(super) distinct: usize,
}

impl DocumentAssignment {
    pub(super) fn of(&self, worker: usize) -> &Arc<str> {
        &self.chosen[self.by_worker[worker]]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn scaled_rule_is_the_published_one() {
        for (available, counts) in [(680, [1, 1, 3, 30]), (777, [1, 1, 3, 26])] {
            let scaled = [10, 100, 1_000, 10_000]
                .map(|workers| DocumentCount::Scaled.count(workers, available).unwrap());
            assert_eq!(scaled, counts);
        }
        assert_eq!(DocumentCount::Scaled.count(10_000, 1), Ok(1), "at most the available documents");
    }

    #[test]
    fn draws_are_distinct_and_reproducible() {
        let ids: Vec<Arc<str>> = (0..680).map(|i| format!("{i}").into()).collect();
        let draw = |seed| DocumentCount::Fixed(30).assign(1_000, &ids, Seed(seed)).unwrap();
        let first = draw(1);
        assert_eq!(first.chosen.iter().collect::<BTreeSet<_>>().len(), 30);
        assert_eq!((0..1_000).map(|w| first.of(w)).collect::<BTreeSet<_>>().len(), first.distinct);
        assert_eq!(draw(1).by_worker, first.by_worker);
        assert_ne!(draw(2).chosen, first.chosen);
    }

    #[test]
    fn keys_are_drawn_by_popularity() {
        let shares = |popularity: Popularity| {
            let mut keys = popularity.keys(4, Seed(1));
            let mut drawn = [0_u32; 4];
            (0..100_000).for_each(|_| drawn[keys.draw()] += 1);
            drawn.map(|n| f64::from(n) / 100_000.0)
        };
        // The weights 1, 1/2, 1/3, 1/4 add up to 25/12.
        let zipf = shares(Popularity::Zipf { exponent: 1.0 });
        for (share, expected) in zipf.into_iter().zip([0.48, 0.24, 0.16, 0.12]) {
            assert!((share - expected).abs() < 0.007, "{zipf:?}");
        }
        assert!(shares(Popularity::Uniform).into_iter().all(|share| (share - 0.25).abs() < 0.007));
        assert_eq!(
            Popularity::count(Some(5), 4),
            Err(DocumentCountError::TooManyKeys { requested: 5, available: 4 })
        );
        assert_eq!((Popularity::count(None, 4), Popularity::count(Some(3), 4)), (Ok(4), Ok(3)));
    }

    #[test]
    fn invalid_choices_are_refused() {
        for text in ["fixed:0", "fixed:-1", "fixed:", "fixed", "scaled:3", "all"] {
            assert_eq!(text.parse::<DocumentCount>(), Err(DocumentCountError::Unknown(text.to_owned())));
        }
        assert_eq!(
            DocumentCount::Fixed(3).count(10, 2),
            Err(DocumentCountError::TooMany { requested: 3, available: 2 })
        );
        assert_eq!(DocumentCount::Scaled.count(10, 0), Err(DocumentCountError::NoDocuments));
    }
}
