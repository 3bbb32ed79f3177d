//! The allocator of the program: jemalloc, which returns memory that a cache has freed (decisions/036).

use tikv_jemalloc_ctl::{Access, AsName, Error, background_thread};
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// In which freed pages go back to the system, in milliseconds. jemalloc's own is 10 s, in which a proxy receives gigabytes.
const DECAY_MS: isize = 100;

/// Makes freed memory return to the system soon, also while this process does nothing. Has to be called before its threads start.
pub fn return_memory_soon() -> Result<(), Error> {
    // Of the main thread's arena, and of those to come.
    for name in [&b"arena.0.dirty_decay_ms\0"[..], b"arenas.dirty_decay_ms\0"] {
        name.name().write(DECAY_MS)?;
    }
    background_thread::write(true)
}
