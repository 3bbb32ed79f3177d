//! Memory for large stored bodies, from which the kernel sends without a copy: one file in memory (`memfd`) a cache.
//!
//! A body has an extent of the file: whole pages that no other body uses. It is written once by an [`ExtentWriter`]. Its
//! `Bytes` are slices of a mapping of the file, so that all code reads them as it reads a body on the heap; a stream
//! that has a socket finds the [offset](BodyFile::offset_of) of the slice and calls `sendfile`.
//!
//! When the last of these `Bytes` is dropped, the next body may use the pages of the extent, which saves their allocation. Only
//! if the kernel was told to send them, or if there are many spare pages, they go back to the kernel as a hole:
//! pages that it is still sending keep their content, and the next body at that offset gets other ones.
//!
//! The file is longer than the limit of the cache, since free extents are not adjacent; a hole takes no memory. Its length is
//! sealed, so no access to the mapping is beyond its end.

mod free_pages;

use std::{
    fmt,
    fs::File,
    hint::black_box,
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::FileExt,
    },
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU8, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use bytes::Bytes;
use rustix::{
    fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fstat, memfd_create},
    param::page_size,
    process::{Resource, getrlimit},
};
use symbolic_common::ByteView;

use self::free_pages::FreePages;
use crate::locks::Lock;

/// The smallest slice for `sendfile`. Below that, one copy costs less than a second system call (decisions/027).
pub const SENDFILE_BYTES_MIN: usize = 16 << 10;

/// Bytes of the file for each byte of the limit. Extents of many sizes leave gaps between them.
const LENGTH_FACTOR: usize = 4;
/// The smallest body that has an extent, in pages: a part of its last page is unused.
const BODY_PAGES_MIN: usize = 4;

const LENGTH_MIN: usize = 64 << 20;
const LENGTH_MAX: usize = 1 << 42;

/// Spare pages are at most this part of the limit.
const SPARE_DIVISOR: usize = 32;

/// Flags of a page: its body is complete; `sendfile` was called for it.
const COMPLETE: u8 = 1;
const SENT: u8 = 2;

/// The kernel maps this many bytes of pages around the one that a thread reads, if they are in memory (`fault_around_bytes`).
const FAULT_AROUND_BYTES: usize = 64 << 10;

pub struct BodyFile {
    file: File,
    /// All of the file, read-only.
    map: ByteView<'static>,
    page_bytes: usize,
    free: Lock<FreeExtents>,
    spare_pages_max: usize,
    /// The most bytes that bodies may take.
    bytes_max: AtomicUsize,
    /// Bytes of bodies for which there was no room.
    refused_bytes: AtomicUsize,
    /// Of each page.
    flags: Box<[AtomicU8]>,
    /// The kernel was seen to use large pages for the file.
    has_large_pages: AtomicBool,
    sent_bytes: AtomicU64,
}

struct FreeExtents {
    holes: FreePages,
    /// Pages that are in memory, and that the kernel was never told to send.
    spare: FreePages,
}

/// Whole pages of a file, for one body or a part of it.
struct Extent {
    file: Arc<BodyFile>,
    /// Offset in bytes.
    start: usize,
    /// Whole pages.
    bytes: AtomicUsize,
}

/// Fills an extent from its start.
pub struct ExtentWriter {
    extent: Arc<Extent>,
    /// The whole extent, filled or not.
    all: Bytes,
    filled: usize,
}

/// The owner of the `Bytes` of an extent.
struct MappedExtent(Arc<Extent>);

impl BodyFile {
    /// A file for a cache with a limit of `limit_bytes`.
    ///
    /// Fails if the kernel or a limit of the process does not allow it. Bodies are on the heap then.
    pub fn open(limit_bytes: usize) -> io::Result<Arc<Self>> {
        let page_bytes = page_size();
        let length = limit_bytes.saturating_mul(LENGTH_FACTOR).clamp(LENGTH_MIN, LENGTH_MAX);
        let length = length.next_multiple_of(page_bytes);
        // Beyond that limit the kernel would end the process with SIGXFSZ.
        if getrlimit(Resource::Fsize).current.is_some_and(|bytes| bytes < length as u64) {
            return Err(io::Error::other("the limit of a file's size is too low (ulimit -f)"));
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before 6.3 do not know NOEXEC_SEAL; later ones may require it (vm.memfd_noexec).
        let file = memfd_create("stockade-bodies", flags | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| memfd_create("stockade-bodies", flags))?;
        let file = File::from(file);
        file.set_len(length as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        let map = ByteView::map_file_ref(&file)?;
        if map.len() != length {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let pages = length / page_bytes;
        let free = Lock::new(FreeExtents { holes: FreePages::new(pages), spare: FreePages::new(0) });
        let spare_pages_max = length / LENGTH_FACTOR / SPARE_DIVISOR / page_bytes;
        let flags = std::iter::repeat_with(AtomicU8::default).take(pages).collect();
        let (has_large_pages, sent_bytes) = (AtomicBool::new(false), AtomicU64::new(0));
        let (bytes_max, refused_bytes) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(0));
        let body_file = Self {
            file,
            map,
            page_bytes,
            free,
            spare_pages_max,
            bytes_max,
            refused_bytes,
            flags,
            has_large_pages,
            sent_bytes,
        };
        if !body_file.has_small_pages() {
            return Err(io::Error::other(
                "files in memory have large pages (/sys/kernel/mm/transparent_hugepage/shmem_enabled)",
            ));
        }
        Ok(Arc::new(body_file))
    }

    /// The smallest body that has an extent, in bytes.
    #[must_use]
    pub fn body_bytes_min(&self) -> usize {
        SENDFILE_BYTES_MIN.max(BODY_PAGES_MIN * self.page_bytes)
    }

    /// An extent for `bytes` bytes. `None`: no gap of the file is as long, or its pages could not be given back.
    pub fn allocate(self: &Arc<Self>, bytes: usize) -> Option<ExtentWriter> {
        if bytes == 0 || !self.has_small_pages() {
            return None;
        }
        let bytes = self.whole_pages(bytes);
        let start = self.free.lock().allocate(bytes / self.page_bytes)? * self.page_bytes;
        let extent = Arc::new(Extent { file: Arc::clone(self), start, bytes: AtomicUsize::new(bytes) });
        let all = Bytes::from_owner(MappedExtent(Arc::clone(&extent)));
        Some(ExtentWriter { extent, all, filled: 0 })
    }

    /// False if bodies would take more memory than they may with a body of `bytes` bytes.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        let used_pages = {
            let free = self.free.lock();
            self.flags.len() - free.holes.pages() - free.spare.pages()
        };
        let has_room = used_pages * self.page_bytes + bytes <= self.bytes_max.load(Relaxed);
        if !has_room {
            self.refused_bytes.fetch_add(bytes, Relaxed);
        }
        has_room
    }

    /// Bounds the memory of bodies from now on.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Relaxed);
    }

    /// The bytes for which there was no room since the last call.
    #[must_use]
    pub fn take_refused_bytes(&self) -> usize {
        self.refused_bytes.swap(0, Relaxed)
    }

    /// The offset of a slice of a complete body in this file. `None`: the slice is other memory, or may not be sent from the file.
    #[must_use]
    pub fn offset_of(&self, slice: &[u8]) -> Option<u64> {
        let offset = self.position(slice)?;
        let flags = self.flags.get(offset / self.page_bytes)?.load(Relaxed);
        (flags & COMPLETE != 0 && !self.has_large_pages.load(Relaxed)).then_some(offset as u64)
    }

    /// Memory of a chunk of a body in this file, in bytes. `None`: the chunk is on the heap.
    #[must_use]
    pub fn allocated_bytes(&self, chunk: &[u8]) -> Option<usize> {
        self.position(chunk).map(|_| self.whole_pages(chunk.len()))
    }

    fn position(&self, slice: &[u8]) -> Option<usize> {
        let (map, slice) = (self.map.as_ptr_range(), slice.as_ptr_range());
        let is_inside = map.start <= slice.start && slice.end <= map.end;
        is_inside.then(|| slice.start.addr() - map.start.addr())
    }

    /// The flags of the pages of a range in bytes.
    fn flags(&self, start: usize, bytes: usize) -> &[AtomicU8] {
        let pages = start / self.page_bytes..start.saturating_add(bytes).div_ceil(self.page_bytes);
        self.flags.get(pages).unwrap_or_default()
    }

    /// Memory of all extents, in bytes.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        Ok(u64::try_from(fstat(&self.file)?.st_blocks).unwrap_or_default() * 512)
    }

    /// Bytes that the kernel has sent from the file.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Relaxed)
    }

    /// Has to be called before each `sendfile`: the pages of the slice are not used again.
    pub fn mark_sent(&self, offset: u64, bytes: usize) {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        for flags in self.flags(start, bytes) {
            // Most pages have it: a large body is sent in many calls, and more than once.
            if flags.load(Relaxed) & SENT == 0 {
                flags.fetch_or(SENT, Relaxed);
            }
        }
    }

    pub fn record_sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn whole_pages(&self, bytes: usize) -> usize {
        bytes.next_multiple_of(self.page_bytes)
    }

    /// False once the kernel was seen to use large pages. A hole in one clears a part of it in place, although the kernel may
    /// be sending that part.
    fn has_small_pages(&self) -> bool {
        let is_small =
            fstat(&self.file).is_ok_and(|stat| usize::try_from(stat.st_blksize) == Ok(self.page_bytes));
        if !is_small {
            self.has_large_pages.store(true, Relaxed);
        }
        !self.has_large_pages.load(Relaxed)
    }

    /// Keeps the pages of an extent for the next body, or gives them back.
    fn release(&self, start: usize, bytes: usize) {
        let flags = self.flags(start, bytes).iter();
        let is_sent = flags.fold(0, |all, flags| all | flags.swap(0, Relaxed)) & SENT != 0;
        if is_sent || !self.has_small_pages() {
            return self.punch_hole(start, bytes);
        }
        let surplus = {
            let mut free = self.free.lock();
            free.spare.release(start / self.page_bytes, bytes / self.page_bytes);
            if free.spare.pages() <= self.spare_pages_max { FreePages::new(0) } else { free.spare.take() }
        };
        for (start, pages) in surplus.ranges() {
            self.punch_hole(start * self.page_bytes, pages * self.page_bytes);
        }
    }

    /// Gives pages back. With large pages, or if the kernel refuses a hole, they stay as they are and are not used again.
    fn punch_hole(&self, start: usize, bytes: usize) {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if bytes > 0
            && self.has_small_pages()
            && fallocate(&self.file, hole, start as u64, bytes as u64).is_ok()
        {
            self.free.lock().holes.release(start / self.page_bytes, bytes / self.page_bytes);
        }
    }
}

impl FreeExtents {
    fn allocate(&mut self, pages: usize) -> Option<usize> {
        self.spare.allocate(pages).or_else(|| self.holes.allocate(pages))
    }
}

impl AsFd for BodyFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl fmt::Debug for BodyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyFile").field("length", &self.map.len()).finish_non_exhaustive()
    }
}

impl ExtentWriter {
    /// Bytes that it can still append.
    #[must_use]
    pub fn room(&self) -> usize {
        self.all.len() - self.filled
    }

    /// The appended bytes.
    #[must_use]
    pub fn filled(&self) -> Bytes {
        self.all.slice(..self.filled)
    }

    /// Appends at most [`room`](Self::room) bytes, and returns them in the file. After an error nothing is appended.
    pub fn append(&mut self, data: &[u8]) -> io::Result<Bytes> {
        let end = self.filled + data.len();
        if end > self.all.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // No slice has been made of these bytes yet.
        self.extent.file.file.write_all_at(data, (self.extent.start + self.filled) as u64)?;
        let start = std::mem::replace(&mut self.filled, end);
        Ok(self.all.slice(start..end))
    }

    /// The appended bytes; the rest of the extent is given back.
    #[must_use]
    pub fn finish(self) -> Bytes {
        let Self { extent, all, filled } = self;
        let bytes = extent.file.whole_pages(filled);
        let allocated = extent.bytes.swap(bytes, SeqCst);
        extent.file.punch_hole(extent.start + bytes, allocated - bytes);
        for flags in extent.file.flags(extent.start, bytes) {
            flags.store(COMPLETE, Relaxed);
        }
        let body = all.slice(..filled);
        // Maps the pages, so that the resident memory of the process is all that it uses.
        for byte in body.iter().step_by(FAULT_AROUND_BYTES) {
            black_box(*byte);
        }
        body
    }
}

impl AsRef<[u8]> for MappedExtent {
    fn as_ref(&self) -> &[u8] {
        let Extent { file, start, bytes } = &*self.0;
        &file.map[*start..*start + bytes.load(SeqCst)]
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        self.file.release(self.start, *self.bytes.get_mut());
    }
}

#[cfg(any(test, feature = "testing"))]
impl BodyFile {
    /// Makes every write fail.
    pub fn refuse_writes(&self) -> io::Result<()> {
        Ok(fcntl_add_seals(&self.file, SealFlags::FUTURE_WRITE)?)
    }
}

#[cfg(test)]
mod tests;
