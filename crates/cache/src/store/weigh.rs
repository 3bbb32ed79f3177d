//! The weight of keys and values in bytes.

use std::mem::needs_drop;

/// Bytes that a value owns beyond its own size, such as those on the heap.
///
/// Implemented for strings, bytes and numbers, and for vectors, arrays, pairs, options, boxes and arcs of them. A
/// `bytes::Bytes` counts with its length. A slice of a larger buffer keeps the whole buffer alive: copy it before
/// storing it. For other types implement `Weigh`, or pass a function to [`Builder::weigh`](crate::Builder::weigh).
pub trait Weigh {
    /// Number of bytes.
    fn heap_bytes(&self) -> usize;
}

/// Bytes that a key and its value own: the usual argument of [`Builder::weigh`](crate::Builder::weigh).
pub fn heap_bytes<K: Weigh, V: Weigh>(key: &K, value: &V) -> usize {
    key.heap_bytes() + value.heap_bytes()
}

/// The counters in front of an `Arc`'s value.
const ARC_COUNTS: usize = 2 * size_of::<usize>();

macro_rules! weigh {
    ($($type:ty: $self:ident => $bytes:expr;)*) => {
        $(impl Weigh for $type {
            fn heap_bytes(&$self) -> usize {
                $bytes
            }
        })*
    };
}

weigh! {
    String: self => self.capacity();
    Box<str>: self => self.len();
    Box<[u8]>: self => self.len();
    std::sync::Arc<str>: self => self.len() + ARC_COUNTS;
    std::sync::Arc<[u8]>: self => self.len() + ARC_COUNTS;
    &'static str: self => 0;
    &'static [u8]: self => 0;
    (): self => 0;
    bool: self => 0;
    u8: self => 0;
    u16: self => 0;
    u32: self => 0;
    u64: self => 0;
    u128: self => 0;
    usize: self => 0;
    i8: self => 0;
    i16: self => 0;
    i32: self => 0;
    i64: self => 0;
    i128: self => 0;
    isize: self => 0;
    f32: self => 0;
    f64: self => 0;
    char: self => 0;
    std::time::Duration: self => 0;
}

impl Weigh for bytes::Bytes {
    fn heap_bytes(&self) -> usize {
        self.len()
    }
}

impl<T: Weigh> Weigh for Vec<T> {
    fn heap_bytes(&self) -> usize {
        // Values without a destructor own nothing.
        let owned = if needs_drop::<T>() { self.iter().map(Weigh::heap_bytes).sum() } else { 0 };
        self.capacity() * size_of::<T>() + owned
    }
}

impl<T: Weigh, const N: usize> Weigh for [T; N] {
    fn heap_bytes(&self) -> usize {
        self.iter().map(Weigh::heap_bytes).sum()
    }
}

impl<T: Weigh> Weigh for Option<T> {
    fn heap_bytes(&self) -> usize {
        self.as_ref().map_or(0, Weigh::heap_bytes)
    }
}

impl<T: Weigh> Weigh for std::sync::Arc<T> {
    fn heap_bytes(&self) -> usize {
        ARC_COUNTS + size_of::<T>() + (**self).heap_bytes()
    }
}

impl<T: Weigh> Weigh for Box<T> {
    fn heap_bytes(&self) -> usize {
        size_of::<T>() + (**self).heap_bytes()
    }
}

impl<A: Weigh, B: Weigh> Weigh for (A, B) {
    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes() + self.1.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn heap_bytes_counts_owned_bytes() {
        assert_eq!(String::with_capacity(100).heap_bytes(), 100);
        assert_eq!(Vec::<u64>::with_capacity(10).heap_bytes(), 80);
        assert_eq!(vec![Some("four".to_owned()), None].heap_bytes(), 2 * size_of::<Option<String>>() + 4);
        assert_eq!(Arc::<[u8]>::from([0; 100]).heap_bytes(), 116);
        assert_eq!(Arc::new(Box::<str>::from("seven b")).heap_bytes(), 16 + 16 + 7);
        assert_eq!((7_u64, [1.5_f64; 3]).heap_bytes(), 0);
        assert_eq!(heap_bytes(&"key".to_owned(), &vec![0_u8; 50]), 53);
    }
}
