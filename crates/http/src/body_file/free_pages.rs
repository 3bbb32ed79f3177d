//! The free pages of a file. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// Ranges of free pages; no two are adjacent.
#[derive(Debug)]
pub struct FreePages {
    /// First page and length.
    by_start: BTreeMap<usize, usize>,
    /// Length and first page.
    by_length: BTreeSet<(usize, usize)>,
    pages: usize,
}

impl FreePages {
    /// All of the first `pages` pages.
    #[must_use]
    pub fn new(pages: usize) -> Self {
        let mut free = Self { by_start: BTreeMap::new(), by_length: BTreeSet::new(), pages: 0 };
        free.insert(0, pages);
        free
    }

    /// The first of `pages` adjacent pages, which are not free any more: the start of the shortest range that is long enough.
    pub fn allocate(&mut self, pages: usize) -> Option<usize> {
        let &(length, start) = self.by_length.range((pages, 0)..).next()?;
        self.remove(start, length);
        self.insert(start + pages, length - pages);
        Some(start)
    }

    /// `pages` pages from `start` on are free again.
    pub fn release(&mut self, start: usize, pages: usize) {
        let (mut first, mut end) = (start, start + pages);
        if let Some((&before, &length)) = self.by_start.range(..start).next_back()
            && before + length == start
        {
            self.remove(before, length);
            first = before;
        }
        if let Some(&length) = self.by_start.get(&end) {
            self.remove(end, length);
            end += length;
        }
        self.insert(first, end - first);
    }

    /// Count of all free pages.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// All of them, which are not free any more.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(0))
    }

    /// First page and length of each range.
    pub fn ranges(&self) -> impl Iterator<Item = (usize, usize)> {
        self.by_start.iter().map(|(start, length)| (*start, *length))
    }

    fn insert(&mut self, start: usize, length: usize) {
        if length > 0 {
            self.by_start.insert(start, length);
            self.by_length.insert((length, start));
            self.pages += length;
        }
    }

    fn remove(&mut self, start: usize, length: usize) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
        self.pages -= length;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGES: usize = 64;

    /// The shortest run of free pages that is long enough, the first of several.
    fn best_fit(is_used: &[bool], pages: usize) -> Option<usize> {
        let mut runs = Vec::new();
        let mut at = 0;
        for run in is_used.chunk_by(|one, next| one == next) {
            if !run[0] && run.len() >= pages {
                runs.push((run.len(), at));
            }
            at += run.len();
        }
        runs.into_iter().min().map(|(_, start)| start)
    }

    proptest! {
        /// Any order of allocations and releases: the same pages as a search through all of them.
        #[test]
        fn pages_equal_those_of_a_naive_search(
            steps in prop::collection::vec((1_usize..20, any::<prop::sample::Index>(), any::<bool>()), 0..80),
        ) {
            let mut free = FreePages::new(PAGES);
            let mut is_used = [false; PAGES];
            let mut live: Vec<(usize, usize)> = Vec::new();
            for (pages, index, is_release) in steps {
                if is_release && !live.is_empty() {
                    let (start, pages) = live.swap_remove(index.index(live.len()));
                    free.release(start, pages);
                    is_used[start..start + pages].fill(false);
                } else {
                    let start = free.allocate(pages);
                    prop_assert_eq!(start, best_fit(&is_used, pages));
                    let Some(start) = start else { continue };
                    is_used[start..start + pages].fill(true);
                    live.push((start, pages));
                }
                let lengths = free.by_start.iter().map(|(start, length)| (*length, *start));
                prop_assert_eq!(&lengths.collect::<BTreeSet<_>>(), &free.by_length);
                prop_assert_eq!(free.pages(), is_used.iter().filter(|is_used| !**is_used).count());
            }
        }
    }
}
