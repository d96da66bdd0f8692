//! Hands what libFuzzer invents to `fuzz::ping`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::ping(data));
