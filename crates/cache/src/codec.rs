//! Keys and values as bytes: for a [tier](crate::tier) that nodes share, and for [snapshots](crate::Snapshots).

use std::sync::Arc;

use bytes::Bytes;

/// Converts keys or values to bytes and back.
pub trait Codec<T>: Send + Sync + 'static {
    /// Encodes a value. Nodes that share a [tier](crate::tier) have to produce the same bytes for the same key.
    fn encode(&self, value: &T) -> Bytes;

    /// Decodes a value. `None`: the bytes are of another format. There is no such value then.
    fn decode(&self, bytes: Bytes) -> Option<T>;
}

/// Stores strings and bytes as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawCodec;

impl Codec<Bytes> for RawCodec {
    fn encode(&self, value: &Bytes) -> Bytes {
        value.clone()
    }

    fn decode(&self, bytes: Bytes) -> Option<Bytes> {
        Some(bytes)
    }
}

impl Codec<Vec<u8>> for RawCodec {
    fn encode(&self, value: &Vec<u8>) -> Bytes {
        Bytes::copy_from_slice(value)
    }

    fn decode(&self, bytes: Bytes) -> Option<Vec<u8>> {
        Some(bytes.into())
    }
}

impl Codec<String> for RawCodec {
    fn encode(&self, value: &String) -> Bytes {
        Bytes::copy_from_slice(value.as_bytes())
    }

    fn decode(&self, bytes: Bytes) -> Option<String> {
        String::from_utf8(bytes.into()).ok()
    }
}

impl Codec<Arc<str>> for RawCodec {
    fn encode(&self, value: &Arc<str>) -> Bytes {
        Bytes::copy_from_slice(value.as_bytes())
    }

    fn decode(&self, bytes: Bytes) -> Option<Arc<str>> {
        std::str::from_utf8(&bytes).ok().map(Into::into)
    }
}
