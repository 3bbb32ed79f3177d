#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stockade_http::fuzzing::framing(data));
