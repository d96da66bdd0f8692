//! Hands what libFuzzer invents to `fuzz::map`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::map(data));
