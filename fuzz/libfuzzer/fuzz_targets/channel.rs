//! Hands what libFuzzer invents to `fuzz::channel`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::channel(data));
