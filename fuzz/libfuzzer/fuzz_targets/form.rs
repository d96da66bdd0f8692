//! Hands what libFuzzer invents to `fuzz::form`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::form(data));
