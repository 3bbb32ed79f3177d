#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stockade_proxy::fuzzing::proxy_protocol(data));
