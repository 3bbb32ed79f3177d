//! What keys and values weigh.

/// Bytes that something owns beyond its own size: on the heap, or wherever its pointers lead.
///
/// Implemented for strings and bytes, for what owns nothing, and for pairs, options and boxes of
/// those. For types of your own implement it, or give [`Builder::weigh`](crate::Builder::weigh) a
/// function.
pub trait Weigh {
    /// The bytes.
    fn heap_bytes(&self) -> usize;
}

/// What a key and its value own: the usual argument of [`Builder::weigh`](crate::Builder::weigh).
pub fn heap_bytes<K: Weigh, V: Weigh>(key: &K, value: &V) -> usize {
    key.heap_bytes() + value.heap_bytes()
}

/// The counts that an `Arc` has in front of its value.
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
    Vec<u8>: self => self.capacity();
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
    i32: self => 0;
    i64: self => 0;
}

#[cfg(feature = "bytes")]
impl Weigh for bytes::Bytes {
    fn heap_bytes(&self) -> usize {
        self.len()
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
