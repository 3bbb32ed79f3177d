//! Bodies that the kernel can send without a copy.

use std::{os::fd::OwnedFd, sync::OnceLock};

use bytes::Bytes;
use rustix::fs::{MemfdFlags, memfd_create};

/// Smallest body for `sendfile`. Below that, one copy costs less than a second system call.
pub(crate) const SENDFILE_BYTES_MIN: usize = 24 << 10;

/// A body in memory, with the same bytes in a memfd that `sendfile` can read.
#[derive(Debug)]
pub(crate) struct MemfdBody {
    body: Bytes,
    /// Made at first use. `None`: no file descriptor was left.
    file: OnceLock<Option<OwnedFd>>,
}

impl MemfdBody {
    pub(crate) fn new(body: Bytes) -> Self {
        Self { body, file: OnceLock::new() }
    }

    pub(crate) fn body(&self) -> &Bytes {
        &self.body
    }

    pub(crate) fn is_large(&self) -> bool {
        self.body.len() >= SENDFILE_BYTES_MIN
    }

    pub(crate) fn file(&self) -> Option<&OwnedFd> {
        let make = || {
            let file = memfd_create("stockade-body", MemfdFlags::CLOEXEC).ok()?;
            let mut rest = &self.body[..];
            while !rest.is_empty() {
                let written = rustix::io::write(&file, rest).ok().filter(|written| *written > 0)?;
                rest = &rest[written..];
            }
            Some(file)
        };
        self.file.get_or_init(make).as_ref()
    }

    /// The offset of a slice that lies within this body's memory.
    pub(crate) fn offset_of(&self, slice: &[u8]) -> Option<u64> {
        let body = self.body.as_ptr_range();
        let slice = slice.as_ptr_range();
        let is_inside = body.start <= slice.start && slice.end <= body.end;
        is_inside.then(|| (slice.start.addr() - body.start.addr()) as u64)
    }
}
