//! Hands what libFuzzer invents to `fuzz::frames`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::frames(data));
