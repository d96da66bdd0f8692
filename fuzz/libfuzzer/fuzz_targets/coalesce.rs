//! Hands what libFuzzer invents to `fuzz::coalesce`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::coalesce(data));
