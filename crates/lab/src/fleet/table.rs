//! A hash table whose entries expire.

/// Values of type `T` by a 64-bit key, in open addressing. Expired values stay until the table is full: one key is rarely looked up after
/// that, and then its slot is used again.
#[derive(Clone, Debug)]
pub(super) struct ExpiringTable<T> {
    slots: Vec<(u64, T)>,
    /// Slots that are not vacant.
    used: usize,
}

/// No key: keys have at most 63 bits.
const VACANT: u64 = u64::MAX;

impl<T: Copy + Default> ExpiringTable<T> {
    const SLOTS_MIN: usize = 256;

    pub(super) fn new() -> Self {
        Self { slots: vec![(VACANT, T::default()); Self::SLOTS_MIN], used: 0 }
    }

    /// The slot of a key.
    pub(super) fn find(&self, key: u64) -> Option<usize> {
        let mut slot = self.first_slot(key);
        loop {
            match self.slots[slot].0 {
                known if known == key => return Some(slot),
                VACANT => return None,
                _ => slot = (slot + 1) & (self.slots.len() - 1),
            }
        }
    }

    pub(super) fn get(&self, slot: usize) -> T {
        self.slots[slot].1
    }

    pub(super) fn set(&mut self, slot: usize, value: T) {
        self.slots[slot].1 = value;
    }

    /// Adds a key that is not in the table. A full table first drops the values that `is_gone`.
    pub(super) fn add(&mut self, key: u64, value: T, is_gone: impl Fn(&T) -> bool) {
        if self.used * 4 >= self.slots.len() * 3 {
            self.rebuild(is_gone);
        }
        self.place(key, value);
    }

    /// Drops all values.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.slots.resize(Self::SLOTS_MIN, (VACANT, T::default()));
        self.used = 0;
    }

    /// The values in the table, expired ones included.
    pub(super) fn values(&self) -> impl Iterator<Item = T> {
        self.slots.iter().filter(|(key, _)| *key != VACANT).map(|(_, value)| *value)
    }

    fn rebuild(&mut self, is_gone: impl Fn(&T) -> bool) {
        let kept: Vec<_> =
            self.slots.iter().filter(|(key, value)| *key != VACANT && !is_gone(value)).copied().collect();
        let slots = (kept.len() * 2).next_power_of_two().max(Self::SLOTS_MIN);
        self.slots.clear();
        self.slots.resize(slots, (VACANT, T::default()));
        self.used = 0;
        kept.into_iter().for_each(|(key, value)| self.place(key, value));
    }

    fn place(&mut self, key: u64, value: T) {
        let mut slot = self.first_slot(key);
        while self.slots[slot].0 != VACANT {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        self.slots[slot] = (key, value);
        self.used += 1;
    }

    #[expect(clippy::cast_possible_truncation, reason = "a mask follows")]
    fn first_slot(&self, key: u64) -> usize {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash ^ (hash >> 32)) as usize & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn table_agrees_with_a_map(steps in proptest::collection::vec((0..400_u64, any::<u32>()), 1..2_000)) {
            let (mut table, mut map) = (ExpiringTable::new(), BTreeMap::new());
            for (key, value) in steps {
                match table.find(key) {
                    Some(slot) => table.set(slot, value),
                    None => table.add(key, value, |_| false),
                }
                map.insert(key, value);
            }
            prop_assert_eq!(table.values().count(), map.len());
            for (key, value) in map {
                prop_assert_eq!(table.find(key).map(|slot| table.get(slot)), Some(value));
            }
        }
    }

    #[test]
    fn full_table_drops_what_is_gone() {
        let mut table = ExpiringTable::new();
        (0..10_000_u64).for_each(|key| table.add(key, key, |known| known + 100 < key));
        assert!(table.slots.len() <= 512, "{}", table.slots.len());
        assert!((9_900..10_000).all(|key| table.find(key).is_some()));
        table.clear();
        assert_eq!((table.find(9_999), table.values().count()), (None, 0));
    }
}
