#![no_main]

use std::alloc::System;

use cap::Cap;

/// Aborts on an allocation beyond its limit.
#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// serde reserves up to 1 MiB for a list by its stated length; there are two lists, and a property decodes twice.
const FIXED_BYTES: usize = 8 << 20;
/// A field of two bytes takes 300 in a map.
const BYTES_PER_BYTE: usize = 512;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let bytes_max = FIXED_BYTES + BYTES_PER_BYTE * data.len();
    MEMORY.set_limit(MEMORY.allocated() + bytes_max).expect("the limit is above what is allocated");
    stockade_proxy::fuzzing::entry(data);
    MEMORY.set_limit(usize::MAX).expect("no limit");
});
