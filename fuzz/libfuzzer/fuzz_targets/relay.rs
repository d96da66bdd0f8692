//! Hands what libFuzzer invents to `fuzz::relay`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::relay(data));
