//! Hands what libFuzzer invents to `fuzz::link_file`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::link_file(data));
