//! Hands what libFuzzer invents to `fuzz::cells`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::cells(data));
