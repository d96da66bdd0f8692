//! Hands what libFuzzer invents to `fuzz::query`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::query(data));
